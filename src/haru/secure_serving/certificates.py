"""A serving certificate for who was given none: signed by itself, kept for the next start or in memory alone.

`cryptography` is imported when it is needed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from haru.files import write_whole

VALID_FOR = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=30)
_BACKDATED = timedelta(minutes=5)
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def ensure_certificate(
    directory: Path, pair: str, name: str, addresses: Sequence[str], now: datetime
) -> tuple[Path, Path]:
    """Create or renew `PAIR.crt` and `PAIR.key` for a host's name and addresses. Raises OSError."""
    certificate, key = directory / f"{pair}.crt", directory / f"{pair}.key"
    if not _serves(certificate, key, now):
        made, made_key = self_signed(name, addresses, now)
        write_whole(key, made_key, parents=True)
        write_whole(certificate, made)
    return certificate, key


def certificates_in(bundle: bytes) -> list[bytes]:
    """Return each certificate of a bundle in PEM."""
    return _PEM.findall(bundle)


def _serves(certificate: Path, key: Path, now: datetime) -> bool:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        return key.stat().st_size > 0 and now < found.not_valid_after_utc - _RENEW_BEFORE
    except (OSError, ValueError):
        return False


def self_signed(name: str, addresses: Sequence[str], now: datetime) -> tuple[bytes, bytes]:
    """A certificate and its key, PEM, for a host's name and addresses, or further names."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}@{int(now.timestamp())}"[:64])])
    names: list[Any] = [x509.DNSName(name)]
    names += [_alternative(address) for address in dict.fromkeys(addresses)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), secret


def _alternative(text: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
