"""Keys out of files: one that signs, and those that check what it or an earlier one has signed."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from haru.errors import InputError
from haru.jose import JoseError, PublicKey, encode, public_key, sign

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.S)
_REMEDY = "make one with openssl ecparam -name prime256v1 -genkey -noout -out FILE"


class KeyFileError(InputError):
    """A PEM file without a key that can be used; the text says why, not what is in it."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key and its public half."""

    private: Any
    public: PublicKey

    def sign(self, data: bytes) -> bytes:
        """A signature as tokens have it."""
        return sign(self.private, self.public.algorithm, data)


def key_id_of(der: bytes) -> str:
    """The id that 1.36 gives to a key in a file: the digest of its public half."""
    return encode(hashlib.sha256(der).digest())


def load_signing_key(pem: bytes) -> SigningKey:
    """The private key of a PEM: RSA, or on P-256, P-384 or P-521. Raises `KeyFileError`."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private: Any = load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        raise KeyFileError(f"not a private key in PEM; {_REMEDY}") from None
    return SigningKey(private, _named(private.public_key()))


def load_verification_keys(pem: bytes) -> list[PublicKey]:
    """All keys of a PEM file: public ones, private ones (their public half) and those of certificates.

    Raises `KeyFileError`.
    """
    found = [_named(_public(match[1].decode(), match[0])) for match in _BLOCK.finditer(pem) if match[1] != _PARAMETERS]
    if not found:
        raise KeyFileError("no key in PEM in it: name a file with public keys, or with the private one")
    return found


_PARAMETERS = b"EC PARAMETERS"


def _public(label: str, block: bytes) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    try:
        if label.endswith("PRIVATE KEY"):
            return load_pem_private_key(block, None).public_key()
        if label.endswith("PUBLIC KEY"):
            return load_pem_public_key(block)
        if label == "CERTIFICATE":
            return load_pem_x509_certificate(block).public_key()
    except (ValueError, TypeError):
        pass
    raise KeyFileError(f"a block {label} that is no key")


def _named(key: Any) -> PublicKey:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        return public_key(key_id_of(der), key)
    except JoseError as error:
        raise KeyFileError(f"its key {error}") from None
