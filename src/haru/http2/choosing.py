"""The protocol of a connection: the one that client and server agreed on while TLS began (ALPN, RFC 7301)."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

HTTP2 = "h2"
HTTP1 = "http/1.1"


def offer(context: ssl.SSLContext, *, http2: bool) -> None:
    """What the server takes, the best first."""
    context.set_alpn_protocols([HTTP2, HTTP1] if http2 else [HTTP1])


def by_agreement(http1: Any, http2: Any) -> Any:
    """A protocol for uvicorn that puts one of two in its place, as soon as it is known which."""

    class Agreed(asyncio.Protocol):
        def __init__(self, **given: Any) -> None:
            self._given = given

        def connection_made(self, transport: Any) -> None:
            tls = transport.get_extra_info("ssl_object")
            chosen = http2 if tls is not None and tls.selected_alpn_protocol() == HTTP2 else http1
            protocol = chosen(**self._given)
            transport.set_protocol(protocol)
            protocol.connection_made(transport)

    return Agreed
