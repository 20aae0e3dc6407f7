"""What controllers have in common: informers, a work queue, and writes that are seen at once.

A controller declares which kinds it `needs`, asks for informers when it is made, lets their handlers note keys, and
brings one key at a time into line in `sync`. It keeps nothing that it could not learn again from the API server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from prometheus_client import Metric

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.client.informer import Informer, object_key
from haru.client.shared_informers import SharedInformers
from haru.client.workqueue import WorkQueue
from haru.clock import utc_now
from haru.errors import raise_first
from haru.kube.errors import StatusError, suppress_status
from haru.kube.gates import FeatureGates
from haru.kube.json_form import json_form
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, name_of, namespace_of, uid_of
from haru.kube.names import format_time

log = logging.getLogger("haru.controllers")
T = TypeVar("T")
_SMALL = 50
_PAUSE_PER_OBJECT = 0.001
_LONGEST_PAUSE = 2.0


@dataclass(slots=True)
class Context:
    """What every controller of one manager shares."""

    client: ApiClient
    informers: SharedInformers
    gates: FeatureGates
    now: Callable[[], datetime] = utc_now
    served: frozenset[tuple[str, str, str]] | None = None
    """(group, version, plural) of what the server has; None: everything."""
    options: Mapping[str, Any] = field(default_factory=dict)
    monotonic: Callable[[], float] = time.monotonic

    def serves(self, kind: Kind) -> bool:
        """Whether the server has the kind, in a version that its client reads and writes."""
        version = self.client.version.kind_for(kind).version
        return self.served is None or (kind.group, version, kind.plural) in self.served


class Controller:
    """One control loop."""

    name: ClassVar[str]
    component: ClassVar[str] = ""
    """Who its events say that they come from, where that is not its name."""
    needs: ClassVar[tuple[Kind, ...]] = ()
    workers: ClassVar[int] = 5
    has_account: ClassVar[bool] = True
    """Whether it may write as a ServiceAccount of its own; else as the manager itself, as in 1.36."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.client = context.client
        self.gates = context.gates
        self.now = context.now
        self.queue: WorkQueue[str] = WorkQueue(self.name)
        self.events = EventRecorder(
            context.client, self.component or self.name, now=context.now, monotonic=context.monotonic
        )
        self._used: list[Informer] = []

    @classmethod
    def enabled(cls, context: Context) -> bool:
        """Whether the gates and the server allow this controller to run."""
        return all(context.serves(kind) for kind in cls.needs)

    def informer(self, kind: Kind) -> Informer:
        """The shared informer of a kind; `run` waits for its first list."""
        informer = self.context.informers.get(kind)
        self._used.append(informer)
        return informer

    def enqueue(self, obj: Obj) -> None:
        """Have the object brought into line."""
        self.queue.add(object_key(obj))

    def gather(self, key: str, size: int) -> None:
        """Have brought into line, after a pause that gathers further changes, what takes `size` objects to look at.

        One look costs as much as there are objects: with a pause as long in proportion a change costs the same however
        many there are. kube-controller-manager gathers the changes of a Job's pods for one second.
        """
        self.queue.add_after(key, gathering_pause(size))

    async def run(self) -> None:
        """Work until cancelled."""
        for informer in self._used:
            await informer.wait_synced()
        log.info("%s: started", self.name)
        try:
            async with asyncio.TaskGroup() as group:
                for task in self.background():
                    group.create_task(task(), name=f"{self.name} background")
                group.create_task(self.queue.run(self.sync, self.workers), name=self.name)
        finally:
            await self.events.close()

    def background(self) -> Iterable[Callable[[], Any]]:
        """Coroutine functions that run beside the queue's workers."""
        return ()

    async def sync(self, key: str) -> float | None:
        """Bring one key into line; answers after how many seconds it wants to look again."""
        raise NotImplementedError

    def metrics(self) -> Iterable[Metric]:
        """What this controller counts beyond its queue."""
        return ()

    # -- time ---------------------------------------------------------------------------------------------------------

    def timestamp(self) -> str:
        """Now, as metav1.Time."""
        return format_time(self.now())

    # -- writes -------------------------------------------------------------------------------------------------------

    async def create(self, informer: Informer, obj: Obj) -> Obj:
        """Create; the informer knows it when this returns."""
        created = await self.client.create(informer.kind, obj)
        informer.observe(created)
        return created

    async def update(self, informer: Informer, obj: Obj, subresource: str = "") -> Obj:
        """Replace if nobody wrote in between; the informer knows the result when this returns."""
        updated = await self.client.update(informer.kind, obj, subresource)
        informer.observe(updated)
        return updated

    async def update_status(self, informer: Informer, obj: Obj, status: Obj) -> Obj:
        """Replace the status, unless it stands so already."""
        wanted = json_form({**obj, "status": status}, informer.kind)
        if (obj.get("status") or {}) in (status, wanted["status"]):
            return obj
        return await self.update(informer, wanted, "status")

    async def patch(self, informer: Informer, obj: Obj, patch: Obj, **options: Any) -> Obj:
        """Patch this very object (by uid)."""
        metadata = {**(patch.get("metadata") or {}), "uid": uid_of(obj)}
        body = {**patch, "metadata": metadata}
        patched = await self.client.patch(informer.kind, name_of(obj), body, namespace_of(obj), **options)
        informer.observe(patched)
        return patched

    async def delete(self, informer: Informer, obj: Obj, **options: Any) -> bool:
        """Delete this very object; False if it was gone already."""
        try:
            answer = await self.client.delete(
                informer.kind, name_of(obj), namespace_of(obj), uid=uid_of(obj), **options
            )
        except StatusError as error:
            if error.code not in (404, 409):
                raise
            # Not there, or another object of that name: then this one is gone. Other conflicts are for the caller.
            live = await informer.fetch(name_of(obj), namespace_of(obj)) if error.code == 409 else None
            if live is not None and uid_of(live) == uid_of(obj):
                raise
            informer.observe_deleted(obj)
            return False
        informer.observe_deleted(obj, answer)
        return True

    async def remove_finalizer(self, informer: Informer, obj: Obj, finalizer: str) -> None:
        """Take one finalizer off this very object; gone objects are fine."""
        finalizers = (obj["metadata"].get("finalizers") or []).copy()
        if finalizer not in finalizers:
            return
        finalizers.remove(finalizer)
        metadata = {"finalizers": finalizers or None, "resourceVersion": obj["metadata"].get("resourceVersion")}
        try:
            await self.patch(informer, obj, {"metadata": metadata})
        except StatusError as error:
            if error.code != 404:
                raise
            informer.observe_deleted(obj)

    async def live(self, kind: Kind, name: str, namespace: str = "") -> Obj | None:
        """The object as the server has it now, past any cache."""
        with suppress_status(404):
            return await self.client.get(kind, name, namespace)
        return None


def gathering_pause(size: int) -> float:
    """Seconds to gather changes before so many objects are looked at."""
    return min(size * _PAUSE_PER_OBJECT, _LONGEST_PAUSE) if size >= _SMALL else 0.0


async def slow_start(count: int, action: Callable[[int], Awaitable[None]], first: int = 1) -> int:
    """Call `action(i)` for each i below `count`, in batches that double while all succeed; how many succeeded.

    After a batch with a failure nothing more is begun and the first failure is raised: a quota that refuses all pods
    costs one request, not a thousand.
    """
    done, batch = 0, first
    while done < count:
        size = min(batch, count - done)
        results = await asyncio.gather(*(action(done + i) for i in range(size)), return_exceptions=True)
        done += sum(not isinstance(result, BaseException) for result in results)
        raise_first(results)
        batch *= 2
    return done
