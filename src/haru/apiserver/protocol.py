"""uvicorn's HTTP protocol, with bounds on the head of a request, the certificate that the client showed, and a way to
cut the client off. uvicorn and httptools are imported when it is made.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from haru.apiserver.authentication import ABORT, PEER
from haru.apiserver.peers.arriving import fingerprint
from haru.tunnel import HIJACK, take_over

HEAD_BYTES = 1024 * 1024
"""A request line with its headers may have as much, as in Go's server."""
HEAD_SECONDS = 32.0
"""So long a client may take for the head of a request, as for kube-apiserver."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def anchor_of(tls: Any) -> str:
    """What the authority at the end of the verified chain is recognized by; empty without a chain."""
    # Public from Python 3.13 on, where the certificates come as bytes.
    chain = getattr(tls, "get_verified_chain", None) or tls._sslobj.get_verified_chain
    certificates = chain()
    if not certificates:
        return ""
    last = certificates[-1]
    return fingerprint(last if isinstance(last, bytes) else ssl.PEM_cert_to_DER_cert(last.public_bytes()))


def protocol_class() -> Any:
    """The class of one connection."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Connection(HttpToolsProtocol):
        _in_head = True
        _head_bytes = 0
        _anchor: str | None = None
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
            extensions: dict[str, Any] = {**(self.scope.get("extensions") or {}), ABORT: self.transport.abort}
            extensions[HIJACK] = lambda: take_over(self)
            subject = (self.transport.get_extra_info("peercert") or {}).get("subject")
            if subject:
                extensions[PEER] = {
                    "names": [value for part in subject for key, value in part if key == "commonName"],
                    "organizations": [value for part in subject for key, value in part if key == "organizationName"],
                    "anchor": self._anchor_of_chain(),
                }
            self.scope["extensions"] = extensions

        def _anchor_of_chain(self) -> str:
            """The authority that the client's certificate leads to, found out once for a connection."""
            if self._anchor is None:
                self._anchor = anchor_of(self.transport.get_extra_info("ssl_object"))
            return self._anchor

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
