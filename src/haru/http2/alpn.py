"""Choose the protocol of a connection: what client and server agree on in the TLS handshake (ALPN, RFC 7301)."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

HTTP2 = "h2"
HTTP1 = "http/1.1"


def offer_protocols(context: ssl.SSLContext, *, http2: bool) -> None:
    """Offer HTTP/1.1, and HTTP/2 before it."""
    context.set_alpn_protocols([HTTP2, HTTP1] if http2 else [HTTP1])


def negotiated_protocol(http1: Any, http2: Any) -> Any:
    """Make a protocol class for uvicorn that becomes one of two when the handshake is over."""

    class Negotiated(asyncio.Protocol):
        def __init__(self, **arguments: Any) -> None:
            self._arguments = arguments

        def connection_made(self, transport: Any) -> None:
            tls = transport.get_extra_info("ssl_object")
            chosen = http2 if tls is not None and tls.selected_alpn_protocol() == HTTP2 else http1
            protocol = chosen(**self._arguments)
            transport.set_protocol(protocol)
            protocol.connection_made(transport)

    return Negotiated
