"""JSON Web Tokens of ServiceAccounts: canonical base64url, three header members, four algorithms.

Refuses padding, stray bits, duplicate members, header members such as `jku` or `crit`, and an algorithm that is not
the key's own: PyJWT, which makes and verifies the signatures, lets most of that through (ADR 15). PyJWT and
`cryptography` are slow to load and imported with the first key.
Source: RFC 7515, 7518 and 8725.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]

TOKEN_BYTES = 64 * 1024
"""Longer tokens are refused unread."""
LEAST_RSA_BITS = 2048
_ALPHABET = re.compile(r"[A-Za-z0-9_-]*").fullmatch
_MEMBERS = {"alg", "kid", "typ"}
_ALGORITHM_OF_CURVE = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class JoseError(ValueError):
    """Refuses a token, a header or a key; the text never repeats it."""


@dataclass(frozen=True, slots=True, eq=False)
class PublicKey:
    """A key that verifies tokens, and the only algorithm it verifies."""

    key_id: str
    algorithm: str
    der: bytes
    key: Any
    excluded: bool = False
    """Hidden from discovery, and not for new tokens."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A decoded token whose signature has not been verified."""

    algorithm: str
    key_id: str
    payload: Obj
    signed: bytes
    signature: bytes


def encode(data: bytes) -> str:
    """Encode as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Decode canonical base64url without padding. Raises `JoseError`."""
    if not _ALPHABET(text):
        raise JoseError("is not base64url without padding")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise JoseError("is not base64url without padding") from None
    # The last character may carry bits that belong to no byte: they have to be zero.
    if len(text) % 4 and encode(data[-(len(data) % 3) :])[-1] != text[-1]:
        raise JoseError("has bits after its end")
    return data


def read_object(text: str, what: str) -> Obj:
    """Decode a JSON object without duplicate members from base64url. Raises `JoseError`."""
    try:
        value = json.loads(decode(text), object_pairs_hook=_once)
    except JoseError as error:
        raise JoseError(f"the {what} {error}") from None
    except (ValueError, RecursionError):
        raise JoseError(f"the {what} is no JSON") from None
    if not isinstance(value, dict):
        raise JoseError(f"the {what} is no JSON object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> Obj:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JoseError("has a member twice")
    return found


def read_header(text: str) -> Obj:
    """Decode a header: strings in `alg`, `kid` and `typ`, no other members. Raises `JoseError`."""
    header = read_object(text, "header")
    for name, value in header.items():
        if name not in _MEMBERS:
            raise JoseError(f"the header has a member other than {', '.join(sorted(_MEMBERS))}")
        if not isinstance(value, str):
            raise JoseError(f"{name} in the header is no text")
    return header


def split(token: str) -> Parts:
    """Decode a token without verifying it. Raises `JoseError` for what is no token."""
    if len(token) > TOKEN_BYTES or token.count(".") != 2:
        raise JoseError("is no token")
    head, payload, signature = token.split(".")
    header = read_header(head)
    if header.get("typ", "JWT").upper() != "JWT":
        raise JoseError("typ in the header is not JWT")
    signed = f"{head}.{payload}".encode()
    return Parts(
        header.get("alg", ""), header.get("kid", ""), read_object(payload, "payload"), signed, decode(signature)
    )


def public_key(key_id: str, key: Any, *, excluded: bool = False) -> PublicKey:
    """Wrap a public key of `cryptography`. Raises `JoseError` for one that `algorithm_of` refuses."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    algorithm = algorithm_of(key)
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(key_id, algorithm, der, key, excluded)


def algorithm_of(key: Any) -> str:
    """The algorithm of a public key: RSA of 2,048 bits or more, or one of three curves. Raises `JoseError`."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < LEAST_RSA_BITS:
            raise JoseError(f"is an RSA key of {key.key_size} bits, {LEAST_RSA_BITS} is the least")
        return "RS256"
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _ALGORITHM_OF_CURVE:
        return _ALGORITHM_OF_CURVE[key.curve.name]
    raise JoseError("is neither an RSA key nor one on P-256, P-384 or P-521")


def is_signed_by(key: PublicKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    """Whether a signature was made by this key, with the key's own algorithm."""
    return algorithm == key.algorithm and bool(_pyjwt(algorithm).verify(signed, key.key, signature))


def sign(private: Any, algorithm: str, data: bytes) -> bytes:
    """A signature in the form of tokens: for an elliptic curve r and s, one after the other."""
    signature: bytes = _pyjwt(algorithm).sign(data, private)
    return signature


def jwk(key: PublicKey) -> Obj:
    """The key as a member of a JSON Web Key Set (RFC 7517)."""
    members = _pyjwt(key.algorithm).to_jwk(key.key, as_dict=True)
    members.pop("key_ops", None)
    return {"use": "sig", "kid": key.key_id, "alg": key.algorithm, **members}


def _pyjwt(algorithm: str) -> Any:
    import jwt

    return jwt.get_algorithm_by_name(algorithm)
