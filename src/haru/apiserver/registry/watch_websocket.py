"""A watch over a WebSocket: each event is a message, as browsers and fabric8's Java client want it.

Source: the watch server of Kubernetes (text messages for JSON, binary ones for protobuf, with no length before them).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Request,
    TextMessage,
)
from wsproto.utilities import RemoteProtocolError

from haru.apiserver.registry.watch_encoder import SEND_SECONDS, Piece
from haru.apiserver.request import http
from haru.kube.errors import bad_request_error
from haru.upgrade_proxy import HIJACK, ByteStream

_PIECE_BYTES = 64 * 1024
_LENGTH_BYTES = 4


class WebSocketWriter:
    """The way to one client over the connection that its request came on. Raises StatusError for a bad handshake.

    With `known` subprotocols the first that the client asks for of these is spoken; else the one that it asks for.
    """

    def __init__(self, request: http.Request, *, binary: bool, known: Sequence[str] = ()) -> None:
        self._request = request
        self._message: type[TextMessage | BytesMessage] = BytesMessage if binary else TextMessage
        self._socket = WSConnection(ConnectionType.SERVER)
        try:
            self._socket.initiate_upgrade_connection(list(request.scope["headers"]), request.path)
            (asked,) = self._socket.events()
        except RemoteProtocolError as error:
            raise bad_request_error(f"no WebSocket: {error}") from None
        if not isinstance(asked, Request) or (len(asked.subprotocols) > 1 and not known):
            raise bad_request_error("no WebSocket: at most one subprotocol can be asked for")
        self.protocol = next((each for each in asked.subprotocols if not known or each in known), None)
        if asked.subprotocols and self.protocol is None:
            raise bad_request_error(f"no WebSocket: the subprotocols that are spoken are {', '.join(known)}")
        self._accepted = self._socket.send(AcceptConnection(subprotocol=self.protocol))
        self._stream: ByteStream | None = None

    def open(self) -> None:
        """Take the connection over and accept the handshake."""
        self._stream = self._request.scope["extensions"][HIJACK]()
        self._stream.writer.write(self._accepted)

    async def send(self, pieces: Iterable[Piece]) -> None:
        """Send each event of some pieces. TimeoutError for a client that does not read."""
        for piece in pieces:
            await self._write(*(self._frame(message) for message in self._messages(piece.lines)))

    async def tell(self, message: bytes, *, text: bool) -> None:
        """Send one message. TimeoutError for a client that does not read."""
        await self._write(TextMessage(message.decode()) if text else BytesMessage(message))

    async def gone(self) -> None:
        """Wait until the client ends the connection; answer its pings, and ignore what it says."""
        assert self._stream is not None
        try:
            while data := await self._stream.reader.read(_PIECE_BYTES):
                self._socket.receive_data(data)
                for event in self._socket.events():
                    if isinstance(event, Ping | CloseConnection):
                        await self._write(event.response())
                    if isinstance(event, CloseConnection):
                        return
        except (RemoteProtocolError, OSError, TimeoutError):
            return

    async def close(self) -> None:
        """Say that nothing more comes, and close the connection."""
        assert self._stream is not None
        try:
            if self._socket.state.name == "OPEN":
                await self._write(CloseConnection(code=1000))
        except (OSError, TimeoutError):
            pass
        finally:
            await self._stream.close()

    def _frame(self, message: bytes) -> Event:
        return BytesMessage(message) if self._message is BytesMessage else TextMessage(message.decode())

    def _messages(self, lines: bytes) -> Iterator[bytes]:
        if self._message is TextMessage:
            yield from lines.splitlines(keepends=True)
            return
        while lines:
            end = _LENGTH_BYTES + int.from_bytes(lines[:_LENGTH_BYTES], "big")
            yield lines[_LENGTH_BYTES:end]
            lines = lines[end:]

    async def _write(self, *events: Event) -> None:
        assert self._stream is not None
        self._stream.writer.write(b"".join(map(self._socket.send, events)))
        async with asyncio.timeout(SEND_SECONDS):
            await self._stream.writer.drain()
