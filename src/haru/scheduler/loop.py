"""The scheduler itself: takes units from the queue, has the engine decide, enacts the decision, reports.

One cycle at a time decides on a snapshot; what it decided is assumed at once, so that the next cycle sees it; writing
and binding go on beside the following cycles. A gang is written as a whole before its first pod is bound, and given
back as a whole if too few members could be written.
Source: kube-scheduler 1.36 as behaviour; KEP-4671 (PodGroup cycle), KEP-4381 (claims).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.engine.cluster import Cluster
from haru.engine.decision import Decision, GroupKey, MemberDecision, PodKey
from haru.engine.groups import Options, decide, pre_enqueue
from haru.kube.errors import StatusError
from haru.kube.names import format_time
from haru.scheduler import hints
from haru.scheduler.binding import (
    PODS,
    Binder,
    OutcomeUnknownError,
    PodGoneError,
    claim_writes,
    reserved_claim,
)
from haru.scheduler.conditions import group_scheduled_patch, pod_scheduled_patch
from haru.scheduler.idle import idle_claims
from haru.scheduler.metrics import SchedulerMetrics
from haru.scheduler.queue import Place, SchedulingQueue, Unit
from haru.scheduler.watching import Watchers, served_kinds

Obj = dict[str, Any]
_log = logging.getLogger(__name__)
_FLUSH_SECONDS = 30.0
_REPORTS_AT_ONCE = 16
_HOLD_REPORT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """What a scheduler serves and how it decides. `options` makes the engine's options for the n-th decision."""

    scheduler_names: frozenset[str]
    options: Callable[[int], Options]
    clock: Callable[[], datetime]
    groups: bool = True
    gang_scheduling: bool = True
    workload_claims: bool = True
    claim_timestamps: bool = True
    report_holds: bool = True
    monotonic: Callable[[], float] = time.monotonic


class Scheduler:
    """A live scheduler over one API client. `run` keeps going until cancelled."""

    def __init__(self, client: ApiClient, config: SchedulerConfig, recorder: EventRecorder) -> None:
        self._client = client
        self._config = config
        self._recorder = recorder
        self.cluster = Cluster()
        self.queue = SchedulingQueue()
        self.metrics = SchedulerMetrics(self.queue.pending)
        self.ready = asyncio.Event()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reports = asyncio.Semaphore(_REPORTS_AT_ONCE)
        self._decisions = 0
        self._blocked: dict[str, str] = {}
        self._watchers: Watchers | None = None
        self._binder = Binder(client, self._cached_claim, self._claim_timestamp)

    # -- running ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch, decide and bind until cancelled."""
        kinds, missing = await served_kinds(self._client)
        if "PodGroup" not in kinds:
            _log.warning("the server does not serve %s: gangs are off, pods are scheduled one by one", missing[0])
        self._watchers = Watchers(self._client, kinds, self.cluster, self)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watchers.run(), name="scheduler watchers")
            group.create_task(self._flush_now_and_then(), name="scheduler flush")
            if self._config.report_holds:
                group.create_task(self._report_holds(), name="scheduler holds")
            await self._watchers.wait_synced()
            self._settle_groups()
            self.ready.set()
            await self._cycles()

    async def _cycles(self) -> None:
        while True:
            now = self._config.monotonic()
            unit = self.queue.pop(now)
            if unit is not None:
                self._cycle(unit)
                # Let watch events and the API server in between two decisions.
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            due = self.queue.next_wake()
            try:
                async with asyncio.timeout(None if due is None else max(due - now, 0.0)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _flush_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            if self.queue.flush_leftovers(self._config.monotonic()):
                self._wake.set()

    async def _report_holds(self) -> None:
        """Pods that PreEnqueue has held for a while say so (KEP-5501): short holds are not worth a write."""
        seen: dict[str, str] = {}
        while True:
            await asyncio.sleep(_HOLD_REPORT_SECONDS)
            for path, message in self._blocked.items():
                info = self.cluster.snapshot().pods.get(path)
                if seen.get(path) == message and info is not None and not info.gated:
                    self._report_pod(info.obj, "NotReadyForScheduling", message, event=False)
            seen = dict(self._blocked)

    async def wait_seen(self, kind: str, revision: int) -> None:
        """Wait until every object of a kind up to a revision counts in decisions."""
        await self.ready.wait()
        assert self._watchers is not None
        await self._watchers.informers[kind].wait_seen(revision)

    async def drain(self) -> None:
        """Wait until everything that was decided so far is written or given up."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what the watchers say ----------------------------------------------------------------------------------------

    def pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        """Into the queue, out of it, or a change that helps others."""
        pod = new or old
        if pod is None:
            return
        path = _path(pod)
        unit_key = self._unit_key(pod)
        if new is not None and self._is_ours(new):
            if self.cluster.is_assumed(_pod_key(new)):
                return
            changed = old is not None and hints.scheduling_fields(old) != hints.scheduling_fields(new)
            is_new = old is None or path not in getattr(self.queue.units.get(unit_key), "pods", {})
            unit = self.queue.put(unit_key, path, _priority(new), self._config.monotonic())
            if is_new or changed:
                self._weigh(unit, path)
        else:
            self._blocked.pop(path, None)
            self.queue.take_out(unit_key, path)
        was_placed = bool(old and (old.get("spec") or {}).get("nodeName"))
        if new is None and was_placed:
            self.may_help(hints.POD_GONE)
        elif new is not None and (new.get("spec") or {}).get("nodeName") and not was_placed:
            self.may_help(hints.POD_PLACED)

    def claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        """A claim that appeared may release who waits for it; one that was freed may help anybody."""
        if old is None and new is not None:
            self._weigh_blocked(new["metadata"].get("namespace", ""))
        self.may_help(hints.claim_change(old, new))

    def group_changed(self, old: Obj | None, new: Obj | None) -> None:
        """A PodGroup that appears may complete a gang that waits for it."""
        if new is None:
            return
        key = ("group", new["metadata"].get("namespace", ""), new["metadata"]["name"])
        unit = self.queue.units.get(key)
        if unit is not None and old is None:
            for path in list(unit.pods):
                self._check(path)
            self._settle_unit(unit)
        elif unit is not None and (old or {}).get("status") != new.get("status"):
            for path in [p for p in unit.pods if p in self._blocked]:
                self._weigh(unit, path)

    def may_help(self, plugins: frozenset[str]) -> None:
        """Wakes what these plugins had rejected."""
        if self.queue.on_event(plugins, self._config.monotonic()):
            self._wake.set()

    # -- PreEnqueue ---------------------------------------------------------------------------------------------------

    def _is_ours(self, pod: Obj) -> bool:
        spec = pod.get("spec") or {}
        phase = (pod.get("status") or {}).get("phase")
        return (
            not spec.get("nodeName")
            and not pod["metadata"].get("deletionTimestamp")
            and phase not in ("Succeeded", "Failed")
            and spec.get("schedulerName", "default-scheduler") in self._config.scheduler_names
        )

    def _unit_key(self, pod: Obj) -> tuple[str, str, str]:
        namespace = pod["metadata"].get("namespace", "")
        group = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
        if group and self._config.groups:
            return ("group", namespace, group)
        return ("pod", namespace, pod["metadata"]["name"])

    def _check(self, path: str) -> bool:
        info = self.cluster.snapshot().pods.get(path)
        if info is None:
            return False
        reason = pre_enqueue(
            self.cluster.snapshot(),
            info.obj,
            gang_scheduling=self._config.gang_scheduling,
            workload_claims=self._config.workload_claims,
        )
        if reason is None:
            self._blocked.pop(path, None)
            return True
        self._blocked[path] = reason.message
        return False

    def _weigh(self, unit: Unit, path: str) -> None:
        """Asks PreEnqueue about one pod; with the last one that a gang waits for, the whole unit is released."""
        self._check(path)
        if unit.is_group and unit.place is Place.HELD:
            # The quorum is the group's: what held the siblings may have ended with this pod.
            for sibling in [p for p in unit.pods if p in self._blocked and p != path]:
                if not self._check(sibling) and path in self._blocked:
                    break
        self._settle_unit(unit)

    def _weigh_blocked(self, namespace: str) -> None:
        for unit in [u for u in self.queue.units.values() if u.key[1] == namespace]:
            blocked = [p for p in unit.pods if p in self._blocked]
            freed = [path for path in blocked if self._check(path)]
            if freed:
                self._settle_unit(unit)

    def _settle_unit(self, unit: Unit) -> None:
        free = [p for p in unit.pods if p not in self._blocked]
        if free and len(free) >= self._needed(unit):
            self.queue.release(unit, self._config.monotonic())
            self._wake.set()
        elif unit.place is not Place.IN_FLIGHT:
            self.queue.hold(unit, next(iter(self._blocked.get(p, "") for p in unit.pods), ""))

    def _needed(self, unit: Unit) -> int:
        """How many members must be free to go before an attempt makes sense: all that the quorum still lacks."""
        if not unit.is_group:
            return 1
        snapshot = self.cluster.snapshot()
        key = GroupKey(unit.key[1], unit.key[2])
        policy = ((snapshot.pod_group(key) or {}).get("spec") or {}).get("schedulingPolicy") or {}
        minimum = int((policy.get("gang") or {}).get("minCount") or 1)
        return max(minimum - len(snapshot.group_state(key).scheduled), 1)

    # -- the cycle ----------------------------------------------------------------------------------------------------

    def _cycle(self, unit: Unit) -> None:
        snapshot = self.cluster.snapshot()
        pods = self._members(unit, snapshot.pods)
        if not pods:
            self.queue.done(unit)
            return
        group = snapshot.pod_group(GroupKey(unit.key[1], unit.key[2])) if unit.is_group else None
        self._decisions += 1
        started = self._config.monotonic()
        try:
            decision = decide(snapshot, pods, group=group, options=self._config.options(self._decisions))
        except Exception as error:
            _log.exception("deciding %s failed", "/".join(unit.key))
            self._give_back(unit, pods, f"internal error: {error}")
            return
        elapsed = self._config.monotonic() - started
        (self.metrics.group_algorithm_seconds if unit.is_group else self.metrics.algorithm_seconds).observe(elapsed)
        self._count(unit, decision, pods)
        self._enact(unit, decision, {_path(p): p for p in pods})

    def _members(self, unit: Unit, known: Mapping[str, Any]) -> list[Obj]:
        members: list[Obj] = []
        for path in list(unit.pods):
            info = known.get(path)
            if info is None or not self._is_ours(info.obj):
                self.queue.take_out(unit.key, path)
            elif path not in self._blocked and not self.cluster.is_assumed(info.key):
                members.append(info.obj)
        return members

    def _count(self, unit: Unit, decision: Decision, pods: Sequence[Obj]) -> None:
        profile = (pods[0].get("spec") or {}).get("schedulerName", "")
        for member in decision.members:
            self.metrics.attempts.labels(member.status, profile).inc()
        if unit.is_group:
            self.metrics.group_attempts.labels(profile, decision.status).inc()

    def _give_back(self, unit: Unit, pods: Sequence[Obj], message: str) -> None:
        for pod in pods:
            self._report_pod(pod, "SchedulerError", message)
        self.queue.fail(unit, self._config.monotonic())

    def _enact(self, unit: Unit, decision: Decision, pods: Mapping[str, Obj]) -> None:
        placed = decision.placed if decision.status == "scheduled" else ()
        for member in placed:
            self.cluster.assume_pod(member.pod, member.node or "")
            self.queue.take_out(unit.key, member.pod.path)
        self._assume_claims(placed)
        left = [m for m in decision.members if m not in placed]
        for member in left:
            reason = "SchedulerError" if "error" in (member.status, decision.status) else "Unschedulable"
            self._report_pod(pods[member.pod.path], reason, member.message or decision.message)
        now = self._config.monotonic()
        if not left:
            self.queue.done(unit)
            self._reweigh(unit)
        elif decision.status == "error" or any(m.status == "error" for m in left):
            self.queue.fail(unit, now)
        else:
            self.queue.reject(unit, {p for m in left for p in m.plugins}, now)
        if unit.is_group and not placed:
            reason = "SchedulerError" if decision.status == "error" else "Unschedulable"
            self._report_group(unit, "False", reason, decision.message)
        if decision.status == "unschedulable":
            self._free_idle_claims(unit, list(pods.values()))
        if placed:
            self._spawn(self._carry_out(unit, placed))

    def _free_idle_claims(self, unit: Unit, pods: Sequence[Obj]) -> None:
        snapshot = self.cluster.snapshot()
        group = snapshot.pod_group(GroupKey(unit.key[1], unit.key[2])) if unit.is_group else None
        for claim in idle_claims(snapshot, pods, group, workload_claims=self._config.workload_claims).values():
            self._spawn(self._binder.deallocate(claim))

    def _reweigh(self, unit: Unit) -> None:
        if self.queue.units.get(unit.key) is unit:
            for path in list(unit.pods):
                self._check(path)
            self._settle_unit(unit)

    def _assume_claims(self, placed: Sequence[MemberDecision]) -> None:
        for write in claim_writes(placed).values():
            claim = self.cluster.snapshot().claims.get(write.path)
            if claim is not None and write.allocation is not None:
                self.cluster.assume_claim(reserved_claim(claim, write, None))

    # -- carrying out -------------------------------------------------------------------------------------------------

    async def _carry_out(self, unit: Unit, placed: Sequence[MemberDecision]) -> None:
        failures = await self._binder.reserve(placed, nominate=unit.is_group and len(placed) > 1)
        self._confirm_claims(placed, failures)
        ready = [m for m in placed if m.pod not in failures]
        if failures and unit.is_group and not self._quorum_without(unit, failures):
            # All or nothing: what was written for the others is taken back, and nobody is bound.
            await self._binder.release(ready)
            text = "; ".join(sorted({str(e) for e in failures.values()}))
            failures |= {m.pod: PodsHeldBackError(f"a sibling could not be reserved: {text}") for m in ready}
            ready = []
        outcomes = await asyncio.gather(*(self._bind(m) for m in ready))
        failures |= {m.pod: problem for m, problem in zip(ready, outcomes, strict=True) if problem is not None}
        await self._take_back([m for m in placed if m.pod in failures], failures)
        if unit.is_group and ready:
            self._settle_group(GroupKey(unit.key[1], unit.key[2]))

    def _confirm_claims(self, placed: Sequence[MemberDecision], failures: Mapping[PodKey, Exception]) -> None:
        for write in claim_writes(placed).values():
            if write.pods & failures.keys():
                self.cluster.forget_claim(write.path)

    def _quorum_without(self, unit: Unit, failures: Mapping[PodKey, Exception]) -> bool:
        snapshot = self.cluster.snapshot()
        key = GroupKey(unit.key[1], unit.key[2])
        policy = ((snapshot.pod_group(key) or {}).get("spec") or {}).get("schedulingPolicy") or {}
        minimum = int((policy.get("gang") or {}).get("minCount") or 1)
        lost = {pod.path for pod in failures}
        return len(snapshot.group_state(key).scheduled - lost) >= minimum

    async def _bind(self, member: MemberDecision) -> Exception | None:
        try:
            await self._binder.bind(member)
        except Exception as error:
            return error
        pod = self.cluster.snapshot().pods.get(member.pod.path)
        if pod is not None:
            text = f"Successfully assigned {member.pod.path} to {member.node}"
            self._recorder.event(pod.obj, "Normal", "Scheduled", text, action="Binding")
        return None

    async def _take_back(self, members: Sequence[MemberDecision], failures: Mapping[PodKey, Exception]) -> None:
        if not members:
            return
        settled = (PodsHeldBackError, OutcomeUnknownError)
        await self._binder.release([m for m in members if not isinstance(failures[m.pod], settled)])
        for write in claim_writes(members).values():
            self.cluster.forget_claim(write.path)
        for member in members:
            problem = failures[member.pod]
            self.cluster.forget_pod(member.pod)
            info = self.cluster.snapshot().pods.get(member.pod.path)
            if info is None or not self._is_ours(info.obj) or isinstance(problem, PodGoneError):
                continue
            _log.warning("pod %s: %s", member.pod.path, problem)
            now = self._config.monotonic()
            self._report_pod(info.obj, "SchedulerError", str(problem))
            unit = self.queue.put(self._unit_key(info.obj), member.pod.path, _priority(info.obj), now)
            if unit.place is Place.HELD:
                self.queue.fail(unit, now)
        self.may_help(hints.POD_GONE)
        self._wake.set()

    def _cached_claim(self, path: str) -> Obj | None:
        if self._watchers is None:
            return None
        return self._watchers.informers["ResourceClaim"].store.get(path)

    def _claim_timestamp(self) -> str | None:
        return format_time(self._config.clock()) if self._config.claim_timestamps else None

    # -- reporting ----------------------------------------------------------------------------------------------------

    def _report_pod(self, pod: Obj, reason: str, message: str, *, event: bool = True) -> None:
        if event:
            self._recorder.event(pod, "Warning", "FailedScheduling", message, action="Scheduling")
        now = format_time(self._config.clock())
        patch = pod_scheduled_patch(pod, reason, message, now, keep_nomination=False)
        if patch is not None:
            self._spawn(self._patch_status(PODS, pod, patch))

    def _report_group(self, unit: Unit, status: str, reason: str, message: str) -> None:
        group = self.cluster.snapshot().pod_group(GroupKey(unit.key[1], unit.key[2]))
        if group is not None:
            now = format_time(self._config.clock())
            patch = group_scheduled_patch(group, status, reason, message, now)
            if patch is not None and self._watchers is not None:
                self._spawn(self._patch_status(self._watchers.informers["PodGroup"].kind, group, patch))

    def _settle_groups(self) -> None:
        """After a start: groups that were bound whole before it must say so."""
        for path in list(self.cluster.snapshot().pod_groups):
            self._settle_group(GroupKey(*path.split("/", 1)))

    def _settle_group(self, key: GroupKey) -> None:
        snapshot = self.cluster.snapshot()
        group = snapshot.pod_group(key)
        policy = ((group or {}).get("spec") or {}).get("schedulingPolicy") or {}
        minimum = int((policy.get("gang") or {}).get("minCount") or 1)
        if group is not None and len(snapshot.group_state(key).scheduled) >= minimum:
            self._report_group(Unit(("group", *key)), "True", "Scheduled", "")

    async def _patch_status(self, kind: Any, obj: Obj, patch: Obj) -> None:
        metadata = obj["metadata"]
        async with self._reports:
            try:
                await self._client.patch(
                    kind, metadata["name"], patch, metadata.get("namespace", ""), "strategic", "status"
                )
            except StatusError as error:
                if error.code not in (404, 409):
                    _log.warning("status of %s %s: %s", kind.kind, _path(obj), error)
            except OSError as error:
                _log.warning("status of %s %s: %s", kind.kind, _path(obj), error)

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a task of the scheduler failed", exc_info=task.exception())


class PodsHeldBackError(Exception):
    """The pod was fine, but its gang is not bound: siblings failed and too few are left."""


def _path(obj: Obj) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _pod_key(pod: Obj) -> PodKey:
    metadata = pod["metadata"]
    return PodKey(metadata.get("namespace", ""), metadata["name"], metadata.get("uid", ""))


def _priority(pod: Obj) -> int:
    return int((pod.get("spec") or {}).get("priority") or 0)
