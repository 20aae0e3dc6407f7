"""What a user may be told: an explanation in a namespace, and the names of other namespaces' objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from haru.explain_server.discovery import GROUP, SUBRESOURCE, VERSION
from haru.secure_serving.authorization import Forbidden, ReviewedAccess
from haru.secure_serving.identity import User

_NAMED = (("", "pods"), ("resource.k8s.io", "resourceclaims"))
"""Resources of which names are told: who may get all of them in a namespace, is told its names."""


class ExplainAccess:
    """Asks by SubjectAccessReviews, which are kept for a while; at most `namespaces` other namespaces are reviewed."""

    def __init__(self, reviewed: ReviewedAccess, namespaces: int) -> None:
        self._reviewed, self._namespaces = reviewed, namespaces

    async def require(self, user: User, namespace: str, resource: str, name: str) -> None:
        """Raises Forbidden, and ReviewFailed where the API server could not say."""
        attributes = {
            "namespace": namespace,
            "verb": "get",
            "group": GROUP,
            "version": VERSION,
            "resource": resource,
            "subresource": SUBRESOURCE,
            "name": name,
        }
        if not await self._allowed(user, attributes):
            raise Forbidden(
                f'{resource}.{GROUP} "{name}" is forbidden: User "{user.name}" cannot get resource '
                f'"{resource}/{SUBRESOURCE}" in API group "{GROUP}" in the namespace "{namespace}"'
            )

    async def sees_all(self, user: User) -> bool:
        """Whether the user may see the names of all namespaces. Raises ReviewFailed."""
        return await self._sees(user, "")

    async def shown(self, user: User, namespaces: Iterable[str]) -> frozenset[str]:
        """The namespaces whose names the user may see, of the first few. Raises ReviewFailed."""
        asked = list(namespaces)[: self._namespaces]
        found = await asyncio.gather(*(self._sees(user, namespace) for namespace in asked))
        return frozenset(namespace for namespace, sees in zip(asked, found, strict=True) if sees)

    async def _sees(self, user: User, namespace: str) -> bool:
        for group, resource in _NAMED:
            attributes = {"verb": "get", "group": group, "resource": resource}
            if not await self._allowed(user, {**attributes, **({"namespace": namespace} if namespace else {})}):
                return False
        return True

    async def _allowed(self, user: User, attributes: dict[str, Any]) -> bool:
        return await self._reviewed.allowed(user, {"resourceAttributes": attributes})
