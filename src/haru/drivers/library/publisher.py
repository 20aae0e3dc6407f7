"""Keeps a driver's ResourceSlices as its pools are declared, until the driver stops.

Only what changed is written; a change of several slices raises the pool's generation. A foreign writer is given time
before its change is undone. What a server does not store, because a gate is off there, is told once and not tried again
for ever. Source: k8s.io/dynamic-resource-allocation `resourceslice`, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from haru.client.api import ApiClient
from haru.client.informer import Informer, Selection
from haru.client.workqueue import WorkQueue
from haru.drivers.library import pools
from haru.drivers.library.pools import Pool, Taints
from haru.drivers.slice_publishing import Publication, delete_slice, is_same, plan
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, name_of

SLICES: Final = known_kind("resource.k8s.io/v1", "ResourceSlice")
FOREIGN_SECONDS: Final = 30.0
"""How long somebody else's change of a slice stays."""
_LOG = logging.getLogger("haru.driver")
_POOL: Final = "pool"


class _Written(NamedTuple):
    """What a pool was when it was written, and the versions of its slices then."""

    pool: Pool
    taints: Taints
    versions: Mapping[str, str]


class SlicePublisher:
    """Publishes pools: `declare` sets the desired state, `run` reconciles."""

    def __init__(self, client: ApiClient, who: pools.Publisher, foreign_seconds: float = FOREIGN_SECONDS) -> None:
        self._client = client
        self._who = who
        self._foreign_seconds = foreign_seconds
        self._pools: dict[str, Pool] = {}
        self._taints: dict[str, Taints] = {}
        self._written: dict[str, _Written] = {}
        self._queue: WorkQueue[str] = WorkQueue(f"{who.driver} pools", base_delay=0.2, max_delay=30.0)
        self._published = asyncio.Condition()
        selector = f"spec.driver={who.driver}"
        if who.node_name:
            selector += f",spec.nodeName={who.node_name}"
        self._slices = Informer(client, SLICES, Selection(field_selector=selector))
        self._slices.add_index(_POOL, lambda obj: [obj["spec"]["pool"]["name"]] if self._is_mine(obj) else [])
        self._slices.add_handler(self._changed, lambda old, new: self._changed(new), self._changed)

    def declare(self, wanted: Mapping[str, Pool]) -> None:
        """The pools, by name, in place of those declared before."""
        before, self._pools = self._pools, dict(wanted)
        for name in {*before, *wanted}:
            if before.get(name) != wanted.get(name):
                self._queue.add(name)

    def taint(self, name: str, taints: Taints) -> None:
        """The taints that health adds to devices of a pool, in place of those before."""
        if self._taints.get(name, {}) != taints:
            self._taints[name] = taints
            self._queue.add(name)

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._slices.run(), name=f"{self._who.driver} slices")
            await self._slices.wait_synced()
            for name in [*self._pools, *(obj["spec"]["pool"]["name"] for obj in self._mine())]:
                self._queue.add(name)
            group.create_task(self._queue.run(self._sync, 4), name=f"{self._who.driver} pools")

    async def wait_published(self) -> None:
        """Wait until all that is declared has been written."""
        async with self._published:
            await self._published.wait_for(lambda: all(self._is_written(name) for name in self._pools))

    async def withdraw(self) -> None:
        """Delete all slices: the driver leaves for good."""
        self._pools = {}
        for obj in self._mine():
            await delete_slice(self._client, self._slices, obj)

    def _mine(self) -> list[Obj]:
        return [obj for obj in self._slices.store.values() if self._is_mine(obj)]

    def _is_mine(self, obj: Obj) -> bool:
        return bool(self._who.node_name) or not obj["spec"].get("nodeName")

    def _is_written(self, name: str) -> bool:
        written = self._written.get(name)
        return written is not None and written.pool == self._pools[name] and written.taints == self._of(name)

    def _of(self, name: str) -> Taints:
        return self._taints.get(name, {})

    def _changed(self, obj: Obj) -> None:
        """A slice was written or deleted: reconcile after a while, unless it was our own write."""
        if not self._is_mine(obj):
            return
        name = obj["spec"]["pool"]["name"]
        if not self._is_written_as(name):
            self._queue.add_after(name, self._foreign_seconds)

    def _is_written_as(self, name: str) -> bool:
        written = self._written.get(name)
        return written is not None and written.versions == self._versions(name)

    def _versions(self, name: str) -> dict[str, str]:
        return {name_of(obj): str(obj["metadata"]["resourceVersion"]) for obj in self._slices.by_index(_POOL, name)}

    async def _sync(self, name: str) -> None:
        pool, taints = self._pools.get(name), self._of(name)
        stored = self._slices.by_index(_POOL, name)
        if pool is None:
            self._written.pop(name, None)
            for obj in stored:
                await delete_slice(self._client, self._slices, obj)
            return
        if self._is_written(name) and self._is_written_as(name):
            return
        wanted = plan(stored, lambda generation: pools.slices_of(self._who, name, pool, taints, generation))
        await self._write(wanted)
        self._written[name] = _Written(pool, taints, self._versions(name))
        async with self._published:
            self._published.notify_all()

    async def _write(self, wanted: Publication) -> None:
        for obj in wanted.create:
            self._check(obj, await self._client.create(SLICES, obj))
        for obj in wanted.update:
            self._check(obj, await self._client.update(SLICES, obj))
        for obj in wanted.delete:
            await delete_slice(self._client, self._slices, obj)

    def _check(self, sent: Obj, answer: Obj) -> None:
        self._slices.observe(answer)
        if not is_same(answer, sent):
            _LOG.warning(
                "the server did not store all of ResourceSlice %s: are the gates of its fields on there?", name_of(sent)
            )
