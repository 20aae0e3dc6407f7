"""Whether a user may do something, as the API server says by SubjectAccessReview, kept for a while.

Source: delegated authorization, as behaviour: paths that are always allowed, the group system:masters, the review.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from haru.secure_serving.cache import Cache
from haru.secure_serving.identity import User
from haru.secure_serving.reviews import ACCESS, Reviewer

LARGEST_KEPT_BYTES = 10_000
ALWAYS_ALLOWED_PATHS = ("/healthz", "/readyz", "/livez")
MASTERS = "system:masters"


class Forbidden(Exception):
    """403; the text is the answer's."""


class ReviewedAccess:
    """SubjectAccessReviews with a cache. Durations are seconds, `monotonic` too."""

    def __init__(
        self,
        reviewer: Reviewer,
        allowed_seconds: float,
        denied_seconds: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviewer = reviewer
        self._seconds = {True: allowed_seconds, False: denied_seconds}
        self._cache: Cache[bool] = Cache(monotonic)

    async def allowed(self, user: User, attributes: Mapping[str, Any]) -> bool:
        """Whether it is allowed; `attributes` are resourceAttributes or nonResourceAttributes. Raises ReviewFailed."""
        spec = {**user_fields(user), **attributes}
        # The whole of it is the key: a user of the same name with other groups is another one.
        key = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)

        async def ask() -> tuple[bool, float]:
            status = await self._reviewer.review(ACCESS, spec)
            allowed = status.get("allowed") is True and status.get("denied") is not True
            return allowed, self._seconds[allowed]

        if len(key) >= LARGEST_KEPT_BYTES:
            return (await ask())[0]
        return await self._cache.get(key, ask)


def user_fields(user: User) -> dict[str, Any]:
    """What the `spec` of a SubjectAccessReview says of a user."""
    spec: dict[str, Any] = {"user": user.name}
    if user.uid:
        spec["uid"] = user.uid
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    return spec


class PathAccess:
    """Authorizes paths that are no resources. Without `access`, only those that are always allowed."""

    def __init__(self, access: ReviewedAccess | None, always_allowed: Sequence[str] = ALWAYS_ALLOWED_PATHS) -> None:
        self._access = access
        self._paths = frozenset(path for path in always_allowed if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allowed if path.endswith("*"))

    def always_allows(self, path: str) -> bool:
        """Whether a path is open to everybody."""
        return path in self._paths or path.startswith(self._prefixes)

    async def require(self, user: User, method: str, path: str) -> None:
        """Raises Forbidden, and ReviewFailed where nobody could say."""
        if self.always_allows(path) or MASTERS in user.groups:
            return
        verb = method.lower()
        attributes = {"nonResourceAttributes": {"path": path, "verb": verb}}
        if self._access is None or not await self._access.allowed(user, attributes):
            raise Forbidden(f'forbidden: User "{user.name}" cannot {verb} path "{path}"')
