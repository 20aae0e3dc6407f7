"""What a person may see, by SubjectAccessReviews that are kept for a while. Without an answer nothing is shown.

A namespace is shown to who may get its pods and claims and list its events and quotas: what a page tells of it stands
in these, or follows from them. Everything is shown to who may do so in all namespaces.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable
from functools import partial
from typing import Any

import orjson

from haru.dashboard.signin.viewer import EVERYTHING, Visibility
from haru.secure_serving.authorization import ReviewedAccess, user_fields
from haru.secure_serving.cache import Cache
from haru.secure_serving.identity import User

_SEEN = (
    ("get", "", "pods"),
    ("get", "resource.k8s.io", "resourceclaims"),
    ("list", "", "events"),
    ("list", "", "resourcequotas"),
)
_AT_ONCE = 16
"""Namespaces that are reviewed at the same time for one person."""
KEPT_SECONDS = 15.0
"""How long a person's rights hold before the reviews are looked at again."""


class VisibilityReviews:
    """Reviews what people may see; `monotonic` is in seconds."""

    def __init__(self, reviewed: ReviewedAccess, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reviewed = reviewed
        self._cache: Cache[Visibility] = Cache(monotonic)

    async def of(self, user: User, namespaces: Callable[[], Awaitable[Collection[str]]]) -> Visibility:
        """Return what a user may see of a cluster with these namespaces. Raises ReviewFailed and OSError."""
        key: Hashable = orjson.dumps(user_fields(user), option=orjson.OPT_SORT_KEYS)

        async def ask() -> tuple[Visibility, float]:
            return await self._ask(user, namespaces), KEPT_SECONDS

        return await self._cache.get(key, ask)

    async def allowed(self, user: User, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Return whether a user may do something; without a namespace in all. Raises ReviewFailed."""
        attributes: dict[str, Any] = {"verb": verb, "group": group, "resource": resource}
        attributes |= {"namespace": namespace} if namespace else {}
        return await self._reviewed.allowed(user, {"resourceAttributes": attributes})

    async def _ask(self, user: User, namespaces: Callable[[], Awaitable[Collection[str]]]) -> Visibility:
        if await self._sees(user, ""):
            return EVERYTHING
        names = await namespaces()
        limit = asyncio.Semaphore(_AT_ONCE)

        async def seen(namespace: str) -> bool:
            async with limit:
                return await self._sees(user, namespace)

        found = await asyncio.gather(*map(seen, names))
        return Visibility(namespaces=frozenset(name for name, shown in zip(names, found, strict=True) if shown))

    async def _sees(self, user: User, namespace: str) -> bool:
        for verb, group, resource in _SEEN:
            if not await self.allowed(user, verb, group, resource, namespace):
                return False
        return True

    def allowed_for(self, user: User) -> Callable[[str, str, str, str], Any]:
        """Return `allowed` for one user."""
        return partial(self.allowed, user)
