"""What a user may be told: an explanation in a namespace, and the names of other namespaces' objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from haru.explain_server.discovery import GROUP, LIST, SUBRESOURCE, VERSION
from haru.explain_server.questions import Question
from haru.secure_serving.authorization import Forbidden, ReviewedAccess
from haru.secure_serving.identity import User

_NAMED = (("", "pods"), ("resource.k8s.io", "resourceclaims"))
"""Resources of which names are told: who may get all of them in a namespace, is told its names."""
_LISTS = {"verb": "list", "group": GROUP, "version": VERSION, "resource": LIST}
_REVIEWS = 16
"""How many namespaces are reviewed at once for one question."""


class ExplainAccess:
    """Asks by SubjectAccessReviews, which are kept for a while; at most `namespaces` other namespaces are reviewed."""

    def __init__(self, reviewed: ReviewedAccess, namespaces: int) -> None:
        self._reviewed, self._namespaces = reviewed, namespaces

    async def require(self, user: User, question: Question) -> None:
        """Raises Forbidden, and ReviewFailed where the API server could not say."""
        resource, namespace, name = question.resource, question.namespace, question.name
        verb, part = ("get" if name else "list"), (SUBRESOURCE if name and not question.is_row else "")
        whole = f"{resource}/{part}" if part else resource
        attributes = {"verb": verb, "group": GROUP, "version": VERSION, "resource": resource}
        attributes |= {"namespace": namespace} if namespace else {}
        attributes |= {"subresource": part} if part else {}
        attributes |= {"name": name} if name else {}
        if not await self._allowed(user, attributes):
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            what = f'{resource}.{GROUP} "{name}"' if name else f"{resource}.{GROUP}"
            raise Forbidden(
                f'{what} is forbidden: User "{user.name}" cannot {verb} resource "{whole}" '
                f'in API group "{GROUP}" {where}'
            )

    async def lists_all(self, user: User) -> bool:
        """Whether the user may list what waits in all namespaces. Raises ReviewFailed."""
        return await self._allowed(user, _LISTS)

    async def listed(self, user: User, namespaces: Collection[str]) -> frozenset[str]:
        """Of some namespaces, those in which the user may list what waits. Raises ReviewFailed."""
        return await self._chosen(namespaces, lambda each: self._allowed(user, {**_LISTS, "namespace": each}))

    async def sees_all(self, user: User) -> bool:
        """Whether the user may see the names of all namespaces. Raises ReviewFailed."""
        return await self._sees(user, "")

    async def shown(self, user: User, namespaces: Iterable[str]) -> frozenset[str]:
        """The namespaces whose names the user may see, of the first few. Raises ReviewFailed."""
        return await self._chosen(list(namespaces)[: self._namespaces], lambda namespace: self._sees(user, namespace))

    async def _chosen(self, namespaces: Collection[str], chooses: Callable[[str], Awaitable[bool]]) -> frozenset[str]:
        """The namespaces that a review chooses; a few reviews at once."""
        limit = asyncio.Semaphore(_REVIEWS)

        async def is_chosen(namespace: str) -> bool:
            async with limit:
                return await chooses(namespace)

        found = await asyncio.gather(*map(is_chosen, namespaces))
        return frozenset(namespace for namespace, chosen in zip(namespaces, found, strict=True) if chosen)

    async def _sees(self, user: User, namespace: str) -> bool:
        for group, resource in _NAMED:
            attributes = {"verb": "get", "group": group, "resource": resource}
            if not await self._allowed(user, {**attributes, **({"namespace": namespace} if namespace else {})}):
                return False
        return True

    async def _allowed(self, user: User, attributes: dict[str, Any]) -> bool:
        return await self._reviewed.allowed(user, {"resourceAttributes": attributes})
