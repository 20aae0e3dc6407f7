"""What namespaces are limited by, followed by cursors: ResourceQuotas, LimitRanges, and the classes of devices.

A namespace without any costs a write one look-up.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakValueDictionary

from haru.apiserver.context import ServerContext
from haru.apiserver.encoding.objects import shared
from haru.apiserver.registry.store_reflector import NamespacedStoreReflector, StoreReflector
from haru.kube.quota.claims import extended_names

Obj = dict[str, Any]

_CLASSES = "deviceclasses"


class LimitsOfNamespaces:
    """The limits that one server knows of."""

    def __init__(self, core: ServerContext) -> None:
        self._core = core
        self._quotas = NamespacedStoreReflector(core, "resourcequotas")
        self._ranges = NamespacedStoreReflector(core, "limitranges")
        self._classes: StoreReflector | None = None
        self._extended: dict[str, str] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(self) -> None:
        """Read them, and follow them from there."""
        await self._quotas.start()
        await self._ranges.start()
        if self._core.served.find("resource.k8s.io", _CLASSES) is not None:
            self._classes = StoreReflector(self._core, "resource.k8s.io", (_CLASSES,))
            await self._classes.start()
            self._extended = self._extended_resources()

    async def quotas(self, namespace: str) -> list[Obj]:
        """The ResourceQuotas of a namespace, shared: not to be changed."""
        return [shared(record) for record in await self._quotas.of(namespace)]

    async def ranges(self, namespace: str) -> list[Obj]:
        """The LimitRanges of a namespace, shared: not to be changed."""
        return [shared(record) for record in await self._ranges.of(namespace)]

    async def extended_resources(self) -> dict[str, str]:
        """The names of extended resources, by the device class that has one."""
        if self._classes is not None and await self._classes.take_in():
            self._extended = self._extended_resources()
        return self._extended

    def turn(self, namespace: str) -> asyncio.Lock:
        """Held by who writes to a quota of the namespace: others of this server need not fail to find that out."""
        found = self._turns.get(namespace)
        if found is None:
            found = self._turns[namespace] = asyncio.Lock()
        return found

    def _extended_resources(self) -> dict[str, str]:
        assert self._classes is not None
        return extended_names(shared(record) for record in self._classes.of(_CLASSES))
