"""A connection of the API server: it knows whom the client's certificate names, and which authority signed it."""

from __future__ import annotations

import ssl
from typing import Any

from haru.apiserver.auth.authentication import PEER
from haru.apiserver.peers.request_header import fingerprint
from haru.http2.alpn import negotiated_protocol
from haru.serving import connection_class


def anchor_of(tls: Any) -> str:
    """What the authority at the end of the verified chain is recognized by; empty without a chain."""
    # Public from Python 3.13 on, where the certificates come as bytes.
    chain = getattr(tls, "get_verified_chain", None) or tls._sslobj.get_verified_chain
    certificates = chain()
    if not certificates:
        return ""
    last = certificates[-1]
    return fingerprint(last if isinstance(last, bytes) else ssl.PEM_cert_to_DER_cert(last.public_bytes()))


def peer_of(transport: Any) -> dict[str, Any]:
    """The ASGI extension with the client's verified certificate; empty without one."""
    subject = (transport.get_extra_info("peercert") or {}).get("subject")
    if not subject:
        return {}
    names = [value for part in subject for key, value in part if key == "commonName"]
    organizations = [value for part in subject for key, value in part if key == "organizationName"]
    anchor = anchor_of(transport.get_extra_info("ssl_object"))
    return {PEER: {"names": names, "organizations": organizations, "anchor": anchor}}


def protocol_class(max_streams: int) -> Any:
    """The class of one connection: of HTTP/1.1, or, with room for some streams, of the one that is agreed on."""

    class Connection(connection_class()):  # type: ignore[misc]
        _peer: dict[str, Any] | None = None

        def extensions(self) -> dict[str, Any]:
            if self._peer is None:
                self._peer = peer_of(self.transport)
            return self._peer

    return negotiated_protocol(Connection, _http2_class(max_streams)) if max_streams else Connection


def _http2_class(streams: int) -> Any:
    from haru.http2.connection import Connection

    class ManyStreams(Connection):
        max_streams = streams

        def extensions(self) -> dict[str, Any]:
            return peer_of(self.transport)

    return ManyStreams
