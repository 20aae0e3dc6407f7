"""WebSockets of clients whose protocols the runtime does not have: their streams go by SPDY to the runtime.

`v5.channel.k8s.io` alone can end a container's input; a port-forward is SPDY within a WebSocket. What else is asked for
by a WebSocket is passed on as it is. Source: `streamtranslator.go` and `streamtunnel.go` of 1.36, as behaviour (the
gate ExtendWebSocketsToKubelet).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from wsproto import WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.node.api.sources import StreamOptions, StreamRequest
from haru.remote_command.channels import (
    ERROR,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    Wanted,
    WebSocketChannels,
    handshake,
)
from haru.remote_command.spdy import DATA, PING, SpdyConnection, SpdyError
from haru.upgrade_proxy import HIJACK, ByteStream

_COMMANDS: Final = "v5.channel.k8s.io"
_COMMANDS_OVER_SPDY: Final = "v4.channel.k8s.io"
_TUNNEL: Final = "SPDY/3.1+"
_KUBERNETES: Final = ".k8s.io"
_KINDS: Final = {ERROR: "error", STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", RESIZE: "resize"}
"""The type of the stream for each channel, in the order in which they are opened."""
_PIECE_BYTES: Final = 64 * 1024
_CLOSE_SECONDS: Final = 5.0
_SIZES_AT_ONCE: Final = 16
_LOST: Final = StatusError(500, "InternalError", "Internal error occurred: the container runtime closed the connection")


def subprotocols(headers: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """The protocols that a client offers within a WebSocket; none if it asks for none."""
    if not any(name == b"upgrade" and value.lower() == b"websocket" for name, value in headers):
        return []
    given = [value.decode("latin-1") for name, value in headers if name == b"sec-websocket-protocol"]
    return [one.strip() for value in given for one in value.split(",")]


def is_translated(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a request is for a WebSocket that ends here."""
    return any(one == _COMMANDS or _is_tunnel(one) for one in subprotocols(headers))


def _is_tunnel(protocol: str) -> bool:
    return protocol.startswith(_TUNNEL) and protocol.endswith(_KUBERNETES)


def _spdy_request(protocol: str) -> StreamRequest:
    return StreamRequest(
        "POST", [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", protocol)]
    )


class CommandSocket:
    """A command in a container, or its own process. Raises StatusError for a bad handshake."""

    def __init__(self, scope: Mapping[str, Any], options: StreamOptions) -> None:
        self.asked = _spdy_request(_COMMANDS_OVER_SPDY)
        wanted = Wanted(options.stdin, options.stdout, options.stderr, options.tty)
        self._channels = WebSocketChannels(scope, wanted)
        self._channels.takes_input = options.stdin
        self._channels.sizes = asyncio.Queue(_SIZES_AT_ONCE) if options.tty else None
        given = {STDIN: options.stdin, STDOUT: options.stdout, STDERR: options.stderr, RESIZE: options.tty}
        self._streams = {channel: 2 * n + 1 for n, channel in enumerate(c for c in _KINDS if given.get(c, True))}
        self._spdy = SpdyConnection()

    async def run(self, runtime: ByteStream) -> None:
        """From the handshake to the end."""
        channels = self._channels
        tasks: list[asyncio.Task[None]] = []
        try:
            await channels.open()
            for channel, stream in self._streams.items():
                runtime.writer.write(self._spdy.open(stream, {"streamtype": _KINDS[channel]}))
            reading = asyncio.create_task(channels.run())
            output = asyncio.create_task(self._pass_output(runtime))
            tasks = [reading, output, asyncio.create_task(self._pass_input(runtime))]
            tasks.append(asyncio.create_task(self._pass_sizes(runtime)))
            await asyncio.wait([reading, output], return_when=asyncio.FIRST_COMPLETED)
            if output.done():
                await channels.end()
                await asyncio.wait([reading], timeout=_CLOSE_SECONDS)
        except (OSError, TimeoutError):
            return
        finally:
            await cancelled(*tasks)
            await asyncio.gather(channels.close(), runtime.close())

    async def _pass_output(self, runtime: ByteStream) -> None:
        """What the runtime sends, until it has nothing more; a command whose end nobody tells has failed."""
        kinds = {stream: channel for channel, stream in self._streams.items()}
        is_told = False
        with contextlib.suppress(SpdyError, ConnectionError):
            while data := await runtime.reader.read(_PIECE_BYTES):
                for frame in self._spdy.receive(data):
                    if frame.type == PING:
                        runtime.writer.write(self._spdy.ping(frame.data))
                    elif frame.type == DATA and frame.data and frame.stream in kinds:
                        is_told |= kinds[frame.stream] == ERROR
                        await self._channels.write(kinds[frame.stream], frame.data)
        if not is_told:
            await self._channels.write(ERROR, orjson.dumps(_LOST.to_status()))

    async def _pass_input(self, runtime: ByteStream) -> None:
        with contextlib.suppress(OSError):
            while (data := await self._channels.stdin.get()) is not None:
                await self._send(runtime, STDIN, data)
            await self._send(runtime, STDIN, b"", fin=True)

    async def _pass_sizes(self, runtime: ByteStream) -> None:
        with contextlib.suppress(OSError):
            while (sizes := self._channels.sizes) is not None:
                await self._send(runtime, RESIZE, await sizes.get())

    async def _send(self, runtime: ByteStream, channel: int, data: bytes, *, fin: bool = False) -> None:
        for begin in range(0, len(data) or 1, _PIECE_BYTES):
            runtime.writer.write(self._spdy.data(self._streams[channel], data[begin : begin + _PIECE_BYTES], fin=fin))
            await runtime.writer.drain()


class TunnelSocket:
    """Ports of a pod: SPDY within a WebSocket. Raises StatusError for a bad handshake."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._scope = scope
        self._socket, offered = handshake(scope)
        chosen = next(one for one in offered if _is_tunnel(one))
        self.asked = _spdy_request(chosen.removeprefix(_TUNNEL))
        self._accepted = self._socket.send(AcceptConnection(subprotocol=chosen))

    async def run(self, runtime: ByteStream) -> None:
        """From the handshake to the end."""
        client: ByteStream = self._scope["extensions"][HIJACK]()
        client.writer.write(self._accepted)
        reading = asyncio.create_task(_unwrapped(self._socket, client, runtime))
        output = asyncio.create_task(_wrapped(self._socket, runtime, client))
        try:
            await asyncio.wait([reading, output], return_when=asyncio.FIRST_COMPLETED)
            if output.done():
                await asyncio.wait([reading], timeout=_CLOSE_SECONDS)
        finally:
            await cancelled(reading, output)
            await asyncio.gather(client.close(), runtime.close())


async def _unwrapped(socket: WSConnection, client: ByteStream, runtime: ByteStream) -> None:
    """Pass on what is within a client's messages, until it closes the WebSocket."""
    with contextlib.suppress(OSError, RemoteProtocolError, LocalProtocolError):
        while data := await client.reader.read(_PIECE_BYTES):
            socket.receive_data(data)
            for event in socket.events():
                if isinstance(event, BytesMessage):
                    runtime.writer.write(event.data)
                elif isinstance(event, Ping | CloseConnection):
                    client.writer.write(socket.send(event.response()))
                if isinstance(event, CloseConnection):
                    return
            await runtime.writer.drain()


async def _wrapped(socket: WSConnection, runtime: ByteStream, client: ByteStream) -> None:
    """Pass on what the runtime sends, and tell its end."""
    with contextlib.suppress(OSError, LocalProtocolError):
        while data := await runtime.reader.read(_PIECE_BYTES):
            client.writer.write(socket.send(BytesMessage(data)))
            await client.writer.drain()
        client.writer.write(socket.send(CloseConnection(code=1000)))


def socket_of(scope: Mapping[str, Any], options: StreamOptions | None) -> CommandSocket | TunnelSocket | None:
    """The WebSocket that ends here, if a request is for one; `options` of a command. Raises StatusError."""
    offered = subprotocols(scope["headers"])
    if options is not None:
        return CommandSocket(scope, options) if _COMMANDS in offered else None
    return TunnelSocket(scope) if any(map(_is_tunnel, offered)) else None
