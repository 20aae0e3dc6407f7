"""Whether a user may ask for a path of this node: a SubjectAccessReview for each subresource, until one is allowed.

Source: KEP-2862; delegated authorization (caches of 5 minutes and 30 seconds), as behaviour.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import orjson

from haru.node.api.attributes import subresources_of, verb_of
from haru.node.api.cache import Cache
from haru.node.api.identity import User
from haru.node.api.options import AuthorizationOptions
from haru.node.api.reviews import ACCESS, Reviewer

LARGEST_KEPT_BYTES = 10_000


class Forbidden(Exception):
    """403; the text is the answer's."""


class Access(Protocol):
    """An authorizer."""

    async def require(self, user: User, method: str, path: str) -> None:
        """Raises `Forbidden`, and `ReviewFailed` where nobody could say."""


class AlwaysAllow:
    """Authorizes every authenticated user."""

    async def require(self, user: User, method: str, path: str) -> None:
        """Allow the request."""


class WebhookAccess:
    """The API server decides."""

    def __init__(
        self,
        reviewer: Reviewer,
        node: str,
        options: AuthorizationOptions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviewer, self._node, self._harden = reviewer, node, options.require_create_for_streams
        self._seconds = {True: options.allowed_seconds, False: options.denied_seconds}
        self._cache: Cache[bool] = Cache(monotonic)

    async def require(self, user: User, method: str, path: str) -> None:
        """Raises `Forbidden`, and `ReviewFailed` where nobody could say."""
        verb = verb_of(method)
        if self._harden and verb == "get" and opens_container(path):
            verb = "create"
        subresources = subresources_of(path)
        for subresource in subresources:
            if await self._allowed(user, verb, subresource):
                return
        raise Forbidden(forbidden_text(user, verb, subresources))

    async def _allowed(self, user: User, verb: str, subresource: str) -> bool:
        spec = review_spec(user, verb, subresource, self._node)
        # The whole of it is the key: a user of the same name with other groups is another one.
        key = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)

        async def ask() -> tuple[bool, float]:
            status = await self._reviewer.review(ACCESS, spec)
            allowed = status.get("allowed") is True and status.get("denied") is not True
            return allowed, self._seconds[allowed]

        if len(key) >= LARGEST_KEPT_BYTES:
            return (await ask())[0]
        return await self._cache.get(key, ask)


def opens_container(path: str) -> bool:
    """Whether a path leads into a container."""
    return path.split("/", 2)[1] in ("exec", "attach", "run", "portForward")


def review_spec(user: User, verb: str, subresource: str, node: str) -> dict[str, Any]:
    """The `spec` of a SubjectAccessReview."""
    spec: dict[str, Any] = {
        "user": user.name,
        "resourceAttributes": {
            "group": "",
            "version": "v1",
            "resource": "nodes",
            "subresource": subresource,
            "name": node,
            "verb": verb,
        },
    }
    if user.uid:
        spec["uid"] = user.uid
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    return spec


def forbidden_text(user: User, verb: str, subresources: Sequence[str]) -> str:
    """The answer's text."""
    listed = " ".join(subresources)
    return f"Forbidden (user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{listed}])"
