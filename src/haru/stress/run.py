"""Carry a plan out on a cluster: create, watch and check everything, delete, drain, and report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from haru.client.api import ApiClient
from haru.client.backoff import Backoff
from haru.client.informer import Informer
from haru.kube.errors import StatusError, suppress_status
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, key_of, name_of, namespace_of
from haru.stress.cluster import Ground
from haru.stress.feasibility import fits, usable_nodes
from haru.stress.history import History, Rules
from haru.stress.manifests import (
    CLAIMS,
    GROUPS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SLICES,
    namespace_object,
    objects_of,
    pod_names,
    priority_class,
)
from haru.stress.plan import Plan, WorkloadUnit
from haru.stress.queue import WaitingWorks
from haru.stress.report import Facts, Report, make_report

_log = logging.getLogger(__name__)
_TICK_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 0.5
_LONGEST_PAUSE: Final = 2.0


@dataclass(slots=True)
class Settings:
    """How a run is carried out."""

    max_pods: int = 200
    """So many pods of the run exist at once at most."""
    drain_seconds: float = 120.0
    """How long after the last creation works may still wait."""
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is."""

    seconds: float
    created: int
    planned: int
    waiting: int
    bound: int
    running: int
    deleted: int
    held_devices: int
    broken: int
    faults: int


class StressRun:
    """One run; `history` can be read while it goes on."""

    def __init__(self, client: ApiClient, plan: Plan, ground: Ground, settings: Settings) -> None:
        self._client = client
        self._plan = plan
        self._ground = ground
        self._settings = settings
        self.history = History(ground.target.run, settings.rules)
        self.queue = WaitingWorks(self.history)
        self.faults: list[Obj] = []
        self._alive: dict[str, WorkloadUnit] = {}
        self._created = self._deleted = self._scheduled = 0
        self._was_away = False
        self._room = asyncio.Condition()
        kinds: list[tuple[Kind, Callable[[Obj | None, Obj | None, float], None]]] = [
            (NODES, self.history.node_changed),
            (PODS, self.history.pod_changed),
        ]
        if ground.claims:
            kinds += [(SLICES, self.history.slice_changed), (CLAIMS, self.history.claim_changed)]
        if ground.groups:
            kinds.append((GROUPS, self.history.group_changed))
        self._informers = [self._watched(kind, changed) for kind, changed in kinds]
        self._began = 0.0

    def _watched(self, kind: Kind, changed: Callable[[Obj | None, Obj | None, float], None]) -> Informer:
        informer = Informer(self._client, kind, backoff=Backoff(base=0.2, cap=_LONGEST_PAUSE))
        informer.add_handler(
            lambda obj: changed(None, obj, self.now),
            lambda old, new: changed(old, new, self.now),
            lambda obj: changed(obj, None, self.now),
        )
        return informer

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - self._began

    def progress(self) -> Progress:
        """Where the run is now."""
        history = self.history
        return Progress(
            seconds=self.now,
            created=self._created,
            planned=len(self._plan.units),
            waiting=len(self.queue),
            bound=sum(map(len, history.bound.values())),
            running=sum(map(len, history.running.values())),
            deleted=self._deleted,
            held_devices=history.devices.held(),
            broken=len(history.broken),
            faults=len(self.faults),
        )

    async def run(self) -> Report:
        """Carry the plan out; its report. What was created is left to `cluster.clean_up`."""
        self._began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(informer.run()) for informer in self._informers]
            for informer in self._informers:
                await informer.wait_synced()
            await self._prepare()
            self._began = asyncio.get_running_loop().time()
            background.append(group.create_task(self._look()))
            works = [group.create_task(self._carry_out(unit)) for unit in self._plan.units]
            limit = self._plan.limits.seconds + self._settings.drain_seconds
            await asyncio.wait(works, timeout=limit)
            late = tuple(unit.name for unit in self._alive.values() if self.queue.needed(unit))
            for task in (*background, *works):
                task.cancel()
        return make_report(self._plan, self._facts(late), self.history)

    def _facts(self, late: tuple[str, ...]) -> Facts:
        return Facts(
            scheduler=self._ground.target.scheduler,
            server=self._ground.server,
            nodes=self._ground.nodes,
            seconds=self.now,
            scheduled_works=self._scheduled,
            preempted_works=len(self.history.preempted),
            unscheduled_works=late,
            gaps=sum(informer.lists - 1 for informer in self._informers),
            notes=self._ground.notes,
            faults=tuple(self.faults),
        )

    async def _prepare(self) -> None:
        target = self._ground.target
        await self._create(NAMESPACES, namespace_object(target))
        if "preemption" in self._plan.limits.kinds:
            await self._create(PRIORITY_CLASSES, priority_class(target))

    # -- one work -----------------------------------------------------------------------------------------------------

    async def _carry_out(self, unit: WorkloadUnit) -> None:
        """Create a work in its time, let it run, and delete it."""
        await asyncio.sleep(max(unit.at - self.now, 0))
        async with self._room:
            await self._room.wait_for(lambda: self._has_room(unit))
            self._alive[unit.name] = unit
        namespace = self._ground.target.namespace
        self.history.creating(unit.name, (f"{namespace}/{name}" for name in pod_names(unit)), self.now)
        for kind, obj in objects_of(unit, self._ground.target):
            await self._create(kind, obj)
        created = self.now
        self._created += 1
        self.queue.created(unit, created)
        if unit.deleted_after is not None:
            await asyncio.sleep(unit.deleted_after)
        elif unit.kind != "gang":
            await self._end_singly(unit)
        elif await self._until_running(unit):
            await asyncio.sleep(unit.runs)
        if not self.queue.needed(unit):
            self._scheduled += 1
        await self._delete(unit)

    def _has_room(self, unit: WorkloadUnit) -> bool:
        """Whether the unit's pods may be created beside those that exist; the first one may always."""
        alive = sum(one.pods for one in self._alive.values())
        return not alive or alive + unit.pods <= self._settings.max_pods

    async def _until_running(self, unit: WorkloadUnit) -> bool:
        """Wait until all pods of a work run; False when another work took its place."""
        while len(self.history.running[unit.name]) < unit.pods:
            if unit.name in self.history.preempted:
                return False
            if unit.kind == "gang" and not self.queue.needed(unit) and self._late_members(unit):
                return True
            await asyncio.sleep(0.1)
        return True

    def _late_members(self, unit: WorkloadUnit) -> bool:
        """A gang that has its minCount works; members beyond it may come or not."""
        return unit.min_count <= len(self.history.running[unit.name]) < unit.pods

    async def _end_singly(self, unit: WorkloadUnit) -> None:
        """Delete each pod once it has run, for it may hold what the others wait for; a shared claim stays."""
        async with asyncio.TaskGroup() as group:
            for number in range(unit.pods):
                group.create_task(self._end_pod(unit, number))

    async def _end_pod(self, unit: WorkloadUnit, number: int) -> None:
        objects = objects_of(unit, self._ground.target)
        pod = [obj for kind, obj in objects if kind is PODS][number]
        record = self.history.pods[key_of(pod)]
        while record.running is None:
            if unit.name in self.history.preempted:
                return
            await asyncio.sleep(0.1)
        await asyncio.sleep(unit.runs)
        self.history.deleting(key_of(pod))
        await self._delete_one(PODS, pod)
        if unit.kind == "claim" and unit.devices:
            await self._delete_one(CLAIMS, [obj for kind, obj in objects if kind is CLAIMS][number])

    async def _create(self, kind: Kind, obj: Obj) -> None:
        """Create an object, again until the API has it."""

        async def create() -> None:
            try:
                await self._client.create(kind, obj)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise

        await _retried(create, _not_yet)

    async def _delete(self, unit: WorkloadUnit) -> None:
        self.history.deleting(unit.name)
        self.queue.left(unit.name)
        for kind, obj in reversed(objects_of(unit, self._ground.target)):
            await self._delete_one(kind, obj)
        self._deleted += 1
        async with self._room:
            self._alive.pop(unit.name, None)
            self._room.notify_all()

    async def _delete_one(self, kind: Kind, obj: Obj) -> None:
        async def delete() -> None:
            with suppress_status(404):
                await self._client.delete(kind, name_of(obj), namespace_of(obj))

        await _retried(delete, lambda error: error.code == 409)

    # -- what is looked at --------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        """Check what only time shows; while the API is away no time passes."""
        away = any(informer.interrupted for informer in self._informers)
        if away or self._was_away:
            self.resume()
        self._was_away = away
        self.history.tick(self.now)
        self.queue.tick(self.now, self._fits)

    def resume(self) -> None:
        """Times of grace start anew."""
        self.history.resume(self.now)
        self.queue.resume(self.now)

    def _fits(self, unit: WorkloadUnit, needed: int) -> bool:
        if unit.kind == "shared" and needed < unit.pods:
            return False  # the rest must go where the claim is: this count cannot tell
        target = self._ground.target
        tolerated = [toleration["key"] for toleration in target.tolerations]
        usable = usable_nodes(self.history.nodes.nodes, target.node_selector, tolerated)
        return fits(unit, needed, usable, self.history, self._ground.matches)


async def _retried(request: Callable[[], Awaitable[None]], passes: Callable[[StatusError], bool]) -> None:
    """Repeat a request until the API has carried it out; raises a refusal that does not pass."""
    while True:
        try:
            return await request()
        except StatusError as error:
            if error.code < 500 and error.code != 429 and not passes(error):
                raise
        except OSError:
            pass
        await asyncio.sleep(_RETRY_SECONDS)


def _not_yet(error: StatusError) -> bool:
    """Whether a refusal passes: a new namespace has its ServiceAccount, a new PriorityClass is known, in a moment."""
    return error.code == 403 and ("serviceaccount" in error.message or "PriorityClass" in error.message)
