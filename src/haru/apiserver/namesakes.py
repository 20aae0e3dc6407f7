"""Certificates that an authority of the same name has issued.

OpenSSL takes a certificate whose subject is its issuer for one that has signed itself, where no key identifiers tell
the two apart, and refuses it; Go looks at the signature. Operators make such certificates for their webhooks.
"""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from haru.tls import client_context

if TYPE_CHECKING:
    import aiohttp
    from cryptography.x509 import Certificate

_SELF_SIGNED: Final = 18
"""OpenSSL's X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT."""


async def trust_namesake(
    context: ssl.SSLContext, refusal: aiohttp.ClientConnectorCertificateError, server_name: str
) -> bool:
    """Have a context trust the certificate that it refused if one of its authorities issued it; whether one did.

    What else a certificate has to be (valid now, for this name and for servers) is left to the next handshake.
    """
    if getattr(refusal.certificate_error, "verify_code", 0) != _SELF_SIGNED:
        return False
    from cryptography import x509

    shown = await _shown_certificate(refusal.host, refusal.port or 443, server_name)
    certificate = x509.load_der_x509_certificate(shown)
    authorities = map(x509.load_der_x509_certificate, context.get_ca_certs(binary_form=True))
    if not any(_has_issued(authority, certificate, datetime.now(UTC)) for authority in authorities):
        return False
    context.load_verify_locations(cadata=shown)
    return True


async def _shown_certificate(host: str, port: int, server_name: str) -> bytes:
    """The certificate of a server, which nobody has verified. Raises OSError."""
    tls = client_context(insecure=True)
    _, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=server_name)
    try:
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
    return shown


def _has_issued(authority: Certificate, certificate: Certificate, now: datetime) -> bool:
    """Whether an authority that may has signed a certificate; one that is bound to some names is asked about none."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
        extensions = {type(extension.value): extension.value for extension in authority.extensions}
    except (InvalidSignature, TypeError, ValueError):
        return False
    constraints, usage = extensions.get(x509.BasicConstraints), extensions.get(x509.KeyUsage)
    may_sign = isinstance(constraints, x509.BasicConstraints) and constraints.ca
    may_sign &= not isinstance(usage, x509.KeyUsage) or usage.key_cert_sign
    in_time = authority.not_valid_before_utc <= now <= authority.not_valid_after_utc
    return may_sign and in_time and x509.NameConstraints not in extensions
