"""The streams of a remote command: standard input and outputs, the status, sizes of the terminal.

Over a WebSocket each message begins with the number of its channel; over SPDY each stream names its type in a header.
Source: the protocols `channel.k8s.io` to `v5.channel.k8s.io` of Kubernetes 1.36, as behaviour.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Pong, Request, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from haru.kube.errors import StatusError, bad_request_error
from haru.remote_command.spdy import DATA, GOAWAY, PING, SYN_STREAM, Frame, SpdyConnection, SpdyError
from haru.upgrade_proxy import HIJACK, ByteStream

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
_CLOSE: Final = 255
_TYPES: Final = ("stdin", "stdout", "stderr", "error", "resize")
_PROTOCOL: Final = "channel.k8s.io"
_SOCKET_PROTOCOLS: Final = (
    f"v5.{_PROTOCOL}", f"v4.{_PROTOCOL}", f"v4.base64.{_PROTOCOL}", _PROTOCOL, f"base64.{_PROTOCOL}",
)  # fmt: skip
_SPDY_PROTOCOLS: Final = (f"v4.{_PROTOCOL}", f"v3.{_PROTOCOL}", f"v2.{_PROTOCOL}", _PROTOCOL)
_SPDY_HEADER: Final = b"x-stream-protocol-version"
_PIECE_BYTES: Final = 64 * 1024
_WAITING_PIECES: Final = 64
_MOST_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_OPEN_SECONDS: Final = 30.0
_SEND_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which streams a client asks for."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class Channels(ABC):
    """The way to one client. `run` reads what it sends until it goes; `stdin` has its input, None at its end."""

    protocol = ""

    def __init__(self, scope: Mapping[str, Any], wanted: Wanted) -> None:
        self._scope, self.wanted = scope, wanted
        self.stdin: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING_PIECES)
        self.takes_input = False
        """Whether anybody reads `stdin`; otherwise input is dropped."""
        self.sizes: asyncio.Queue[bytes] | None = None
        """Sizes of the terminal as they come over a WebSocket, for who wants them."""
        self._stream: ByteStream | None = None

    @property
    def has_status(self) -> bool:
        """Whether the client reads a Status as JSON at the end, not only the text of a failure."""
        return self.protocol.startswith(("v4.", "v5."))

    def take_over(self, head: bytes) -> None:
        """Take the connection over and accept the protocol."""
        self._stream = self._scope["extensions"][HIJACK]()
        self._stream.writer.write(head)

    @abstractmethod
    async def open(self) -> None:
        """Accept the protocol, and wait for the streams that were asked for. Raises TimeoutError."""

    @abstractmethod
    async def run(self) -> None:
        """Read what the client sends until it goes."""

    @abstractmethod
    async def write(self, channel: int, data: bytes) -> None:
        """Send data. TimeoutError for a client that does not read."""

    @abstractmethod
    async def end(self) -> None:
        """Say that nothing more comes."""

    async def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            await self._stream.close()

    async def _take(self, data: bytes | None) -> None:
        """Pass input on, when its reader is ready for it."""
        if self.takes_input:
            await self.stdin.put(data)

    async def _send(self, data: bytes) -> None:
        assert self._stream is not None
        self._stream.writer.write(data)
        async with asyncio.timeout(_SEND_SECONDS):
            await self._stream.writer.drain()

    async def _read(self) -> bytes:
        assert self._stream is not None
        try:
            return await self._stream.reader.read(_PIECE_BYTES)
        except OSError:
            return b""


class WebSocketChannels(Channels):
    """Channels over a WebSocket. Raises StatusError for a bad handshake."""

    def __init__(self, scope: Mapping[str, Any], wanted: Wanted) -> None:
        super().__init__(scope, wanted)
        self._socket, subprotocols = handshake(scope)
        offered = [one for one in subprotocols if one.endswith(_PROTOCOL)]
        chosen = next((one for one in _SOCKET_PROTOCOLS if one in offered), None)
        if offered and chosen is None:
            raise bad_request_error(f"unsupported protocols {', '.join(offered)}: use {_SOCKET_PROTOCOLS[0]}")
        self.protocol = chosen or ""
        self._in_base64 = "base64" in self.protocol
        self._message = bytearray()
        self._accepted = self._socket.send(AcceptConnection(subprotocol=chosen))
        self._listens = asyncio.Event()

    async def open(self) -> None:
        """Accept, and greet a client of old protocols; one of v5 is greeted once it answers.

        kubectl up to 1.33 drops what comes before it knows its streams, which it makes while it reads. Real kubelets
        are slow enough for it: a runtime starts a process first.
        """
        self.take_over(self._accepted)
        if self.protocol.startswith("v5."):
            await self._send(self._socket.send(Ping()))
        else:
            self._listens.set()
            await self._greet()

    async def _greet(self) -> None:
        """Tell the client by an empty message on the first output that it is there.

        One on the channel of the status would be the end of the command to the official client for Java.
        """
        await self.write(STDOUT if self.wanted.stdout else STDERR if self.wanted.stderr else ERROR, b"")

    async def _until_it_listens(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._listens.wait()
        self._listens.set()

    async def run(self) -> None:
        """Read messages until the client goes."""
        try:
            while data := await self._read():
                self._socket.receive_data(data)
                for event in self._socket.events():
                    if isinstance(event, Ping | CloseConnection):
                        await self._send(self._socket.send(event.response()))
                    if isinstance(event, CloseConnection):
                        return
                    await self._heard(event)
        except (RemoteProtocolError, LocalProtocolError, ValueError, OSError, TimeoutError):
            return

    async def _heard(self, event: Event) -> None:
        if isinstance(event, Pong) and not self._listens.is_set():
            await asyncio.sleep(_SETTLE_SECONDS)
            self._listens.set()
            await self._greet()
        if not isinstance(event, BytesMessage | TextMessage):
            return
        self._message += event.data.encode() if isinstance(event, TextMessage) else event.data
        if len(self._message) > _MOST_MESSAGE_BYTES:
            raise ValueError("the message is too long")
        if not event.message_finished:
            return
        message = bytes(self._message)
        self._message.clear()
        if self._in_base64 and message:
            message = bytes([message[0] - ord("0")]) + base64.b64decode(message[1:])
        if message[:1] == bytes([STDIN]) and len(message) > 1:
            await self._take(message[1:])
        elif message[:2] == bytes([_CLOSE, STDIN]):
            await self._take(None)
        elif message[:1] == bytes([RESIZE]) and self.sizes is not None:
            await self.sizes.put(message[1:])

    async def write(self, channel: int, data: bytes) -> None:
        """Send one message."""
        await self._until_it_listens()
        event: Event = BytesMessage(bytes([channel]) + data)
        if self._in_base64:
            event = TextMessage(f"{channel}{base64.b64encode(data).decode()}")
        try:
            frame = self._socket.send(event)
        except LocalProtocolError as error:
            raise ConnectionError("the client has closed the WebSocket") from error
        await self._send(frame)

    async def end(self) -> None:
        """Close the WebSocket."""
        if self._socket.state.name == "OPEN":
            await self._send(self._socket.send(CloseConnection(code=1000)))


class SpdyChannels(Channels):
    """Channels over SPDY/3.1. Raises StatusError for a client without a common protocol."""

    def __init__(self, scope: Mapping[str, Any], wanted: Wanted) -> None:
        super().__init__(scope, wanted)
        given = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == _SPDY_HEADER]
        offered = [one.strip() for value in given for one in value.split(",")]
        chosen = next((one for one in offered if one in _SPDY_PROTOCOLS), None)
        if offered and chosen is None:
            listed = f"supported are {', '.join(_SPDY_PROTOCOLS)}"
            raise StatusError(403, "Forbidden", f"unable to upgrade: no protocol of {', '.join(offered)} is: {listed}")
        self.protocol = chosen or _PROTOCOL
        self._negotiated = bool(offered)
        self._spdy = SpdyConnection()
        self._streams: dict[str, int] = {}
        self._waiting: list[Frame] = []

    async def open(self) -> None:
        """Accept, and wait until the client has opened all its streams."""
        lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: SPDY/3.1"]
        if self._negotiated:
            lines.append(f"X-Stream-Protocol-Version: {self.protocol}")
        self.take_over("\r\n".join([*lines, "", ""]).encode())
        needed = set(self._needed())
        async with asyncio.timeout(_OPEN_SECONDS):
            while not needed <= self._streams.keys():
                data = await self._read()
                if not data:
                    raise ConnectionError("the client has gone")
                await self._receive(data)

    def _needed(self) -> Sequence[str]:
        wanted = self.wanted
        given = (wanted.stdin, wanted.stdout, wanted.stderr and not wanted.tty, True)
        return [name for name, needed in zip(_TYPES, given, strict=False) if needed]

    async def run(self) -> None:
        """Read frames until the client goes."""
        try:
            while data := await self._read():
                if not await self._receive(data):
                    return
        except (SpdyError, OSError, TimeoutError):
            return

    async def _receive(self, data: bytes) -> bool:
        """Take frames in; whether more may come."""
        for frame in self._spdy.receive(data):
            if frame.type == SYN_STREAM:
                kind = frame.headers.get("streamtype", "")
                self._streams[kind] = frame.stream
                await self._send(self._spdy.reply(frame.stream))
            elif frame.type == PING:
                await self._send(self._spdy.ping(frame.data))
            elif frame.type == GOAWAY:
                return False
            elif frame.type == DATA and frame.stream == self._streams.get("stdin") and frame.data:
                await self._take(frame.data)
            if frame.fin and frame.stream == self._streams.get("stdin"):
                await self._take(None)
        return True

    async def write(self, channel: int, data: bytes) -> None:
        """Send data on the stream of a channel, if the client has opened it."""
        stream = self._streams.get(_TYPES[channel])
        for begin in range(0, len(data), _PIECE_BYTES):
            if stream is not None:
                await self._send(self._spdy.data(stream, data[begin : begin + _PIECE_BYTES]))

    async def end(self) -> None:
        """End all streams, and let the client close the connection."""
        for kind in ("stdout", "stderr", "error", "resize", "stdin"):
            if kind in self._streams:
                await self._send(self._spdy.data(self._streams[kind], b"", fin=True))
        await asyncio.sleep(0)


def handshake(scope: Mapping[str, Any]) -> tuple[WSConnection, list[str]]:
    """The WebSocket that a client asks for, and the subprotocols that it offers. Raises StatusError."""
    socket = WSConnection(ConnectionType.SERVER)
    try:
        socket.initiate_upgrade_connection(list(scope["headers"]), scope["path"])
        (asked,) = socket.events()
    except RemoteProtocolError as error:
        raise bad_request_error(f"no WebSocket: {error}") from None
    assert isinstance(asked, Request)
    return socket, asked.subprotocols


def channels_for(scope: Mapping[str, Any], wanted: Wanted) -> Channels:
    """The channels in the protocol that a client asks for. Raises StatusError."""
    if HIJACK not in (scope.get("extensions") or {}):
        raise bad_request_error("a connection in this process can not be upgraded: use the server's socket")
    if not (wanted.stdin or wanted.stdout or wanted.stderr):
        raise bad_request_error("you must specify at least 1 of stdin, stdout, stderr")
    protocol = next((value for name, value in scope["headers"] if name == b"upgrade"), b"").decode("latin-1").lower()
    if protocol == "websocket":
        return WebSocketChannels(scope, wanted)
    if protocol == "spdy/3.1":
        return SpdyChannels(scope, wanted)
    raise bad_request_error(f'unable to upgrade: protocol "{protocol[:40]}": use a WebSocket or SPDY/3.1')
