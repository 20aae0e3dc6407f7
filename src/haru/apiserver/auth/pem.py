"""Certificates and keys in files: read, and found to be usable before anybody is served with them.

A file that is not what it should be is named with what is wrong; the TLS library would only give a number.
`cryptography` is imported when it is needed.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from haru.apiserver.auth.certificates import Pair


class PemError(ValueError):
    """A file can not be used; `file` is the one."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"{file}: {problem}")
        self.file = file


def read_pair(certificate: Path, key: Path) -> Pair:
    """A certificate (perhaps followed by those that signed it) and its key. Raises `PemError`."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    def shown(public: Any) -> bytes:
        der: bytes = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return der

    pem, first = _certificates(certificate)
    private, secret = _key(key)
    if shown(first.public_key()) != shown(secret.public_key()):
        raise PemError(key, f"is not the key of {certificate}")
    return Pair(pem, private)


def read_certificates(path: Path) -> bytes:
    """Certificates. Raises `PemError`."""
    return _certificates(path)[0]


def read_key(path: Path) -> bytes:
    """A private key. Raises `PemError`."""
    return _key(path)[0]


def is_valid_at(certificate: bytes, moment: datetime) -> bool:
    """Whether a certificate in PEM has not ended at a moment."""
    from cryptography import x509

    return moment < x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def is_issued_by(certificate: bytes, authority: bytes) -> bool:
    """Whether an authority has signed a certificate; both PEM."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        issuer = x509.load_pem_x509_certificate(authority)
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificates(path: Path) -> tuple[bytes, Any]:
    from cryptography import x509

    data = _bytes(path)
    try:
        return data, x509.load_pem_x509_certificates(data)[0]
    except ValueError:
        raise PemError(path, "holds no certificate in PEM, or a damaged one") from None


def _key(path: Path) -> tuple[bytes, Any]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _bytes(path)
    try:
        return data, load_pem_private_key(data, None)
    except TypeError:
        raise PemError(path, "holds a key that a password protects") from None
    except (ValueError, UnsupportedAlgorithm):
        raise PemError(path, "holds no private key in PEM, or a damaged one") from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PemError(path, str(error.strerror)) from None
