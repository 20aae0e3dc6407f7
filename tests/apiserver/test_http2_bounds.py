"""No client of HTTP/2 may cost without bound: `test_request_bounds` for HTTP/2, and what only frames do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import hpack
import pytest
from api_caller import ADMIN
from http2_client import Http2Client
from kubectl_runner import Kubectl
from test_api_serving import trust

from haru import serving
from haru.apiserver.serving import HttpServer, TlsFiles
from haru.http2 import frames, limits
from haru.http2.frames import ErrorCode, frame, number_frame
from waiting import until

GREETING = frames.PREFACE + frames.settings({})
HEAD = [(":method", "GET"), (":scheme", "https"), (":path", "/readyz"), (":authority", "x")]
ENDS = frames.END_HEADERS | frames.END_STREAM


class Raw:
    """A client that sends what it is told, and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self._numbers = count(1, 2)

    @classmethod
    async def open(cls, served: Kubectl, first: bytes = GREETING) -> Raw:
        context = trust(served)
        context.set_alpn_protocols(["h2"])
        raw = cls(*await asyncio.open_connection("127.0.0.1", served.server.port, ssl=context))
        raw.writer.write(first)
        return raw

    def get(self, fields: list[tuple[str, str]] = HEAD, flags: int = ENDS) -> tuple[int, bytes]:
        """A request without a body: its stream, and the frame."""
        number = next(self._numbers)
        return number, frame(frames.HEADERS, flags, number, self.encoder.encode(fields))

    async def frame(self) -> tuple[int, int, int, bytes]:
        """The next frame."""
        head = await asyncio.wait_for(self.reader.readexactly(9), 20)
        length = int.from_bytes(head[:3], "big")
        return head[3], head[4], int.from_bytes(head[5:], "big"), await self.reader.readexactly(length)

    async def next(self, kind: int) -> tuple[int, int, bytes]:
        """Flags, stream and payload of the next frame of a type; ACKs are passed over."""
        while True:
            found, flags, number, payload = await self.frame()
            if found == kind and not (kind == frames.SETTINGS and flags):
                return flags, number, payload

    async def status(self) -> tuple[int, str]:
        """Stream and status of the next answer."""
        _, number, payload = await self.next(frames.HEADERS)
        return number, dict(self.decoder.decode(payload))[":status"]

    async def farewell(self) -> int:
        """The code with which the connection ends, and its end."""
        code = int.from_bytes((await self.next(frames.GOAWAY))[2][4:8], "big")
        assert await asyncio.wait_for(self.reader.read(), 20) is not None
        return code

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


async def all_gone(served: Kubectl) -> None:
    """Wait until the server has no connection left."""
    await until(lambda: not served.server.connections)


async def test_settings_equal_those_of_kube_apiserver(served: Kubectl) -> None:
    """As kube-apiserver: 100 streams, frames and windows of 256 KiB."""
    raw = await Raw.open(served)
    told = dict(frames.read_settings((await raw.next(frames.SETTINGS))[2]))
    assert told == {3: 100, 4: 256 * 1024, 5: 256 * 1024, 6: serving.HEAD_BYTES}
    window = int.from_bytes((await raw.next(frames.WINDOW_UPDATE))[2], "big")
    assert window + frames.WINDOW == 100 * 256 * 1024
    await raw.close()


def _fields(*more: tuple[str, str], **changed: str | None) -> list[tuple[str, str]]:
    pseudo = {name: changed.get(name[1:], value) for name, value in HEAD}
    return [(name, value) for name, value in pseudo.items() if value is not None] + list(more)


MALFORMED = {
    "no method": _fields(method=None),
    "no path": _fields(path=None),
    "no scheme": _fields(scheme=None),
    "an empty path": _fields(path=""),
    "a path that does not begin with a slash": _fields(path="readyz"),
    "a path with a space": _fields(path="/a b"),
    "a method that is none": _fields(method="G T"),
    "twice a path": [*HEAD, (":path", "/")],
    "a pseudo field after others": [("a", "b"), *HEAD],
    "an unknown pseudo field": _fields((":protocol", "websocket")),
    "a name in capitals": _fields(("Accept", "x")),
    "an empty value with a name that is none": _fields(("a b", "")),
    "a line break": _fields(("a", "b\r\nc: d")),
    "a zero byte": _fields(("a", "b\0")),
    "connection": _fields(("connection", "close")),
    "transfer-encoding": _fields(("transfer-encoding", "chunked")),
    "upgrade": _fields(("upgrade", "websocket")),
    "te": _fields(("te", "gzip")),
    "a length that is none": _fields(("content-length", "-1")),
    "two lengths": _fields(("content-length", "1"), ("content-length", "2")),
    "a length without a body": _fields(("content-length", "1")),
    "a host that is not the authority": _fields(("host", "y")),
    "two hosts": [*HEAD[:3], ("host", "x"), ("host", "x")],
    "a user in the authority": _fields(authority="user@x"),
    "a path in the host": [*HEAD[:3], ("host", "x/y")],
    "CONNECT": _fields(method="CONNECT"),
    "an empty name": _fields(("", "b")),
}


async def test_malformed_requests_reset_only_their_stream(served: Kubectl) -> None:
    raw = await Raw.open(served)
    for why, fields in MALFORMED.items():
        number, sent = raw.get(fields)
        raw.writer.write(sent)
        _, refused, payload = await raw.next(frames.RST_STREAM)
        assert (refused, int.from_bytes(payload, "big")) == (number, ErrorCode.PROTOCOL_ERROR), why
    for fields in ([*HEAD, ("te", "trailers"), ("content-length", "0")], [*HEAD, ("host", "x")], _fields(authority="")):
        number, sent = raw.get(fields)
        raw.writer.write(sent)
        assert await raw.status() == (number, "200")
    await raw.close()


def _block(size: int) -> bytes:
    return hpack.Encoder().encode([*HEAD, ("x-large", "y" * size)], huffman=False)


def _continued(number: int, block: bytes, part: int = 16_000) -> bytes:
    parts = [block[begin : begin + part] for begin in range(0, len(block), part)]
    sent = frame(frames.HEADERS, frames.END_STREAM, number, parts[0])
    sent += b"".join(frame(frames.CONTINUATION, 0, number, each) for each in parts[1:-1])
    return sent + frame(frames.CONTINUATION, frames.END_HEADERS, number, parts[-1])


async def test_large_request_head_is_accepted_in_any_pieces(served: Kubectl) -> None:
    raw = await Raw.open(served)
    for number, part in ((1, 16_000), (3, 200_000)):
        raw.writer.write(_continued(number, _block(500_000), part))
        assert await raw.status() == (number, "200")
    number, sent = 5, frame(frames.HEADERS, ENDS, 5, hpack.Encoder().encode(HEAD))
    for byte in sent:
        raw.writer.write(bytes((byte,)))
        await raw.writer.drain()
    assert await raw.status() == (number, "200")
    await raw.close()


def _bomb() -> bytes:
    """A field of 4,000 bytes that the table keeps, then referred to a thousand times."""
    return hpack.Encoder().encode([*HEAD, ("x", "y" * 4000)], huffman=False) + b"\xbe" * 1000


@pytest.mark.parametrize(
    ("sent", "code", "is_answered"),
    [
        (_continued(1, _block(2_000_000)), ErrorCode.ENHANCE_YOUR_CALM, True),
        (frame(frames.HEADERS, ENDS, 1, _bomb()), ErrorCode.ENHANCE_YOUR_CALM, True),
        (frame(frames.HEADERS, 1, 1, _block(1)) + frame(9, 0, 1) * 50_000, ErrorCode.ENHANCE_YOUR_CALM, False),
        (frame(frames.HEADERS, ENDS, 1, b"\x20" * 100_000), ErrorCode.COMPRESSION_ERROR, False),
    ],
    ids=["large", "a bomb", "CONTINUATION without end", "changes of the table"],
)
async def test_endless_request_head_is_refused(
    served: Kubectl, sent: bytes, code: ErrorCode, is_answered: bool
) -> None:
    raw = await Raw.open(served, GREETING + sent)
    try:
        if is_answered:
            assert await raw.status() == (1, "431")
        assert await raw.farewell() == code
    except ConnectionError:  # the rest of what was sent may reset the connection before the answer is read
        assert len(sent) > serving.HEAD_BYTES
    await raw.close()
    await all_gone(served)


GET = hpack.Encoder().encode(HEAD, huffman=False)


def _each(make: Callable[[int], bytes]) -> bytes:
    return GREETING + b"".join(make(number) for number in range(1, 20_001, 2))


FLOODS = {
    "pings": GREETING + frame(frames.PING, 0, 0, b"12345678") * 20_000,
    "settings": GREETING + frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 7}) * 20_000,
    "rapid resets": _each(
        lambda n: frame(frames.HEADERS, ENDS, n, GET) + number_frame(frames.RST_STREAM, n, ErrorCode.CANCEL)
    ),
    "made you reset": _each(lambda n: frame(frames.HEADERS, ENDS, n, GET) + number_frame(frames.WINDOW_UPDATE, n, 0)),
    "window updates for nothing": GREETING + number_frame(frames.WINDOW_UPDATE, 0, 1) * 20_000,
    "window updates of a stream that has ended": GREETING
    + frame(frames.HEADERS, ENDS, 1, GET)
    + number_frame(frames.RST_STREAM, 1, ErrorCode.CANCEL)
    + number_frame(frames.WINDOW_UPDATE, 1, 1) * 20_000,
    "refused streams": _each(lambda n: frame(frames.HEADERS, frames.END_HEADERS, n, GET)),
    "priorities": GREETING + frame(frames.PRIORITY, 0, 1, bytes(5)) * 20_000,
    "unknown frames": GREETING + frame(200, 0, 1) * 20_000,
    "empty data": GREETING + frame(frames.HEADERS, frames.END_HEADERS, 1, GET) + frame(frames.DATA, 0, 1) * 20_000,
    "padding alone": GREETING
    + frame(frames.HEADERS, frames.END_HEADERS, 1, GET)
    + frame(frames.DATA, frames.PADDED, 1, b"\x05" + bytes(5)) * 20_000,
}


@pytest.mark.parametrize("name", FLOODS)
async def test_frame_floods_end_the_connection(served: Kubectl, name: str) -> None:
    raw = await Raw.open(served, FLOODS[name])
    assert await raw.farewell() == ErrorCode.ENHANCE_YOUR_CALM
    await raw.close()
    other = await Http2Client.open(served.server.port, trust(served))
    assert (await other.ask("GET", "/readyz")).body == b"ok"
    assert served.app.in_flight == 0
    await other.close()


FAULTS: dict[str, tuple[bytes, ErrorCode]] = {
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n" + bytes(30), ErrorCode.PROTOCOL_ERROR),
    "no settings first": (frames.PREFACE + frame(frames.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a frame too long": (GREETING + frame(200, 0, 0, bytes(300_000)), ErrorCode.FRAME_SIZE_ERROR),
    "a stream of the server's": (GREETING + frame(frames.HEADERS, ENDS, 2, GET), ErrorCode.PROTOCOL_ERROR),
    "data on no stream": (GREETING + frame(frames.DATA, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
    "another frame in a head": (
        GREETING + frame(frames.HEADERS, 0, 1, GET) + frame(frames.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR,
    ),
    "more padding than frame": (
        GREETING + frame(frames.HEADERS, ENDS | frames.PADDED, 1, b"\xff" + GET), ErrorCode.PROTOCOL_ERROR,
    ),
    "compressed by nobody": (GREETING + frame(frames.HEADERS, ENDS, 1, b"\xff" * 9), ErrorCode.COMPRESSION_ERROR),
    "a window beyond bounds": (
        GREETING + number_frame(frames.WINDOW_UPDATE, 0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "a window that does not grow": (GREETING + number_frame(frames.WINDOW_UPDATE, 0, 0), ErrorCode.PROTOCOL_ERROR),
    "a push": (GREETING + frame(frames.PUSH_PROMISE, 0, 1, bytes(9)), ErrorCode.PROTOCOL_ERROR),
    "a setting that none may have": (
        frames.PREFACE + frames.settings({frames.Setting.MAX_FRAME_SIZE: 1}), ErrorCode.PROTOCOL_ERROR,
    ),
    "settings without end": (
        frames.PREFACE + frame(frames.SETTINGS, 0, 0, b"\0\4\0\0\0\7" * 101), ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a short ping": (GREETING + frame(frames.PING, 0, 0, b"x"), ErrorCode.FRAME_SIZE_ERROR),
    "a reset of no stream": (GREETING + number_frame(frames.RST_STREAM, 1, 0), ErrorCode.PROTOCOL_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
async def test_protocol_errors_end_connection_with_code(served: Kubectl, name: str) -> None:
    sent, code = FAULTS[name]
    raw = await Raw.open(served, sent)
    assert await raw.farewell() == code
    await raw.close()


async def _streams(served: Kubectl, streams: int) -> HttpServer:
    tls = TlsFiles(served.directory / "tls.crt", served.directory / "tls.key")
    server = HttpServer(served.app, tls=tls, http2_streams=streams)
    await server.start()
    return server


async def test_streams_above_limit_are_refused(served: Kubectl) -> None:
    server = await _streams(served, 3)
    client = await Http2Client.open(server.port, trust(served))
    client.h2.remote_settings.max_concurrent_streams = 100
    client.h2.remote_settings.acknowledge()
    watches = [client.begin("GET", "/api/v1/pods?watch=1") for _ in range(5)]
    refused = [await client.answer(number) for number in watches[3:]]
    assert {answer.reset for answer in refused} == {ErrorCode.REFUSED_STREAM}
    client.h2.reset_stream(watches[0])
    assert (await client.ask("GET", "/readyz")).body == b"ok"
    await client.close()
    await server.stop()


async def test_reset_requests_count_as_running_until_they_end(served: Kubectl) -> None:
    """At most as many run as streams are allowed, whatever is reset; the others wait their turn."""
    hold, running, most, asked = asyncio.Event(), 0, 0, 0

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        nonlocal running, most, asked
        running, asked = running + 1, asked + 1
        most = max(most, running)
        await hold.wait()
        running -= 1
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    server = await _streams(served, 4)
    server._server.config.loaded_app = slow
    client = await Http2Client.open(server.port, trust(served))
    for _ in range(10):
        client.h2.reset_stream(client.begin("GET", "/"))
    last = client.begin("GET", "/")
    await until(lambda: running == 4)
    await asyncio.sleep(0.05)
    assert (running, most) == (4, 4)
    hold.set()
    assert (await client.answer(last)).status == 204
    assert asked == 5, "what was given up before it began is not worked on"
    for _ in range(30):
        hold.clear()
        client.h2.reset_stream(client.begin("GET", "/"))
    client.flush()
    assert await client.over() == ErrorCode.ENHANCE_YOUR_CALM
    hold.set()
    await client.close()
    await server.stop()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        frames.PREFACE,
        frames.PREFACE[:5],
        GREETING + frame(frames.HEADERS, frames.END_STREAM, 1, GET),
        GREETING + frame(frames.HEADERS, ENDS, 1, GET)[:-1],
        GREETING + b"\0",
    ],
    ids=["nothing", "no settings", "half a preface", "half a head", "half a frame", "a byte"],
)
async def test_silent_connection_is_closed(served: Kubectl, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.2)
    raw = await Raw.open(served, sent)
    await all_gone(served)
    await raw.close()


async def test_slowly_sent_head_is_closed(served: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.3)
    raw = await Raw.open(served, GREETING + frame(frames.HEADERS, frames.END_STREAM, 1, GET))
    with pytest.raises((ConnectionError, TimeoutError)):
        async with asyncio.timeout(60):
            while True:
                raw.writer.write(frame(frames.CONTINUATION, 0, 1, b""))
                await raw.writer.drain()
                await asyncio.sleep(0.02)
                if raw.writer.transport.is_closing() or not served.server.connections:
                    raise ConnectionResetError
    assert not served.server.connections
    await raw.close()


async def test_idle_connection_is_closed_but_not_with_a_watch(served: Kubectl) -> None:
    served.server._server.config.timeout_keep_alive = 0.3
    watching = await Http2Client.open(served.server.port, trust(served))
    watch = watching.begin("GET", "/api/v1/pods?watch=1")
    await watching.until(lambda: watching.answers[watch].headers)
    idle = await Http2Client.open(served.server.port, trust(served))
    assert (await idle.ask("GET", "/readyz")).status == 200
    assert await idle.over() == ErrorCode.NO_ERROR
    # The other one was silent for longer.
    assert not watching.closed and not watching.answers[watch].ended
    await watching.close()
    await idle.close()


@pytest.mark.parametrize(("told", "sent"), [(10, b"{}"), (1, b"{}"), (10, b"")])
async def test_body_length_mismatch_resets_stream(served: Kubectl, told: int, sent: bytes) -> None:
    raw = await Raw.open(served)
    path = "/api/v1/namespaces/default/configmaps"
    fields = [*_fields(method="POST", path=path), ("authorization", f"Bearer {ADMIN}")]
    number, head = raw.get([*fields, ("content-length", str(told))], frames.END_HEADERS)
    raw.writer.write(head + frame(frames.DATA, frames.END_STREAM, number, sent))
    _, refused, payload = await raw.next(frames.RST_STREAM)
    assert (refused, int.from_bytes(payload, "big")) == (number, ErrorCode.PROTOCOL_ERROR)
    await raw.close()


def test_useless_frames_are_counted_per_second() -> None:
    class Loop:
        now = 100.0

        def time(self) -> float:
            return self.now

    loop = Loop()
    limit = limits.UselessFrameLimit(loop)  # type: ignore[arg-type]
    for _ in range(5):
        for _ in range(limits.USELESS_FRAMES):
            limit.count()
        loop.now += 1.5
    with pytest.raises(frames.Http2ConnectionError, match="useless"):
        for _ in range(2 * limits.USELESS_FRAMES):
            limit.count()
