"""TLS settings of a client: whom it trusts, and the certificate that it presents."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_RENEWED_SECONDS: Final = 60.0
_CERTIFICATE: Final = re.compile(r"^-----BEGIN CERTIFICATE-----.+?^-----END CERTIFICATE-----", re.MULTILINE | re.DOTALL)


class ResumingContext(ssl.SSLContext):
    """A client's context whose connections resume a session with their server, once one is known.

    A handshake without signature and certificates costs both sides half; a component opens dozens of connections.
    """

    def __init__(self, protocol: int) -> None:
        self._sessions: dict[str | None, ssl.SSLSession] = {}
        self._known_since: dict[str | None, float] = {}

    def remember(self, connection: ssl.SSLObject) -> None:
        """Have later connections to the same name resume the session of one whose server has answered."""
        name = connection.server_hostname
        # To copy a session costs as much as a request.
        if time.monotonic() - self._known_since.get(name, -_RENEWED_SECONDS) < _RENEWED_SECONDS:
            return
        session = connection.session
        if session is not None and session.has_ticket:
            self._sessions[name], self._known_since[name] = session, time.monotonic()

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Wrap a connection, which resumes the session that is known."""
        name = server_hostname.decode() if isinstance(server_hostname, bytes) else server_hostname
        known = session or self._sessions.get(name)
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, known)


def client_context(
    authorities: str = "", certificate: tuple[bytes, bytes] | None = None, insecure: bool = False
) -> ssl.SSLContext:
    """Return the context of a client that trusts `authorities` (PEM), or those of the system if there are none.

    Each certificate of `authorities` is trusted as it stands, also one that is no certificate authority or lacks the
    extensions of RFC 5280, as in Go: what works with kube-apiserver works here; what is no certificate is passed over,
    unless there is nothing else. `certificate` and its key are PEM. Raises ssl.SSLError.
    """
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    if authorities:
        _trust(context, authorities)
    else:
        context.load_default_certs()
    if log := os.environ.get("SSLKEYLOGFILE"):
        context.keylog_filename = log
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        present_certificate(context, *certificate)
    return context


def _trust(context: ssl.SSLContext, authorities: str) -> None:
    """Trust each certificate that can be read: bundles have comments in any language, and certificates of odd kinds."""
    for pem in _CERTIFICATE.findall(authorities):
        with suppress(ssl.SSLError, TypeError):
            context.load_verify_locations(cadata=pem)
    if not context.cert_store_stats()["x509"]:
        raise ssl.SSLError(1, "no certificate in PEM can be read")


def present_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Present a certificate (PEM) to servers. Raises ssl.SSLError if the two are no pair, or the key is encrypted."""
    with tempfile.TemporaryDirectory(prefix="haru-") as folder:  # the ssl module takes certificates only from files
        path = Path(folder, "client.pem")
        path.touch(mode=0o600)
        path.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(path, password=no_passphrase)


def no_passphrase() -> str:
    """Refuse an encrypted key: OpenSSL would ask for its passphrase on the terminal. Raises ssl.SSLError."""
    raise ssl.SSLError(1, "the private key is encrypted: store it without a passphrase")
