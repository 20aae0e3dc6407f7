"""uvicorn's HTTP protocol with bounds on the head of a request, the client's certificate, and a way to take a
connection over. uvicorn and httptools are imported when it is made.
"""

from __future__ import annotations

import asyncio
from typing import Any

from haru.tunnel import HIJACK, take_over

CERTIFICATE = "haru.certificate"
"""The ASGI extension with the client's verified certificate, DER."""
ABORT = "haru.abort"
HEAD_BYTES = 1024 * 1024
HEAD_SECONDS = 32.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def protocol_class() -> Any:
    """The class of one connection."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Connection(HttpToolsProtocol):
        _in_head = True
        _head_bytes = 0
        _patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait_for_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_is_there()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            if not self._in_head:
                return
            if self._head_bytes > HEAD_BYTES:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
            elif self._patience is None:
                self._wait_for_head()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_head, self._head_bytes = True, 0
            if self.transport is None:
                return
            tls = self.transport.get_extra_info("ssl_object")
            extensions: dict[str, Any] = {
                ABORT: self.transport.abort,
                HIJACK: lambda: take_over(self),
                CERTIFICATE: tls.getpeercert(True) if tls is not None else None,
            }
            self.scope["extensions"] = extensions

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._head_is_there()
            super().on_headers_complete()

        def _unsupported_upgrade_warning(self) -> None:
            """The application sees to it."""

        def _wait_for_head(self) -> None:
            """A head that comes drop by drop, or not at all, does not hold the connection for ever."""
            self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

        def _head_is_there(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

    return Connection
