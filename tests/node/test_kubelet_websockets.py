"""WebSockets that end at the kubelet API of a node: what they carry goes to the runtime by SPDY."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType
from kubelet_pieces import Kubelet, client_context, kubelet

from haru.remote_command.spdy import DATA, SYN_STREAM, Frame, SpdyConnection

Serve = Callable[["Runtime"], Awaitable[None]]
V5 = ("v5.channel.k8s.io", "v4.channel.k8s.io")
TUNNEL = "SPDY/3.1+portforward.k8s.io"


class Runtime:
    """The streaming server of a runtime, on one connection."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head, self.reader, self.writer = head.decode().lower(), reader, writer
        self.spdy = SpdyConnection()
        self.frames: list[Frame] = []
        self.streams: dict[str, int] = {}

    async def frame(self) -> Frame:
        """The next frame; streams that are opened are accepted."""
        while True:
            while not self.frames:
                self.frames += self.spdy.receive(await self.reader.read(65536))
            frame = self.frames.pop(0)
            if frame.type != SYN_STREAM:
                return frame
            self.streams[frame.headers["streamtype"]] = frame.stream
            self.writer.write(self.spdy.reply(frame.stream))

    def say(self, kind: str, data: bytes) -> None:
        self.writer.write(self.spdy.data(self.streams[kind], data))


@asynccontextmanager
async def node(tmp_path: Path, serve: Serve) -> AsyncGenerator[Kubelet, None]:
    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        try:
            await serve(Runtime(head, reader, writer))
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    try:
        async with kubelet(tmp_path) as found:
            found.source.stream_port = server.sockets[0].getsockname()[1]
            yield found
    finally:
        server.close()


@asynccontextmanager
async def socket(
    node: Kubelet, path: str, protocols: tuple[str, ...], *, answers_pings: bool = True
) -> AsyncGenerator[aiohttp.ClientWebSocketResponse, None]:
    headers = node.grant("root", ("get", "proxy"), ("create", "proxy"))
    url = f"https://127.0.0.1:{node.server.port}{path}"
    async with aiohttp.ClientSession() as session:
        tls = client_context(node.servers.file)
        connecting = session.ws_connect(url, protocols=protocols, headers=headers, ssl=tls, autoping=answers_pings)
        async with connecting as found:
            yield found


async def told(found: aiohttp.ClientWebSocketResponse) -> dict[int, bytes]:
    """What comes until the WebSocket is closed, by channel."""
    channels: dict[int, bytes] = {}
    async for message in found:
        assert message.type == WSMsgType.BINARY
        channels[message.data[0]] = channels.get(message.data[0], b"") + message.data[1:]
    assert found.close_code == 1000
    return channels


@pytest.mark.parametrize("answers", [True, False])
async def test_output_waits_until_the_client_listens(tmp_path: Path, answers: bool) -> None:
    """kubectl up to 1.33 drops what comes before it has made its streams; who never answers is not kept for ever."""

    async def echo(runtime: Runtime) -> None:
        while "stdout" not in runtime.streams:
            runtime.frames += runtime.spdy.receive(await runtime.reader.read(65536))
            while runtime.frames:
                frame = runtime.frames.pop(0)
                runtime.streams[frame.headers["streamtype"]] = frame.stream
        runtime.say("stdout", b"hi")
        await asyncio.sleep(5.0)

    async with node(tmp_path, echo) as found:
        path = "/exec/default/web/main?command=echo&output=1"
        async with socket(found, path, V5, answers_pings=False) as ours:
            assert (await ours.receive(timeout=5.0)).type == WSMsgType.PING
            with pytest.raises(TimeoutError):
                await ours.receive(timeout=0.4)
            if answers:
                await ours.pong()
            told = [await ours.receive(timeout=5.0) for _ in range(1 + answers)]
            assert b"\1hi" in [one.data for one in told]


async def test_command_has_its_input_to_its_end_and_its_outputs_and_status_are_told(tmp_path: Path) -> None:
    status = b'{"metadata":{},"status":"Success"}'

    async def cat(runtime: Runtime) -> None:
        assert runtime.head.startswith("post /stream") and "upgrade: spdy/3.1" in runtime.head
        assert "x-stream-protocol-version: v4.channel.k8s.io" in runtime.head and "websocket" not in runtime.head
        while not (frame := await runtime.frame()).fin:
            assert (frame.type, frame.stream) == (DATA, runtime.streams["stdin"])
            runtime.say("stdout", frame.data.upper())
        assert list(runtime.streams) == ["error", "stdin", "stdout", "stderr"]
        runtime.say("stderr", b"oh")
        runtime.say("error", status)

    async with node(tmp_path, cat) as found:
        path = "/exec/default/web/main?command=cat&input=1&output=1&error=1"
        async with socket(found, path, V5) as ours:
            assert ours.protocol == V5[0]
            await ours.send_bytes(b"\0" + b"x" * 200_000)
            await ours.send_bytes(b"\xff\0")
            assert await told(ours) == {1: b"X" * 200_000, 2: b"oh", 3: status}
        async with found.session() as session:
            meter = found.grant("meter", ("get", "metrics"))
            async with session.get("/metrics", headers=meter) as answer:
                assert 'kubelet_websocket_streaming_requests_total{subresource="exec"} 1' in await answer.text()


@pytest.mark.parametrize(
    ("wanted", "first"), [("output=1&error=1", b"\x01"), ("error=1", b"\x02"), ("input=1", b"\x03")]
)
async def test_one_empty_message_tells_that_a_command_is_there(tmp_path: Path, wanted: str, first: bytes) -> None:
    async def silent(runtime: Runtime) -> None:
        while len(runtime.streams) < 2:
            runtime.frames += runtime.spdy.receive(await runtime.reader.read(65536))
            runtime.streams.update((frame.headers["streamtype"], frame.stream) for frame in runtime.frames)
        for stream in runtime.streams.values():
            runtime.writer.write(runtime.spdy.reply(stream))
        runtime.say("error", b"{}")

    path = f"/exec/default/web/main?command=sh&{wanted}"
    async with node(tmp_path, silent) as found, socket(found, path, V5) as ours:
        assert [message.data async for message in ours] == [first, b"\x03{}"]


async def test_terminal_is_resized(tmp_path: Path) -> None:
    async def terminal(runtime: Runtime) -> None:
        frame = await runtime.frame()
        assert frame.stream == runtime.streams["resize"] and "stderr" not in runtime.streams
        runtime.say("stdout", frame.data)
        runtime.say("error", b"{}")

    path = "/attach/default/web/main?input=1&output=1&error=1&tty=1"
    async with node(tmp_path, terminal) as found, socket(found, path, V5) as ours:
        await ours.send_bytes(b'\x04{"Width":80,"Height":24}')
        assert (await told(ours))[1] == b'{"Width":80,"Height":24}'


async def test_command_of_a_runtime_that_is_lost_has_failed(tmp_path: Path) -> None:
    async def lost(runtime: Runtime) -> None:
        while len(runtime.streams) < 2:
            runtime.frames += runtime.spdy.receive(await runtime.reader.read(65536))
            runtime.streams.update((frame.headers["streamtype"], frame.stream) for frame in runtime.frames)

    path = "/exec/default/web/main?command=sh&output=1"
    async with node(tmp_path, lost) as found, socket(found, path, V5) as ours:
        status = json.loads((await told(ours))[3])
    assert (status["status"], status["reason"], status["code"]) == ("Failure", "InternalError", 500)


async def test_connection_to_the_runtime_ends_with_the_client(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def waits(runtime: Runtime) -> None:
        while await runtime.reader.read(65536):
            pass
        gone.set()

    async with node(tmp_path, waits) as found:
        async with socket(found, "/exec/default/web/main?command=sh&output=1", V5):
            pass
        await asyncio.wait_for(gone.wait(), 60)


async def test_ports_are_forwarded_within_a_websocket(tmp_path: Path) -> None:
    async def echo(runtime: Runtime) -> None:
        assert runtime.head.startswith("post /stream") and "portforward.k8s.io\r\n" in runtime.head
        assert "spdy/3.1+" not in runtime.head
        runtime.writer.write((await runtime.reader.readexactly(100_000)).upper())

    async with node(tmp_path, echo) as found:
        async with socket(found, "/portForward/default/web", (TUNNEL,)) as ours:
            assert ours.protocol == TUNNEL
            await ours.ping()
            await ours.send_bytes(b"y" * 100_000)
            got = b"".join([message.data async for message in ours])
        assert got == b"Y" * 100_000 and ours.close_code == 1000
        assert found.source.opened[0][:2] == ("portForward", [])


@pytest.mark.parametrize("path", ["/exec/default/web/main?command=sh&output=1", "/portForward/default/web"])
async def test_handshake_that_is_none_is_refused(tmp_path: Path, path: str) -> None:
    async with node(tmp_path, lambda _: asyncio.sleep(0)) as found, found.session() as session:
        headers = found.grant("root", ("get", "proxy"), ("create", "proxy"))
        offered = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Protocol": f"{V5[0]}, {TUNNEL}"}
        async with session.get(path, headers={**headers, **offered}) as answer:
            assert answer.status == 400
        assert not found.source.opened
