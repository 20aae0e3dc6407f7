"""A connection of the API server: it knows whom the client's certificate names, and which authority signed it."""

from __future__ import annotations

import ssl
from typing import Any

from haru.apiserver.authentication import PEER
from haru.apiserver.peers.arriving import fingerprint
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


def protocol_class() -> Any:
    """The class of one connection."""

    class Connection(connection_class()):  # type: ignore[misc]
        _anchor: str | None = None

        def told(self) -> dict[str, Any]:
            subject = (self.transport.get_extra_info("peercert") or {}).get("subject")
            if not subject:
                return {}
            names = [value for part in subject for key, value in part if key == "commonName"]
            organizations = [value for part in subject for key, value in part if key == "organizationName"]
            return {PEER: {"names": names, "organizations": organizations, "anchor": self._anchor_of_chain()}}

        def _anchor_of_chain(self) -> str:
            """The authority that the client's certificate leads to, found out once for a connection."""
            if self._anchor is None:
                self._anchor = anchor_of(self.transport.get_extra_info("ssl_object"))
            return self._anchor

    return Connection
