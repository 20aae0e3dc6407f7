"""What a signer puts its name to: payloads of ServiceAccount tokens, by issuers that it knows, for a bounded time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from haru.jose import JoseError, read_object
from haru.signer.schedule import LEEWAY_SECONDS

PREFIX = "system:serviceaccount:"
PAYLOAD_BYTES = 48 * 1024


class RefusedClaims(ValueError):
    """A payload that is not signed; the text says why, without repeating it."""


def check_claims(payload: str, now: float, max_seconds: int, issuers: Sequence[str]) -> None:
    """Raises `RefusedClaims`. Without `issuers` any issuer is good."""
    if len(payload) > PAYLOAD_BYTES:
        raise RefusedClaims(f"claims: more than {PAYLOAD_BYTES} bytes")
    try:
        claims = read_object(payload, "payload")
    except JoseError as error:
        raise RefusedClaims(f"claims: {error}") from None
    issuer, subject = claims.get("iss"), claims.get("sub")
    if not isinstance(issuer, str) or not issuer or (issuers and issuer not in issuers):
        raise RefusedClaims("claims: iss is none of the issuers that this signer signs for (--issuer)")
    if not isinstance(subject, str) or not subject.startswith(PREFIX) or subject.count(":") != PREFIX.count(":") + 1:
        raise RefusedClaims("claims: sub is no ServiceAccount")
    if not claims.get("aud"):
        raise RefusedClaims("claims: aud names nobody")
    issued, expires = claims.get("iat"), claims.get("exp")
    if not _is_time(issued) or not _is_time(expires):
        raise RefusedClaims("claims: iat and exp must be times")
    if abs(issued - now) > LEEWAY_SECONDS:
        raise RefusedClaims("claims: iat is not now: see to the clocks")
    if not issued < expires <= issued + max_seconds:
        raise RefusedClaims(f"claims: exp is not within {max_seconds} s of iat")


def _is_time(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
