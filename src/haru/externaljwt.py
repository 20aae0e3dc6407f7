"""The messages of `v1.ExternalJWTSigner`, the service that signs ServiceAccount tokens for an API server.

Both ends are here: requests and answers as bytes and back. Whoever writes a signer in Python needs nothing else of
Haru but this. Reading is strict about what is no protobuf; what the values may be is the reader's to judge.
Source: KEP-740, `k8s.io/externaljwt/apis/v1`, of which names and numbers of fields are facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.protobuf import WireError, chunk, fields, integer

SERVICE = "v1.ExternalJWTSigner"
SIGN = f"/{SERVICE}/Sign"
FETCH_KEYS = f"/{SERVICE}/FetchKeys"
METADATA = f"/{SERVICE}/Metadata"

KEY_ID_BYTES = 1024
"""A key's id has 1 to so many bytes."""
LEAST_EXPIRATION_SECONDS = 600
"""A signer has to sign tokens that are good for so long."""
ALGORITHMS = ("RS256", "ES256", "ES384", "ES512")
_LAST_SECOND = 253402300799
_FIRST_SECOND = -62135596800


@dataclass(frozen=True, slots=True)
class Key:
    """A public key as PKIX DER; one that is excluded from discovery checks tokens, but must not sign new ones."""

    key_id: str
    der: bytes
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Keys:
    """The answer to FetchKeys. `data_nanoseconds`, since the epoch, is when the data were read from where they are
    kept; None: it is not told, or is no time. `refresh_hint` is in seconds."""

    keys: Sequence[Key]
    data_nanoseconds: int | None
    refresh_hint: int


def sign_request(claims: str) -> bytes:
    """SignJWTRequest: the payload as it will stand in the token."""
    return chunk(1, claims.encode())


def read_sign_request(data: bytes) -> str:
    """The payload of a SignJWTRequest. Raises `WireError`."""
    return _text(data, 1)


def sign_answer(header: str, signature: str) -> bytes:
    """SignJWTResponse: both in base64url, as they will stand in the token."""
    return chunk(1, header.encode()) + chunk(2, signature.encode())


def read_sign_answer(data: bytes) -> tuple[str, str]:
    """Header and signature of a SignJWTResponse. Raises `WireError`."""
    return _text(data, 1), _text(data, 2)


def keys_answer(answer: Keys) -> bytes:
    """FetchKeysResponse."""
    parts = [
        chunk(1, chunk(1, key.key_id.encode()) + chunk(2, key.der) + integer(3, int(key.excluded)), always=True)
        for key in answer.keys
    ]
    if answer.data_nanoseconds is not None:
        seconds, nanoseconds = divmod(answer.data_nanoseconds, 10**9)
        parts.append(chunk(2, integer(1, seconds) + integer(2, nanoseconds), always=True))
    return b"".join((*parts, integer(3, answer.refresh_hint)))


def read_keys_answer(data: bytes) -> Keys:
    """The keys of a FetchKeysResponse. Raises `WireError`."""
    keys: list[Key] = []
    stamp: int | None = None
    hint = 0
    for number, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            keys.append(_key(value))
        elif number == 2 and isinstance(value, bytes):
            stamp = _nanoseconds(value)
        elif number == 3 and isinstance(value, int):
            hint = value
    return Keys(keys, stamp, hint)


def metadata_answer(max_seconds: int) -> bytes:
    """MetadataResponse: how long a token may be good."""
    return integer(1, max_seconds)


def read_metadata_answer(data: bytes) -> int:
    """The longest life of a token, in seconds, out of a MetadataResponse. Raises `WireError`."""
    return next((value for number, value in fields(data) if number == 1 and isinstance(value, int)), 0)


def _key(data: bytes) -> Key:
    der, excluded = b"", False
    for number, value in fields(data):
        if number == 2 and isinstance(value, bytes):
            der = value
        elif number == 3 and isinstance(value, int):
            excluded = bool(value)
    return Key(_text(data, 1), der, excluded)


def _nanoseconds(data: bytes) -> int | None:
    """google.protobuf.Timestamp; None for what is out of its range."""
    seconds = nanoseconds = 0
    for number, value in fields(data):
        if isinstance(value, int):
            seconds, nanoseconds = (value if number == 1 else seconds), (value if number == 2 else nanoseconds)
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND or not 0 <= nanoseconds < 10**9:
        return None
    return seconds * 10**9 + nanoseconds


def _text(data: bytes, wanted: int) -> str:
    text = b""
    for number, value in fields(data):
        if number == wanted and isinstance(value, bytes):
            text = value
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise WireError(f"field {wanted} is no text in UTF-8") from None
