"""The scheduler itself: takes units from the queue, has the engine decide, sends binding tasks out, reports.

One cycle at a time decides on a snapshot; what it decided is assumed at once, so that the next cycle sees it; writing
and binding go on beside the following cycles (`binding.binding_cycle`). Between the pop of a unit and its return to the
queue nothing is awaited, so no event can fall between a decision and what it was based on.
Source: kube-scheduler 1.36 as behaviour; KEP-4671 (PodGroup cycle), KEP-4381 (claims).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.engine import Decision, Options, SchedulerCache, Snapshot, decide
from haru.engine.journal import share_ids
from haru.engine.podgroup import members_needed, required_members
from haru.engine.preemption import blocking_reservation, keeps_nomination
from haru.engine.state import GroupKey, MemberDecision, PodInfo, PodKey
from haru.kube.kinds import Kind
from haru.kube.names import format_time
from haru.scheduler.backfill.head_of_queue import HeadOfQueue
from haru.scheduler.binding.binder import CLAIMS, PODS, Binder
from haru.scheduler.binding.binding_cycle import BindingCycle, BindingTask
from haru.scheduler.binding.deallocation import ClaimReturns, orphan_cleanup
from haru.scheduler.debugger import StateDump, capture
from haru.scheduler.decision_log import DecisionLog
from haru.scheduler.events.event_handlers import EventHandlers
from haru.scheduler.events.informers import Watchers, served_kinds
from haru.scheduler.metrics import SchedulerMetrics
from haru.scheduler.preemption.preemption_executor import PreemptionExecutor
from haru.scheduler.preemption.victim_deletion import Evictor
from haru.scheduler.queue import queueing_hints
from haru.scheduler.queue.pre_enqueue import PreEnqueue
from haru.scheduler.queue.queue_keys import group_object, priority_of
from haru.scheduler.queue.scheduling_queue import QueuedUnit, QueueStage, SchedulingQueue
from haru.scheduler.settings import SchedulerConfig
from haru.scheduler.status.hold_reports import HoldReports
from haru.scheduler.status.status_writer import StatusWriter, path_of

Obj = dict[str, Any]
_log = logging.getLogger(__name__)
_FLUSH_SECONDS = 30.0


class Scheduler:
    """A live scheduler over one API client. `run` keeps going until cancelled, and leaves nothing running then."""

    def __init__(
        self, client: ApiClient, config: SchedulerConfig, recorder: EventRecorder, log: DecisionLog | None = None
    ) -> None:
        self._client = client
        self._config = config
        self._log = log
        self.cluster = SchedulerCache() if log is None else log.cluster
        self.queue = SchedulingQueue(
            config.initial_backoff, config.max_backoff, pop_from_backoff=config.pop_from_backoff
        )
        self.metrics = SchedulerMetrics(self.queue.pending)
        self.ready = asyncio.Event()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._decisions = 0
        self._watchers: Watchers | None = None
        self._admission = PreEnqueue(
            self.cluster,
            self.queue,
            config.monotonic,
            gang_scheduling=config.gang_scheduling,
            workload_claims=config.workload_claims,
        )
        self._reporter = StatusWriter(client, recorder, config.clock, self._cached, self._learn)
        self._binder = Binder(
            client,
            partial(self._cached, CLAIMS),
            self._claim_timestamp,
            learn=self._learn,
            unlearn=self._unlearn,
            cached_pod=partial(self._cached, PODS),
            count=lambda status: self.metrics.claim_creates.labels(status).inc(),
            now=self._timestamp,
        )
        self._carrier = BindingCycle(
            self.cluster, self._binder, self, self._reporter.silence, workload_claims=config.workload_claims
        )

        self._intake = EventHandlers(self.cluster, self.queue, self._admission, config, self, self.ready.is_set)
        self._returns = ClaimReturns(
            self.cluster,
            self._binder,
            self._decide,
            self._spawn,
            lambda: self._intake.may_help(queueing_hints.DEVICES),
            workload_claims=config.workload_claims,
        )
        self._head = HeadOfQueue(
            self.cluster, self.queue, config, self._options, self._tell_reserved, self._intake.may_help
        )
        evictor = Evictor(client, recorder, partial(self._cached, PODS), self._timestamp, self._learn)
        self._room = PreemptionExecutor(
            self.cluster,
            evictor,
            self._reporter,
            self.metrics,
            self._spawn,
            lambda: self._intake.may_help(queueing_hints.POD_GONE),
        )

    # -- running ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch, decide and bind until cancelled."""
        kinds, missing = await served_kinds(self._client, run_times=self._config.backfill)
        if "PodGroup" not in kinds:
            _log.warning("the server does not serve %s: gangs are off, pods are scheduled one by one", missing[0])
        elif self._config.gate_off:
            self._admission.gangs_are_off(self._config.gate_off, hold=self._config.hold_group_members)
        if "batch/v1 Job" in missing:
            _log.warning("Jobs may not be listed: backfill does not count on their activeDeadlineSeconds")
        self._watchers = Watchers(self._client, kinds, self.cluster, self._intake)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watchers.run(), name="scheduler watchers")
                await self._watchers.wait_synced()
                self._catch_up()
                group.create_task(self._flush_now_and_then(), name="scheduler flush")
                if self._config.report_holds or self._admission.gate_off:
                    reports = HoldReports(self.cluster, self._admission, self._reporter, self._config.report_holds)
                    group.create_task(reports.run(), name="scheduler holds")
                self.ready.set()
                await self._cycles()
        finally:
            # Who is no leader any more must not go on binding.
            await _cancelled(self._tasks | self._reporter.tasks)

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

    def _catch_up(self) -> None:
        """What a predecessor left: groups that were bound whole must say so, unfinished allocations end."""
        for path in list(self.cluster.snapshot().pod_groups):
            self.settle_group(GroupKey(*path.split("/", 1)))
        self._room.catch_up()
        self._head.catch_up()
        self._clear_leftovers()

    def _clear_leftovers(self) -> None:
        names = self._config.scheduler_names
        for work in orphan_cleanup(self.cluster.snapshot(), self._binder, names, self.cluster.is_assumed):
            self._spawn(work)

    async def _flush_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self._clear_leftovers()
            if self.queue.flush_leftovers(self._config.monotonic()):
                self._wake.set()

    async def wait_seen(self, kind: str, revision: int) -> None:
        """Wait until decisions count on every object of a kind that was written up to a revision."""
        await self.ready.wait()
        assert self._watchers is not None
        await self._watchers.informers[kind].wait_seen(revision)

    async def drain(self) -> None:
        """Wait until everything that was decided so far is written or given up."""
        while tasks := self._tasks | self._reporter.tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    def dump(self) -> StateDump:
        """Copy the state of the cache and the queue, for the log."""
        informers = self._watchers.informers if self._watchers is not None else {}
        watched: dict[str, Collection[str]] = {
            kind: informers[kind].store for kind in ("Node", "Pod") if kind in informers
        }
        return capture(self.cluster, self.queue, self._admission.blocked, self._config.monotonic(), watched)

    # -- what events ask for ------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may be ready to be decided."""
        self._wake.set()

    def unit_changed(self) -> None:
        """A pod does not wait any more."""
        self._head.look()

    def give_back(self, claim: Obj) -> None:
        """Nobody uses this allocated claim any more."""
        self._returns.give_back(claim)

    # -- the cycle ----------------------------------------------------------------------------------------------------

    def _cycle(self, unit: QueuedUnit) -> None:
        snapshot = self.cluster.snapshot()
        pods = self._members(unit, snapshot.pods)
        if not pods:
            self.queue.done(unit)
            self._reweigh(unit)
            return
        started = self._config.monotonic()
        try:
            decision = self._decide(snapshot, unit, pods)
        except Exception as error:
            _log.exception("deciding %s failed", "/".join(unit.key))
            for pod in pods:
                self._rejected(pod, "SchedulerError", f"internal error: {error}")
            self.queue.fail(unit, self._config.monotonic())
            return
        elapsed = self._config.monotonic() - started
        (self.metrics.group_algorithm_seconds if unit.is_group else self.metrics.algorithm_seconds).observe(elapsed)
        profile = (pods[0].get("spec") or {}).get("schedulerName", "")
        self.metrics.attempt_seconds.labels(decision.status, profile).observe(elapsed)
        for member in decision.members:
            self.metrics.attempts.labels(member.status, profile).inc()
        if unit.is_group:
            self.metrics.group_attempts.labels(profile, decision.status).inc()
        self._enact(unit, decision, {path_of(p): p for p in pods})

    def _decide(self, snapshot: Snapshot, unit: QueuedUnit, pods: Sequence[Obj]) -> Decision:
        self._decisions += 1
        group, options = group_object(snapshot, unit), self._options(pods, self._decisions)
        if self._log is None or snapshot is not self.cluster.snapshot():
            return decide(snapshot, pods, group=group, options=options)
        share = str(uuid.uuid4())
        ids = share_ids(share)
        decision = decide(snapshot, pods, group=group, options=replace(options, new_share_id=lambda: next(ids)))
        self._log.decided(pods, group, options, share, decision)
        return decision

    def _options(self, pods: Iterable[Obj], number: int = 0) -> Options:
        name = (next(iter(pods)).get("spec") or {}).get("schedulerName", "default-scheduler")
        return self._config.options(number, name)

    def _now(self) -> float:
        return self._config.clock().timestamp()

    def _members(self, unit: QueuedUnit, known: Mapping[str, PodInfo]) -> list[Obj]:
        members: list[Obj] = []
        for path in list(unit.pods):
            info = known.get(path)
            if info is None or not self._intake.waits(info.obj):
                self.queue.take_out(unit.key, path)
            elif path not in self._admission.blocked and not self.cluster.is_assumed(info.key):
                members.append(info.obj)
        return members

    def _enact(self, unit: QueuedUnit, decision: Decision, pods: Mapping[str, Obj]) -> None:
        if decision.status == "nominated":
            self._head.placed(unit)
            self._make_room(unit, decision, pods)
            return
        placed = decision.placed if decision.status == "scheduled" else ()
        left = [m for m in decision.members if m not in placed]
        if placed:
            self._send_out(unit, placed)
        for member in left:
            # While devices are being given back the promise stands: what was promised may be these.
            if not self._returns.busy:
                self.cluster.forget_nomination(member.pod)
            reason = "SchedulerError" if "error" in (member.status, decision.status) else "Unschedulable"
            self._rejected(pods[member.pod.path], reason, member.message or decision.message)
        now = self._config.monotonic()
        if placed:
            self._head.placed(unit)
        if not left:
            self.queue.done(unit)
            self._reweigh(unit)
        elif decision.status == "error" or any(m.status == "error" for m in left):
            self.queue.fail(unit, now)
        else:
            self.queue.reject(unit, self._rejecting(unit, decision, left, pods), now)
            self._wait_for_time(unit, decision)
            if not placed:
                self._head.refused(unit, list(pods.values()))
        if unit.is_group and not placed:
            reason = "SchedulerError" if decision.status == "error" else "Unschedulable"
            self._report_group(GroupKey(unit.key[1], unit.key[2]), "False", reason, decision.message)
        rejected = [pods[m.pod.path] for m in left if m.status == "unschedulable"]
        if rejected and decision.status != "error":
            self._returns.rejected(unit, rejected, [pods[m.pod.path] for m in placed])

    def _make_room(self, unit: QueuedUnit, decision: Decision, pods: Mapping[str, Obj]) -> None:
        group = group_object(self.cluster.snapshot(), unit)
        needed = 1
        if group is not None:
            key = GroupKey(unit.key[1], unit.key[2])
            gangs = self._config.gang_scheduling
            needed = members_needed(self.cluster.snapshot(), key, group, gang_scheduling=gangs)
            self._report_group(key, "False", "Unschedulable", decision.message)
        self._room.make(decision, pods, group, needed)
        plugins = {plugin for member in decision.members for plugin in member.plugins}
        self.queue.reject(
            unit, queueing_hints.rejecting(plugins | queueing_hints.ROOM, pods.values()), self._config.monotonic()
        )

    def _rejecting(
        self, unit: QueuedUnit, decision: Decision, left: Sequence[MemberDecision], pods: Mapping[str, Obj]
    ) -> frozenset[str]:
        """The plugins whose events may change the answer."""
        plugins = {plugin for member in left for plugin in member.plugins}
        if any(reason.type == "ClaimInFlight" for member in left for reason in member.reasons):
            plugins |= queueing_hints.IN_FLIGHT
        snapshot = self.cluster.snapshot()
        if snapshot.reservation is not None:
            members = [snapshot.pods[member.pod.path] for member in left if member.pod.path in snapshot.pods]
            if members and blocking_reservation(snapshot, members, groups=self._config.groups, now=self._now()):
                plugins |= queueing_hints.RESERVATION
        if unit.is_group and decision.status != "scheduled":
            plugins |= queueing_hints.wanted_by(pods.values(), spread=self._config.spreads_by_force)
        preemptor = group_object(self.cluster.snapshot(), unit) or next(iter(pods.values()))
        if self._carrier.is_binding_below(priority_of(preemptor)):
            plugins |= queueing_hints.PREEMPTION
        return queueing_hints.rejecting(plugins, pods.values())

    def _wait_for_time(self, unit: QueuedUnit, decision: Decision) -> None:
        """Where time alone may change the answer, the unit is tried again then."""
        if decision.again_at is not None:
            self.queue.retry_at(unit, self._config.monotonic() + max(decision.again_at - self._now(), 0.0))

    def _send_out(self, unit: QueuedUnit, placed: tuple[MemberDecision, ...]) -> None:
        group = group_object(self.cluster.snapshot(), unit)
        minimum = required_members(group, gang_scheduling=self._config.gang_scheduling)
        key = GroupKey(unit.key[1], unit.key[2]) if unit.is_group else None
        binding_task = BindingTask(key, minimum, placed, unit_errors=unit.errors)
        self._carrier.assume(binding_task)
        for member in placed:
            self.queue.take_out(unit.key, member.pod.path)
        self._spawn(self._carrier.carry_out(binding_task))

    def _reweigh(self, unit: QueuedUnit) -> None:
        if self.queue.units.get(unit.key) is unit:
            self._admission.weigh_all(unit)

    # -- what the carrier says ----------------------------------------------------------------------------------------

    def member_bound(self, binding_task: BindingTask, member: MemberDecision) -> None:
        """Tells everybody."""
        pod = self.cluster.snapshot().pods.get(member.pod.path)
        if pod is not None and pod.key.uid == member.pod.uid:
            self._reporter.bound(pod.obj, member.node or "")

    def members_returned(self, binding_task: BindingTask, failures: Mapping[PodKey, Exception]) -> None:
        """Back into the queue with a backoff, whatever happens meanwhile."""
        now = self._config.monotonic()
        units: dict[tuple[str, str, str], QueuedUnit] = {}
        for pod, problem in failures.items():
            info = self.cluster.snapshot().pods.get(pod.path)
            if info is None or info.key.uid != pod.uid or not self._intake.waits(info.obj):
                continue
            _log.warning("pod %s: %s", pod.path, problem)
            self._rejected(info.obj, "SchedulerError", str(problem))
            unit = self.queue.put(self._intake.unit_key(info.obj), pod.path, priority_of(info.obj), now)
            self._admission.check(unit, pod.path)
            units[unit.key] = unit
        for unit in units.values():
            unit.errors = max(unit.errors, binding_task.unit_errors)
            if unit.place in (QueueStage.HELD, QueueStage.UNSCHEDULABLE) and self._admission.may_go(unit):
                self.queue.fail(unit, now)
            else:
                self._admission.settle(unit)
        self._intake.may_help(queueing_hints.POD_GONE)
        self._wake.set()

    # -- reporting ----------------------------------------------------------------------------------------------------

    def _rejected(self, pod: Obj, reason: str, message: str) -> None:
        kept = keeps_nomination(self.cluster.snapshot(), PodInfo.of(pod))
        self._reporter.rejected(pod, reason, message, keep_nomination=kept)

    def _report_group(self, key: GroupKey, status: str, reason: str, message: str) -> None:
        group = self.cluster.snapshot().pod_group(key)
        if group is not None and self._watchers is not None:
            self._reporter.group(self._watchers.informers["PodGroup"].kind, group, status, reason, message)

    def _tell_reserved(self, obj: Obj, text: str | None) -> None:
        if self._watchers is not None:
            informer = self._watchers.informers[obj["kind"]]
            self._reporter.reserved(informer.kind, informer.store.get(path_of(obj)) or obj, text)

    def settle_group(self, key: GroupKey) -> None:
        """A group that has what it needs on nodes says so."""
        snapshot = self.cluster.snapshot()
        group = snapshot.pod_group(key)
        if group is not None and len(snapshot.group_state(key).assigned) >= required_members(group):
            self._report_group(key, "True", "Scheduled", "")

    # -- small things -------------------------------------------------------------------------------------------------

    def _cached(self, kind: Kind, path: str) -> Obj | None:
        return self._watchers.informers[kind.kind].store.get(path) if self._watchers is not None else None

    def _learn(self, kind: Kind, obj: Obj) -> None:
        if self._watchers is not None:
            self._watchers.informers[kind.kind].observe(obj)

    def _unlearn(self, kind: Kind, obj: Obj) -> None:
        if self._watchers is not None:
            self._watchers.informers[kind.kind].observe_deleted(obj)

    def _timestamp(self) -> str:
        return format_time(self._config.clock())

    def _claim_timestamp(self) -> str | None:
        return format_time(self._config.clock()) if self._config.claim_timestamps else None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a task of the scheduler failed", exc_info=task.exception())


async def _cancelled(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
