"""Validate the claims of a token: audience, time, and that its account and the objects it is bound to still exist.

The signature has been checked before. Everything here is looked at each time that a token is used; deleting what it is
tied to is how a token is revoked.
Source: Kubernetes' service account token validation, as behaviour.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from haru.apiserver.auth.tokens.metrics import TokenMetrics
from haru.apiserver.auth.user import UserInfo
from haru.apiserver.object_store import ObjectStore
from haru.kube.meta import Obj
from haru.kube.names import parse_time

LEEWAY_SECONDS = 60
"""Clocks differ, and what is being deleted may still speak for a moment."""
LEGACY_ISSUER = "kubernetes/serviceaccount"
_GONE = "service account token has been invalidated"
_EXTRA = "authentication.kubernetes.io"


class InvalidToken(Exception):
    """A token of ours that is not good (any more); the text says why, without repeating it."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """Whose token it is, for which of the audiences that were asked about, and notes for the audit log."""

    user: UserInfo
    audiences: Sequence[str]
    notes: dict[str, str] = field(default_factory=dict)


class TokenVerifier:
    """Checks claims against a server's clock and store; `lookup`: whether what they name has to be there."""

    def __init__(self, objects: ObjectStore, metrics: TokenMetrics, *, lookup: bool) -> None:
        self._objects = objects
        self._metrics = metrics
        self._lookup = lookup

    async def check(self, claims: Obj, wanted: Sequence[str]) -> VerifiedToken:
        """The user of a bound token. Raises `InvalidToken`."""
        audiences = _audiences(claims, wanted)
        now = self._objects.clock().timestamp()
        _check_times(claims, now)
        private = _mapping(claims.get("kubernetes.io"))
        account, namespace = _mapping(private.get("serviceaccount")), _text(private.get("namespace"))
        name, uid = _text(account.get("name")), _text(account.get("uid"))
        if not name or not namespace:
            raise InvalidToken("service account token names no account")
        bound = {kind: _mapping(private.get(kind)) for kind in ("secret", "pod", "node") if private.get(kind)}
        if self._lookup:
            await self._there("serviceaccounts", namespace, name, uid, now)
            await self._bound(bound, namespace, now)
        notes = self._aged(claims, private.get("warnafter"), now)
        return VerifiedToken(_user(namespace, name, uid, _extra(claims, bound)), audiences, notes)

    async def _bound(self, bound: dict[str, Obj], namespace: str, now: float) -> None:
        for kind, plural in (("secret", "secrets"), ("pod", "pods"), ("node", "nodes")):
            # The node of a pod is told of, but it is the pod that counts.
            if kind in bound and not (kind == "node" and "pod" in bound):
                where = "" if kind == "node" else namespace
                each = bound[kind]
                await self._there(plural, where, _text(each.get("name")), _text(each.get("uid")), now)

    async def _there(self, plural: str, namespace: str, name: str, uid: str, now: float) -> Obj:
        found = await self._objects.peek("", plural, namespace, name) if name else None
        if found is None:
            raise InvalidToken(f"{_GONE}: one of its {plural} is gone")
        if found["metadata"]["uid"] != uid:
            raise InvalidToken(f"{_GONE}: one of its {plural} has been made anew")
        deleted = found["metadata"].get("deletionTimestamp")
        if deleted and parse_time(deleted).timestamp() < now - LEEWAY_SECONDS:
            raise InvalidToken(f"{_GONE}: one of its {plural} has been deleted")
        return found

    def _aged(self, claims: Obj, warn_after: Any, now: float) -> dict[str, str]:
        """Count the use of an extended token; the note where it should have been renewed."""
        if not _number(warn_after):
            return {}
        if now <= warn_after:
            self._metrics.valid += 1
            return {}
        self._metrics.stale += 1
        late = f"subject: {claims.get('sub')}, seconds after warning threshold: {int(now - warn_after)}"
        return {"authentication.k8s.io/stale-token": late}

    async def check_legacy(self, claims: Obj, token: str, wanted: Sequence[str]) -> VerifiedToken:
        """The user of a token out of a Secret, which is good while the Secret holds it. Raises `InvalidToken`."""
        say = {key: _text(claims.get(f"kubernetes.io/serviceaccount/{key}")) for key in _LEGACY}
        namespace, secret, name, uid = (say[key] for key in _LEGACY)
        subject = f"system:serviceaccount:{namespace}:{name}"
        if not all(say.values()) or claims.get("sub") != subject:
            raise InvalidToken("service account token of a Secret names no account")
        if self._lookup:
            now = self._objects.clock().timestamp()
            await self._there("serviceaccounts", namespace, name, uid, now)
            held = await self._objects.peek("", "secrets", namespace, secret)
            if held is None or not _holds(held, token):
                raise InvalidToken(f"{_GONE}: its Secret does not hold it")
        self._metrics.legacy += 1
        return VerifiedToken(_user(namespace, name, uid, {}), wanted, {"authentication.k8s.io/legacy-token": subject})


_LEGACY = ("namespace", "secret.name", "service-account.name", "service-account.uid")


def _holds(secret: Obj, token: str) -> bool:
    try:
        held = base64.b64decode((secret.get("data") or {}).get("token") or "", validate=True)
    except (binascii.Error, ValueError):
        return False
    return "deletionTimestamp" not in secret["metadata"] and hmac.compare_digest(held, token.encode())


def _audiences(claims: Obj, wanted: Sequence[str]) -> list[str]:
    told = claims.get("aud")
    named = [told] if isinstance(told, str) else [each for each in told or () if isinstance(each, str)]
    audiences = [each for each in wanted if each in named]
    if not audiences:
        raise InvalidToken(f"token audiences {_quoted(named)} is invalid for the target audiences {_quoted(wanted)}")
    return audiences


def _quoted(names: Sequence[str]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"


def _check_times(claims: Obj, now: float) -> None:
    expires, since, issued = claims.get("exp"), claims.get("nbf", 0), claims.get("iat", 0)
    if not _number(expires) or not _number(since) or not _number(issued):
        raise InvalidToken("service account token has no time that can be read")
    if now > expires + LEEWAY_SECONDS:
        raise InvalidToken("service account token has expired")
    if max(since, issued) > now + LEEWAY_SECONDS:
        raise InvalidToken("service account token is not valid yet")


def _extra(claims: Obj, bound: dict[str, Obj]) -> dict[str, list[str]]:
    extra: dict[str, list[str]] = {}
    if token_id := _text(claims.get("jti")):
        extra[f"{_EXTRA}/credential-id"] = [f"JTI={token_id}"]
    for kind in ("pod", "node"):
        for part in ("name", "uid"):
            if value := _text((bound.get(kind) or {}).get(part)):
                extra[f"{_EXTRA}/{kind}-{part}"] = [value]
    return extra


def _user(namespace: str, name: str, uid: str, extra: dict[str, list[str]]) -> UserInfo:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return UserInfo(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> Obj:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 53
