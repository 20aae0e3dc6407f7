"""Weeks in the life of a cluster, in virtual time: work comes, waits, runs, is evicted and comes again, and ends.

Real: the API server over its store, the scheduler, and the controllers of claims and pods. Played: kubelets, which
run pods for their time and bury those that are evicted; owners, who make lost pods anew until their work is done;
and machines, which come and go. A `ChurnWorld` is told a seed and runs by it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import virtual_time
from faulty_api import FaultyApi
from haru.client.api import ApiClient
from haru.client.event_series import SeriesRecorder
from haru.client.informer import Informer
from haru.controllers.manager import ControllerManager
from haru.controllers.objects import (
    CLAIM_TEMPLATES,
    CLAIMS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    SERVICE_ACCOUNTS,
    SLICES,
)
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind, known_kind
from haru.kube.names import format_time
from haru.scheduler.config import scheduler_config
from haru.scheduler.decision_log import DecisionLog
from haru.scheduler.scheduler import Scheduler
from haru.scheduler.settings import Fairness
from virtual_server import started_server

Obj = dict[str, Any]
NS, DRIVER = "default", "test.example.com"
CARDS, CPU, MACHINES = 4, 16, 4
LEVELS = {"low": 0, "middle": 100, "high": 1000}
CONTROLLERS = (
    "resourceclaim-controller",
    "pod-garbage-collector-controller",
    "podgroup-protection-controller",
)
MINUTE = 60.0
HOPELESS = "hopeless"


@dataclass(eq=False)
class Work:
    """One pod, or a gang of pods that must run at once, each for `seconds`."""

    name: str
    size: int
    cards: int
    level: str
    seconds: float
    limit: int | None = None
    whole: bool = False
    alive: dict[str, bool] = field(default_factory=dict)
    """Its pods, and whether each has a node."""
    done: int = 0
    made: int = 0
    waits_since: float = 0.0
    changes_before: int = 0
    attempts: int = 0
    longest: float = 0.0
    restarting: bool = False

    @property
    def is_gang(self) -> bool:
        return self.size > 1

    @property
    def finished(self) -> bool:
        return self.done >= self.size


class ChurnWorld:
    """One run. Use as `await ChurnWorld(seed).play(minutes)` inside `virtual_time.run`."""

    def __init__(
        self,
        seed: int,
        *,
        backfill: bool = True,
        load: float = 0.7,
        fault_rate: float = 0.005,
        log: Callable[[], DecisionLog] | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.fault_rate = fault_rate
        self.works: dict[str, Work] = {}
        self.problems: list[str] = []
        self.evictions: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.changes = 0
        """How often something has left, come or grown, so that a verdict may be another one."""
        self._fairness = Fairness(backfill=backfill)
        self._load = load
        self._log = log
        self._gates = FeatureGates.accelerator_defaults()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ends: dict[str, asyncio.Task[None]] = {}
        self._machines: set[str] = set()
        self._scheduler_task: asyncio.Task[None] | None = None

    # -- life -------------------------------------------------------------------------------------------------------

    async def play(self, minutes: float) -> None:
        """Churn for so many minutes, then no more arrivals or faults until everything has had the time to run."""
        await self._start()
        try:
            end = _now() + minutes * MINUTE
            await asyncio.gather(self._arrivals(end), self._machines_come_and_go(end), self._restarts(end))
            self.faulty.rate = 0.0
            await self._drain()
            self._verdict()
        finally:
            await self._stop()

    async def _start(self) -> None:
        self.server = await started_server(self._gates)
        self.admin = ApiClient.in_process(self.server, "admin", rng=random.Random(self.seed))
        self.faulty = FaultyApi(self.server, random.Random(self.seed + 1), 0.0)
        await self._furnish()
        client = ApiClient.in_process(self.server, "admin", rng=random.Random(self.seed))
        clock = random.Random(self.seed)
        self._spawn(ControllerManager(client, self._gates, CONTROLLERS, clock=virtual_time.clock(), rng=clock).run())
        pods = Informer(self.admin, PODS)
        pods.add_handler(lambda pod: self._seen(None, pod), self._seen, self._gone)
        self._spawn(pods.run())
        await pods.wait_synced()
        for number in range(MACHINES):
            await self._add_machine(f"machine-{number}")
        await self._start_scheduler()
        self.faulty.rate = self.fault_rate

    async def _stop(self) -> None:
        tasks = {*self._tasks, *self._ends.values(), *filter(None, [self._scheduler_task])}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.server.stop()

    async def _start_scheduler(self) -> None:
        client = ApiClient.in_process(self.faulty, "admin", rng=random.Random(self.seed))
        config = scheduler_config(
            self._gates,
            ["default-scheduler"],
            seed=self.seed,
            fairness=self._fairness,
            clock=virtual_time.now,
            monotonic=_now,
        )
        recorder = SeriesRecorder(self.admin, "scheduler", now=virtual_time.now)
        scheduler = Scheduler(client, config, recorder, self._log() if self._log is not None else None)
        pop = scheduler.queue.pop

        def counted(now: float) -> Any:
            unit = pop(now)
            if unit is not None:
                self.attempts[unit.key[2]] += 1
            return unit

        scheduler.queue.pop = counted  # type: ignore[method-assign]
        self._scheduler_task = asyncio.create_task(scheduler.run())
        await scheduler.ready.wait()

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.problems.append(f"something fell over: {task.exception()!r}")

    # -- what is there ----------------------------------------------------------------------------------------------

    async def _furnish(self) -> None:
        for name in (NS, "kube-system"):
            await _maybe(self._create(NAMESPACES, {"metadata": {"name": name}}))
        await _maybe(self._create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}))
        await self._create(known_kind("resource.k8s.io/v1", "DeviceClass"), {"metadata": {"name": "card"}, "spec": {}})
        for name, value in LEVELS.items():
            await self._create(
                known_kind("scheduling.k8s.io/v1", "PriorityClass"), {"metadata": {"name": name}, "value": value}
            )
        for count in (1, 2, 4, 99):
            request = {"name": "r", "exactly": {"deviceClassName": "card", "count": min(count, 32)}}
            spec = {"spec": {"devices": {"requests": [request]}}}
            await self._create(CLAIM_TEMPLATES, {"metadata": {"name": f"cards-{count}"}, "spec": spec})

    async def _create(self, kind: Kind, obj: Obj) -> Obj:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        return await self.admin.create(kind, body, NS if kind.namespaced else "")

    async def _add_machine(self, name: str) -> None:
        await _maybe(self._create(NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}))
        amounts = {"cpu": str(CPU), "memory": "64Gi", "pods": "30"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}
        await self.admin.patch(NODES, name, status, subresource="status")
        await self.admin.patch(NODES, name, {"spec": {"taints": None}})
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"card-{i}"} for i in range(CARDS)]
        spec = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices}
        await _maybe(self._create(SLICES, {"metadata": {"name": name}, "spec": spec}))
        self._machines.add(name)
        self.changes += 1

    async def _lose_machine(self, name: str) -> None:
        self._machines.discard(name)
        await _maybe(self.admin.delete(SLICES, name))
        await _maybe(self.admin.delete(NODES, name))
        for pod in (await self.admin.list(PODS, NS))["items"]:
            if pod["spec"].get("nodeName") == name:
                await self._bury(pod["metadata"]["name"])
        self.changes += 1

    # -- what people want -------------------------------------------------------------------------------------------

    def _draw(self, number: int) -> Work:
        size = self.rng.choice([1, 1, 1, 2, 3, 4, 6])
        cards = self.rng.choice([0, 1, 1, 2]) if size < 6 else self.rng.choice([1, 2])
        if size == 1:
            cards = self.rng.choice([0, 1, 2, 4])
        level = self.rng.choice(["low", "low", "low", "middle", "middle", "high"])
        seconds = self.rng.choice([2, 5, 10, 20]) * MINUTE
        limit = self.rng.choice([None, int(seconds), int(1.5 * seconds)])
        return Work(f"work-{number}", size, cards, level, seconds, limit, whole=self.rng.random() < 0.5)

    async def _arrivals(self, end: float) -> None:
        number = 0
        await self._arrive(Work(HOPELESS, 1, 99, "high", MINUTE))
        while True:
            work = self._draw(number)
            demand = work.size * max(work.cards, 0.5) * work.seconds
            await asyncio.sleep(self.rng.expovariate(1.0) * demand / (CARDS * MACHINES * self._load))
            if _now() >= end:
                return
            await self._arrive(work)
            number += 1

    async def _arrive(self, work: Work) -> None:
        self.works[work.name] = work
        work.waits_since, work.changes_before = _now(), self.changes
        if work.is_gang:
            spec = {
                "schedulingPolicy": {"gang": {"minCount": work.size}},
                "priorityClassName": work.level,
                "disruptionMode": "PodGroup" if work.whole else "Pod",
            }
            await self._create(POD_GROUPS, {"metadata": {"name": work.name}, "spec": spec})
        for _ in range(work.size):
            await self._make_pod(work)

    async def _make_pod(self, work: Work) -> None:
        name = f"{work.name}-{work.made}" if work.is_gang or work.made else work.name
        work.made += 1
        work.alive[name] = False
        container: Obj = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}
        spec: Obj = {
            "containers": [container],
            "priorityClassName": work.level,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 10,
        }
        if work.is_gang:
            spec["schedulingGroup"] = {"podGroupName": work.name}
        if work.cards:
            spec["resourceClaims"] = [{"name": "cards", "resourceClaimTemplateName": f"cards-{work.cards}"}]
            container["resources"]["claims"] = [{"name": "cards"}]
        if work.limit is not None:
            spec["activeDeadlineSeconds"] = work.limit
        await self._create(PODS, {"metadata": {"name": name, "labels": {"work": work.name}}, "spec": spec})

    # -- what kubelets and owners do --------------------------------------------------------------------------------

    def _seen(self, old: Obj | None, pod: Obj) -> None:
        name, work = pod["metadata"]["name"], self.works[pod["metadata"]["labels"]["work"]]
        if pod["spec"].get("nodeName") and not work.alive.get(name, True):
            work.alive[name] = True
            self.changes += 1
            self._ends[name] = asyncio.create_task(self._run(work, name))
            self._placed(work)
        if pod["metadata"].get("deletionTimestamp") and not (old or {}).get("metadata", {}).get("deletionTimestamp"):
            self._evicted(work, pod)
            self._spawn(self._let_go(name))

    def _placed(self, work: Work) -> None:
        """Its last pod has a place: how long that took, and how often it was tried."""
        if not all(work.alive.values()):
            return
        waited, changed = _now() - work.waits_since, self.changes - work.changes_before
        work.longest = max(work.longest, waited)
        tried = self._tries(work)
        self._check_attempts(work, tried, waited, changed)

    def _tries(self, work: Work) -> int:
        total = self.attempts[work.name] + sum(self.attempts[name] for name in work.alive if name != work.name)
        tried, work.attempts = total - work.attempts, total
        return tried

    def _check_attempts(self, work: Work, tried: int, waited: float, changed: int) -> None:
        """Every attempt has a reason: something changed, or the safety net's five minutes were over."""
        most = 5 + 2 * changed + waited / 300
        if tried > most:
            self.problems.append(f"{work.name}: {tried} attempts in {waited:.0f} s and {changed} changes")

    def _evicted(self, work: Work, pod: Obj) -> None:
        if any(c["type"] == "DisruptionTarget" for c in pod["status"].get("conditions") or ()):
            self.evictions[work.name] += 1
            if work.level == "high":
                self.problems.append(f"{pod['metadata']['name']}: evicted, and nothing is more important")

    async def _run(self, work: Work, name: str) -> None:
        status = {"phase": "Running", "startTime": format_time(virtual_time.now())}
        await _maybe(self.admin.patch(PODS, name, {"status": status}, NS, "merge", "status"))
        await asyncio.sleep(work.seconds)
        work.done += 1
        await _maybe(self.admin.patch(PODS, name, {"status": {"phase": "Succeeded"}}, NS, "merge", "status"))
        await self._bury(name)
        if work.finished and work.is_gang:
            await _maybe(self.admin.delete(POD_GROUPS, work.name, NS))

    async def _let_go(self, name: str) -> None:
        await asyncio.sleep(self.rng.uniform(0.5, 10))
        await self._bury(name)

    async def _bury(self, name: str) -> None:
        await _maybe(self.admin.delete(PODS, name, NS, grace_period_seconds=0))

    def _gone(self, pod: Obj) -> None:
        name, work = pod["metadata"]["name"], self.works[pod["metadata"]["labels"]["work"]]
        for status in pod["status"].get("resourceClaimStatuses") or ():
            # The collector of garbage looks for new kinds every thirty seconds; weeks have many of them.
            self._spawn(_maybe(self.admin.delete(CLAIMS, status["resourceClaimName"], NS)))
        self.changes += 1
        work.alive.pop(name, None)
        end = self._ends.pop(name, None)
        succeeded = pod["status"].get("phase") == "Succeeded"
        if end is not None and not succeeded:
            end.cancel()
        if not succeeded:
            self._spawn(self._again(work))

    async def _again(self, work: Work) -> None:
        """A pod was lost: its owner makes it anew, and what is left of a gang begins from the beginning with it."""
        work.waits_since, work.changes_before = _now(), self.changes
        if not work.is_gang:
            await self._make_pod(work)
            return
        if work.restarting:
            return
        work.restarting = True
        while work.alive:
            for name in list(work.alive):
                await self._bury(name)
            await asyncio.sleep(0.1)
        work.restarting, work.done = False, 0
        for _ in range(work.size):
            await self._make_pod(work)

    # -- what happens to machines and schedulers --------------------------------------------------------------------

    async def _machines_come_and_go(self, end: float) -> None:
        while (pause := self.rng.expovariate(1.0) * 180 * MINUTE) + _now() < end:
            await asyncio.sleep(pause)
            name = self.rng.choice(sorted(self._machines))
            await self._lose_machine(name)
            await asyncio.sleep(self.rng.choice([1, 10, 30]) * MINUTE)
            await self._add_machine(name)

    async def _restarts(self, end: float) -> None:
        while (pause := self.rng.expovariate(1.0) * 400 * MINUTE) + _now() < end:
            await asyncio.sleep(pause)
            assert self._scheduler_task is not None
            self._scheduler_task.cancel()
            await asyncio.gather(self._scheduler_task, return_exceptions=True)
            await self._start_scheduler()

    # -- the end ----------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[Work]:
        return [work for work in self.works.values() if not work.finished and work.name != HOPELESS]

    async def _drain(self) -> None:
        """All that is left runs one after the other in the worst case."""
        seconds = sum(work.seconds for work in self.unfinished()) + 60 * MINUTE
        for _ in range(int(seconds / MINUTE)):
            if self.unfinished():
                await asyncio.sleep(MINUTE)
        assert self._scheduler_task is not None
        if self._scheduler_task.done():
            self.problems.append(f"the scheduler fell over: {self._scheduler_task.exception()!r}")

    def _verdict(self) -> None:
        for work in self.unfinished():
            self.problems.append(f"{work.name} ({work.size} x {work.cards} cards, {work.level}) never ended")
        hopeless = self.works[HOPELESS]
        if hopeless.done or any(hopeless.alive.values()):
            self.problems.append("what no machine can serve was placed")
        self._check_attempts(hopeless, self._tries(hopeless), _now(), self.changes)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _maybe(work: Awaitable[Any]) -> None:
    """What is gone, or there already, is as well."""
    try:
        await work
    except StatusError as error:
        if error.code not in (404, 409, 422):
            raise
