"""The messages of `v1.ExternalJWTSigner`, the service that signs ServiceAccount tokens for an API server.

Both ends are here: requests and answers as bytes and back. Whoever writes a signer in Python needs nothing else of
Haru but this. Reading is strict about what is no protobuf; what the values may be is the reader's to judge.
Source: KEP-740, `k8s.io/externaljwt/apis/v1`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.proto import decode

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
    """Write a SignJWTRequest: the payload as it will stand in the token."""
    from haru.proto import externaljwt_pb2 as rpc

    return rpc.SignJWTRequest(claims=claims).SerializeToString()


def read_sign_request(data: bytes) -> str:
    """The payload of a SignJWTRequest. Raises `MessageError`."""
    from haru.proto import externaljwt_pb2 as rpc

    return decode(rpc.SignJWTRequest, data).claims


def sign_answer(header: str, signature: str) -> bytes:
    """Write a SignJWTResponse: both in base64url, as they will stand in the token."""
    from haru.proto import externaljwt_pb2 as rpc

    return rpc.SignJWTResponse(header=header, signature=signature).SerializeToString()


def read_sign_answer(data: bytes) -> tuple[str, str]:
    """Header and signature of a SignJWTResponse. Raises `MessageError`."""
    from haru.proto import externaljwt_pb2 as rpc

    found = decode(rpc.SignJWTResponse, data)
    return found.header, found.signature


def keys_answer(answer: Keys) -> bytes:
    """Write a FetchKeysResponse."""
    from haru.proto import externaljwt_pb2 as rpc

    made = rpc.FetchKeysResponse(refresh_hint_seconds=answer.refresh_hint)
    for key in answer.keys:
        made.keys.add(key_id=key.key_id, key=key.der, exclude_from_oidc_discovery=key.excluded)
    if answer.data_nanoseconds is not None:
        seconds, nanoseconds = divmod(answer.data_nanoseconds, 10**9)
        made.data_timestamp.SetInParent()
        made.data_timestamp.seconds, made.data_timestamp.nanos = seconds, nanoseconds
    return made.SerializeToString()


def read_keys_answer(data: bytes) -> Keys:
    """The keys of a FetchKeysResponse. Raises `MessageError`."""
    from haru.proto import externaljwt_pb2 as rpc

    found = decode(rpc.FetchKeysResponse, data)
    at = found.data_timestamp
    is_time = found.HasField("data_timestamp")
    is_time = is_time and _FIRST_SECOND <= at.seconds <= _LAST_SECOND and 0 <= at.nanos < 10**9
    keys = [Key(key.key_id, key.key, key.exclude_from_oidc_discovery) for key in found.keys]
    return Keys(keys, at.seconds * 10**9 + at.nanos if is_time else None, found.refresh_hint_seconds)


def metadata_answer(max_seconds: int) -> bytes:
    """Write a MetadataResponse: how long a token may be good."""
    from haru.proto import externaljwt_pb2 as rpc

    return rpc.MetadataResponse(max_token_expiration_seconds=max_seconds).SerializeToString()


def read_metadata_answer(data: bytes) -> int:
    """The longest life of a token, in seconds, out of a MetadataResponse. Raises `MessageError`."""
    from haru.proto import externaljwt_pb2 as rpc

    return decode(rpc.MetadataResponse, data).max_token_expiration_seconds
