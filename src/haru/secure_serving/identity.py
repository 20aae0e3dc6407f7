"""Authentication: client certificates, bearer tokens, anonymous.

Source: delegated authentication of the kubelet and kube-scheduler, as behaviour. Certificates: the common name is the
user, organizations are groups, the subject's attribute 1.3.6.1.4.1.57683.2 is the UID.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haru.secure_serving.cache import Cache
from haru.secure_serving.reviews import TOKENS, Reviewer

CACHE_SECONDS = 120.0
AUTHENTICATED = "system:authenticated"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
_UID = "1.3.6.1.4.1.57683.2"


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request."""

    name: str
    groups: Sequence[str] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Unauthenticated(Exception):
    """No valid credentials: 401."""


class Authenticator:
    """Authenticates requests. Without a reviewer no token is valid; `monotonic` is in seconds."""

    def __init__(
        self,
        reviewer: Reviewer | None,
        *,
        anonymous: bool = False,
        audiences: Sequence[str] = (),
        cache_seconds: float = CACHE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviewer = reviewer
        self._anonymous = anonymous
        self._audiences = tuple(audiences)
        self._cache_seconds = cache_seconds
        self._cache: Cache[User | None] = Cache(monotonic)
        # Tokens are not kept: only what they are recognized by, by this process alone.
        self._secret = os.urandom(32)

    async def user(self, certificate: bytes | None, authorization: str | None) -> User:
        """The user of a verified certificate (DER) or of an Authorization header.

        Raises `Unauthenticated`, and `ReviewFailed` where the API server could not say whose the token is.
        """
        if certificate is not None and (certified := user_of_certificate(certificate)) is not None:
            return certified
        token = bearer(authorization or "")
        if token and self._reviewer is not None:
            user = await self._cache.get(self._mark(token), lambda: self._review(token))
            if user is None:
                # Also where anybody may come in: who shows a token means to be somebody.
                raise Unauthenticated("the token is nobody's")
            return user
        if self._anonymous:
            return ANONYMOUS
        raise Unauthenticated("neither a certificate nor a token")

    def _mark(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode("utf-8", "surrogateescape"), hashlib.sha256)

    async def _review(self, token: str) -> tuple[User | None, float]:
        assert self._reviewer is not None
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        status = await self._reviewer.review(TOKENS, spec)
        return _reviewed(status, self._audiences), self._cache_seconds


def _reviewed(status: Mapping[str, Any], audiences: Sequence[str]) -> User | None:
    found = status.get("user") or {}
    if status.get("authenticated") is not True or not found.get("username"):
        return None
    answered = status.get("audiences") or ()
    if audiences and not set(audiences) & set(answered):
        # A server that knows no audiences has not looked at them.
        return None
    groups = with_authenticated(found.get("groups") or ())
    extra = {key: tuple(values) for key, values in (found.get("extra") or {}).items()}
    return User(found["username"], groups, found.get("uid") or "", extra)


def bearer(header: str) -> str:
    """The token of an Authorization header; empty where there is none."""
    parts = header.strip().split(" ")
    return parts[1] if len(parts) > 1 and parts[0].lower() == "bearer" else ""


def names_of_certificate(certificate: bytes) -> list[str]:
    """The common names of a certificate (DER)."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_der_x509_certificate(certificate).subject
    return [str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def user_of_certificate(certificate: bytes) -> User | None:
    """The user that a verified certificate (DER) names; None for one without a common name."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID, ObjectIdentifier

    subject = x509.load_der_x509_certificate(certificate).subject
    names = [str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not names or not names[-1]:
        return None
    groups = [str(one.value) for one in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    uids = [str(one.value) for one in subject.get_attributes_for_oid(ObjectIdentifier(_UID))]
    if len(uids) > 1:
        raise Unauthenticated("the certificate names more than one UID")
    extra = {_CREDENTIAL: (f"X509SHA256={hashlib.sha256(certificate).hexdigest()}",)}
    return User(names[-1], with_authenticated(groups), uids[0] if uids else "", extra)


def with_authenticated(groups: Sequence[str]) -> tuple[str, ...]:
    """The groups of a user who is somebody."""
    return tuple(groups) if AUTHENTICATED in groups else (*groups, AUTHENTICATED)
