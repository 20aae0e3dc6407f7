"""TLS settings of a client: whom it trusts, and the certificate that it presents."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


def client_context(
    authorities: str = "", certificate: tuple[bytes, bytes] | None = None, insecure: bool = False
) -> ssl.SSLContext:
    """Return the context of a client that trusts `authorities` (PEM), or those of the system if there are none.

    Each certificate of `authorities` is trusted as it stands, also one that is no certificate authority or lacks the
    extensions of RFC 5280, as in Go: what works with kube-apiserver works here. `certificate` and its key are PEM.
    Raises ssl.SSLError.
    """
    context = ssl.create_default_context(cadata=authorities or None)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        present_certificate(context, *certificate)
    return context


def present_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Present a certificate (PEM) to servers. Raises ssl.SSLError if the two are no pair."""
    with tempfile.TemporaryDirectory(prefix="haru-") as folder:  # the ssl module takes certificates only from files
        path = Path(folder, "client.pem")
        path.touch(mode=0o600)
        path.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(path)
