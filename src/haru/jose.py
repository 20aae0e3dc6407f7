"""JSON Web Tokens as ServiceAccounts have them: base64url to the letter, few header members, four algorithms.

What is not expected is refused: padding, bits that say nothing, members that are there twice, members such as `jku` or
`crit`, an algorithm that is not the key's own. `cryptography` is imported with the first key: it is slow to load.
Source: RFC 7515, 7518 and 8725.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Obj = dict[str, Any]

TOKEN_BYTES = 64 * 1024
"""Longer ones are none of ours."""
LEAST_RSA_BITS = 2048
_ALPHABET = re.compile(r"[A-Za-z0-9_-]*").fullmatch
_MEMBERS = {"alg", "kid", "typ"}
_CURVES = {"secp256r1": ("ES256", 32), "secp384r1": ("ES384", 48), "secp521r1": ("ES512", 66)}


class JoseError(ValueError):
    """A token, a header or a key that is not used; the text never repeats it."""


@dataclass(frozen=True, slots=True, eq=False)
class PublicKey:
    """A key that checks tokens, with the only algorithm that goes with it."""

    key_id: str
    algorithm: str
    der: bytes
    key: Any
    excluded: bool = False
    """Hidden from discovery, and not for new tokens."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A token that has been taken apart, and in which nothing has been believed yet."""

    algorithm: str
    key_id: str
    payload: Obj
    signed: bytes
    signature: bytes


def encode(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """The bytes of base64url without padding, in the only form that it has. Raises `JoseError`."""
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
    """A JSON object in base64url, each member of which is there once. Raises `JoseError`."""
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
    """The header of a token: text in `alg`, `kid` and `typ`, and nothing else. Raises `JoseError`."""
    header = read_object(text, "header")
    for name, value in header.items():
        if name not in _MEMBERS:
            raise JoseError(f"the header has a member other than {', '.join(sorted(_MEMBERS))}")
        if not isinstance(value, str):
            raise JoseError(f"{name} in the header is no text")
    return header


def split(token: str) -> Parts:
    """A token's parts. Raises `JoseError` for what is no token."""
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
    """A key of `cryptography` as one that checks tokens. Raises `JoseError` for one that is not used for that."""
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
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return _CURVES[key.curve.name][0]
    raise JoseError("is neither an RSA key nor one on P-256, P-384 or P-521")


def is_signed_by(key: PublicKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    """Whether a signature is by this key, and with the key's own algorithm."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    if algorithm != key.algorithm:
        return False
    try:
        if algorithm == "RS256":
            key.key.verify(signature, signed, PKCS1v15(), _digest(algorithm))
            return True
        size = _CURVES[key.key.curve.name][1]
        if len(signature) != 2 * size:
            return False
        r, s = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
        key.key.verify(encode_dss_signature(r, s), signed, _ecdsa(algorithm))
    except (InvalidSignature, ValueError):
        return False
    return True


def sign(private: Any, algorithm: str, data: bytes) -> bytes:
    """A signature as tokens have it: of curves the two numbers, one after the other."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    if algorithm == "RS256":
        signature: bytes = private.sign(data, PKCS1v15(), _digest(algorithm))
        return signature
    size = _CURVES[private.curve.name][1]
    r, s = decode_dss_signature(private.sign(data, _ecdsa(algorithm)))
    return r.to_bytes(size, "big") + s.to_bytes(size, "big")


@lru_cache(maxsize=8)
def _digest(algorithm: str) -> Any:
    from cryptography.hazmat.primitives import hashes

    return {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}[algorithm[2:]]


@lru_cache(maxsize=8)
def _ecdsa(algorithm: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    return ECDSA(_digest(algorithm))


def jwk(key: PublicKey) -> Obj:
    """The key as a set of keys tells of it (RFC 7517)."""
    told: Obj = {"use": "sig", "kid": key.key_id, "alg": key.algorithm}
    numbers = key.key.public_numbers()
    if key.algorithm == "RS256":
        return {**told, "kty": "RSA", "n": _unsigned(numbers.n), "e": _unsigned(numbers.e)}
    size = _CURVES[key.key.curve.name][1]
    name = f"P-{key.key.curve.key_size}"
    x, y = (encode(value.to_bytes(size, "big")) for value in (numbers.x, numbers.y))
    return {**told, "kty": "EC", "crv": name, "x": x, "y": y}


def _unsigned(number: int) -> str:
    return encode(number.to_bytes((number.bit_length() + 7) // 8, "big"))
