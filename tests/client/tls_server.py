"""A server of HTTPS that asks for client certificates, and certificates for both sides."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


@asynccontextmanager
async def served(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]], tls: ssl.SSLContext
) -> AsyncIterator[str]:
    """The URL of a server that answers every request so."""
    runner = web.AppRunner(web.Application())
    runner.app.router.add_route("*", "/{tail:.*}", handle)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"https://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


def certificate(name: str, issuer: Pair | None = None, *, ca: bool = False) -> Pair:
    """(certificate, key) for `name`, both as objects, signed by `issuer` or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer, signing_key = issuer or (None, key)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.subject if signer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    return builder.sign(signing_key, hashes.SHA256()), key


def pem(pair: Pair) -> tuple[bytes, bytes]:
    cert, key = pair
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    return cert.public_bytes(serialization.Encoding.PEM), key.private_bytes(serialization.Encoding.PEM, form, plain)


def server_tls(folder: Path, authority: Pair, verify: ssl.VerifyMode = ssl.CERT_REQUIRED) -> ssl.SSLContext:
    """The settings of a server at 127.0.0.1 that takes certificates of this authority, which signed its own, too."""
    for name, data in zip(("cert", "key"), pem(certificate("server", authority)), strict=True):
        (folder / name).write_bytes(data)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_verify_locations(cadata=pem(authority)[0].decode())
    tls.load_cert_chain(folder / "cert", folder / "key")
    tls.verify_mode = verify
    return tls


def subject_of(request: web.Request) -> str:
    """The common name of the certificate that a client presented; empty if it presented none."""
    found: Any = request.transport.get_extra_info("peercert") if request.transport is not None else None
    return str(found["subject"][0][0][1]) if found else ""
