"""Whether a user may ask for a path of this node: a SubjectAccessReview for each subresource, until one is allowed.

Source: KEP-2862; delegated authorization (caches of 5 minutes and 30 seconds), as behaviour.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from haru.node.api.attributes import subresources_of, verb_of
from haru.node.api.options import AuthorizationOptions
from haru.secure_serving.authorization import Forbidden, ReviewedAccess
from haru.secure_serving.identity import User
from haru.secure_serving.reviews import Reviewer


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
        self._node, self._harden = node, options.require_create_for_streams
        self._access = ReviewedAccess(reviewer, options.allowed_seconds, options.denied_seconds, monotonic=monotonic)

    async def require(self, user: User, method: str, path: str) -> None:
        """Raises `Forbidden`, and `ReviewFailed` where nobody could say."""
        verb = verb_of(method)
        if self._harden and verb == "get" and opens_container(path):
            verb = "create"
        subresources = subresources_of(path)
        for subresource in subresources:
            if await self._access.allowed(user, {"resourceAttributes": node_attributes(verb, subresource, self._node)}):
                return
        raise Forbidden(forbidden_text(user, verb, subresources))


def opens_container(path: str) -> bool:
    """Whether a path leads into a container."""
    return path.split("/", 2)[1] in ("exec", "attach", "run", "portForward")


def node_attributes(verb: str, subresource: str, node: str) -> dict[str, str]:
    """The `resourceAttributes` of a SubjectAccessReview."""
    about = {"group": "", "version": "v1", "resource": "nodes", "subresource": subresource}
    return {**about, "name": node, "verb": verb}


def forbidden_text(user: User, verb: str, subresources: Sequence[str]) -> str:
    """The answer's text."""
    listed = " ".join(subresources)
    return f"Forbidden (user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{listed}])"
