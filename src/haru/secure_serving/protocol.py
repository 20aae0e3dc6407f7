"""A connection over TLS: it knows the client's certificate."""

from __future__ import annotations

from functools import cache
from typing import Any

from haru.serving import connection_class

CERTIFICATE = "haru.certificate"
"""The ASGI extension with the client's verified certificate, DER."""


@cache
def protocol_class() -> Any:
    """The class of one connection."""

    class Connection(connection_class()):  # type: ignore[misc]
        def extensions(self) -> dict[str, Any]:
            tls = self.transport.get_extra_info("ssl_object")
            return {CERTIFICATE: tls.getpeercert(True) if tls is not None else None}

    return Connection
