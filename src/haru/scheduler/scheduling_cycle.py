"""Run scheduling cycles: decide a unit of the queue, assume the decision, send it to binding, report.

One cycle at a time decides on a snapshot; its decision is assumed at once, so that the next cycle sees it; writing
and binding go on beside the following cycles (`binding.binding_cycle`). Between the pop of a unit and its return to the
queue nothing is awaited, so no event can fall between a decision and the snapshot that it was made on.
Source: kube-scheduler 1.36 as behaviour; KEP-4671 (PodGroup cycle), KEP-4381 (claims).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.engine import Decision, Options, Snapshot
from haru.engine.framework import MetricsRecorder
from haru.engine.podgroup import has_quorum, members_needed, required_members
from haru.engine.preemption import blocking_reservation, has_places_kept_from_all, keeps_nomination
from haru.engine.state import GroupKey, MemberDecision, PodInfo, PodKey
from haru.gangs import is_translated
from haru.kube.meta import Obj, allocation_of
from haru.scheduler.backfill.head_of_queue import HeadOfQueue
from haru.scheduler.binding.binder import Binder
from haru.scheduler.binding.binding_cycle import Attempt, BindingCycle, BindingTask
from haru.scheduler.binding.claim_updates import users_of
from haru.scheduler.binding.deallocation import Deallocator
from haru.scheduler.binding.device_conditions import awaits_devices
from haru.scheduler.binding.idle_claims import claims_left_behind
from haru.scheduler.binding.write_retry import WriteTimes
from haru.scheduler.coexistence.coexistence import Coexistence
from haru.scheduler.decider import Decider, profile_of
from haru.scheduler.decision_log import DecisionLog
from haru.scheduler.events.event_handlers import EventHandlers
from haru.scheduler.preemption.preemption_executor import PreemptionExecutor
from haru.scheduler.preemption.victim_deletion import Evictor
from haru.scheduler.queue import queueing_hints
from haru.scheduler.queue.pre_enqueue import PreEnqueue
from haru.scheduler.queue.queue_keys import group_object, priority_of
from haru.scheduler.queue.scheduling_queue import QueuedUnit, QueueStage
from haru.scheduler.shared import SchedulerState
from haru.scheduler.status.conditions import NominationChange
from haru.scheduler.status.explanation_publisher import ExplanationPublisher
from haru.scheduler.status.status_writer import StatusWriter, path_of

_MOST_TOGETHER = 16
_log = logging.getLogger(__name__)


class SchedulingCycle:
    """Decide units one after the other. `status` writes what becomes of them."""

    def __init__(
        self, client: ApiClient, state: SchedulerState, recorder: EventRecorder, log: DecisionLog | None = None
    ) -> None:
        config = state.config
        self._state = state
        self.decider = Decider(state, log)
        self.status = StatusWriter(client, recorder, config.clock, state.objects, state.metrics)
        self.publisher: ExplanationPublisher | None = None
        if config.publish_explanations != "off":
            names = config.publish_explanations == "names"
            self.publisher = ExplanationPublisher(state, self.status, recorder, self.decider.options_for, names=names)
        self.pre_enqueue = PreEnqueue(state)
        times = WriteTimes(config.clock, claims=config.claim_timestamps, monotonic=config.monotonic)
        self.coexistence = Coexistence(state, recorder)
        count = partial(state.metrics.count, "resourceclaim_creates")
        self.binder = Binder(client, state.objects, times, count, self.coexistence.ledger.announce)
        self.binding_cycle = BindingCycle(state, self.binder, self, self.status.cancel, self.coexistence)
        self.handlers = EventHandlers(state.cluster, state.queue, self.pre_enqueue, config, self)
        self._deallocator = Deallocator(state, self.binder.unreserver, self)
        self.head = HeadOfQueue(state.cluster, state.queue, config, self)
        evictor = Evictor(client, recorder, state.objects, times)
        self._together = 1
        """How many pods may be decided on one snapshot: as long as all find places, twice as many each time."""
        failed = partial(self.handlers.may_help, queueing_hints.PLACE_LOST)
        self.preemption = PreemptionExecutor(state, evictor, self.status, failed)

    def catch_up(self) -> None:
        """Go on with what an earlier scheduler began: preemption, the reservation, conditions of bound groups.

        Claims of evicted groups are freed.
        """
        self.coexistence.start()
        for path in list(self._state.cluster.snapshot().pod_groups):
            self.report_group_scheduled(GroupKey(*path.split("/", 1)))
        self.preemption.catch_up()
        for claim in claims_left_behind(self._state.cluster.snapshot()):
            self.deallocate(claim)
        self.head.catch_up()

    # -- requests of events and of the other parts --------------------------------------------------------------------

    def wake(self) -> None:
        """Have the next unit decided, if one is ready."""
        self._state.woken.set()

    def is_ready(self) -> bool:
        """Tell whether the first lists are complete."""
        return self._state.ready.is_set()

    def unit_changed(self) -> None:
        """Release the reservation if its unit does not wait any more."""
        self.head.release_if_gone()

    def deallocate(self, claim: Obj) -> None:
        """Free an allocated claim that no pod uses any more."""
        self._deallocator.deallocate(claim)

    def devices_lost(self, path: str, *, deallocate: bool) -> None:
        """Count an allocation that is given back; deallocate a claim of an earlier scheduler."""
        self._state.metrics.coexistence.given_back()
        snapshot = self._state.cluster.snapshot()
        claim = snapshot.claims.get(path)
        if not deallocate or claim is None or not allocation_of(claim):
            return
        users = (snapshot.pods.get(user) for user in users_of(claim))
        self._deallocator.deallocate(claim, [user.obj for user in users if user is not None])

    def object_changed(self, kind: str, old: Obj | None, new: Obj | None) -> None:
        """Pass pods and claims to who watches other schedulers."""
        (self.coexistence.pod_changed if kind == "Pod" else self.coexistence.claim_changed)(old, new)

    def devices_freed(self) -> None:
        """Wake the units that wait for devices."""
        self.handlers.may_help(queueing_hints.DEVICES)

    def may_help(self, plugins: frozenset[str]) -> None:
        """Wake the units that these plugins rejected."""
        self.handlers.may_help(plugins)

    def options(self, pods: Sequence[Obj]) -> Options:
        """Return the options for a question about these pods that is no decision."""
        return self.decider.options(pods)

    def decide(self, snapshot: Snapshot, unit: QueuedUnit, pods: Sequence[Obj]) -> Decision:
        """Have the engine decide a unit on a snapshot."""
        return self.decider.decide(snapshot, unit, pods)

    # -- the cycle ----------------------------------------------------------------------------------------------------

    def run_next(self) -> bool:
        """Decide what is next in the queue, several pods if need be, and carry it out; return whether there is any."""
        most = min(self._together, self.binder.slots.room)
        units = self._state.queue.pop_with_equals(self._state.config.monotonic(), most)
        if len(units) > 1:
            self._run_in_turn(units)
        elif units:
            self.run(units[0])
        return bool(units)

    def _run_in_turn(self, units: Sequence[QueuedUnit]) -> None:
        """Decide single pods on one snapshot; those from the first that must be decided alone go back to the queue."""
        snapshot, started = self._state.cluster.snapshot(), self._state.config.monotonic()
        waiting: list[tuple[QueuedUnit, Obj]] = []
        for unit in units:
            if pods := self._members(unit, snapshot.pods):
                waiting.append((unit, pods[0]))
            else:
                self._nothing_to_decide(unit)
        recorder = self._state.metrics.recorder()
        decisions = self.decider.decide_in_turn(snapshot, [pod for _, pod in waiting], recorder) if waiting else []
        if decisions:
            self._state.metrics.decided(recorder, profile_of(waiting[0][1]))
        seconds = (self._state.config.monotonic() - started) / len(units)
        for (unit, pod), decision in zip(waiting, decisions, strict=False):
            self._state.metrics.observe("scheduling_algorithm_duration_seconds", seconds)
            self._carry_out(unit, decision, {decision.members[0].pod.path: pod}, started)
        for unit, _ in waiting[len(decisions) :]:
            self._state.queue.put_back(unit)
            self._together = 1

    def _nothing_to_decide(self, unit: QueuedUnit) -> None:
        self._state.queue.done(unit)
        self._check_again(unit)

    def run(self, unit: QueuedUnit) -> None:
        """Decide one unit and carry the decision out."""
        snapshot = self._state.cluster.snapshot()
        pods = self._members(unit, snapshot.pods)
        if not pods:
            self._nothing_to_decide(unit)
            return
        started, recorder = self._state.config.monotonic(), self._state.metrics.recorder()
        try:
            decision = self.decider.decide(snapshot, unit, pods, recorder)
        except Exception as error:
            _log.exception("deciding %s failed", "/".join(unit.key))
            elapsed = self._state.config.monotonic() - started
            for pod in pods:
                self._state.metrics.attempted("error", profile_of(pod), elapsed)
                self._rejected(pod, "SchedulerError", f"internal error: {error}")
            self._state.queue.fail(unit, self._state.config.monotonic())
            return
        self._measure_decision(unit, decision, recorder, profile_of(pods[0]), started)
        self._carry_out(unit, decision, {path_of(p): p for p in pods}, started)

    def _measure_decision(
        self, unit: QueuedUnit, decision: Decision, recorder: MetricsRecorder, profile: str, started: float
    ) -> None:
        """Observe a decision; members that were placed are counted when they are bound."""
        metrics, elapsed = self._state.metrics, self._state.config.monotonic() - started
        metrics.decided(recorder, profile)
        kind = "podgroup_scheduling" if unit.is_group else "scheduling"
        metrics.observe(f"{kind}_algorithm_duration_seconds", elapsed)
        placed = decision.placed if decision.status == "scheduled" else ()
        for member in decision.members:
            if not placed or member.status != "scheduled":
                error = "error" in (member.status, decision.status)
                metrics.attempted("error" if error else "unschedulable", profile, elapsed)
                for plugin in dict.fromkeys(member.plugins):
                    unit.refusals[plugin, profile] = unit.refusals.get((plugin, profile), 0) + 1
        if unit.is_group:
            status = "waiting_on_preemption" if decision.status == "nominated" else decision.status
            metrics.group_attempted(status, profile, elapsed)

    def _now(self) -> float:
        return self._state.config.clock().timestamp()

    def _members(self, unit: QueuedUnit, known: Mapping[str, PodInfo]) -> list[Obj]:
        members: list[Obj] = []
        for path in list(unit.pods):
            info = known.get(path)
            if info is None or not self.handlers.waits(info.obj):
                self._state.queue.take_out(unit.key, path)
            elif path not in self.pre_enqueue.blocked and not self._state.cluster.is_assumed(info.key):
                members.append(info.obj)
        return members

    def _carry_out(self, unit: QueuedUnit, decision: Decision, pods: Mapping[str, Obj], started: float) -> None:
        if decision.status == "nominated":
            self.head.placed(unit)
            self._preempt(unit, decision, pods)
            return
        placed = decision.placed if decision.status == "scheduled" else ()
        left = [m for m in decision.members if not placed or m.status != "scheduled"]
        if placed:
            self._start_binding(unit, placed, started)
        for member in left:
            # While claims are being deallocated the nomination stays: it may have their devices.
            if not self._deallocator.busy:
                self._state.cluster.forget_nomination(member.pod)
            reason = "SchedulerError" if "error" in (member.status, decision.status) else "Unschedulable"
            self._rejected(pods[member.pod.path], reason, member.message or decision.message)
        if left:
            self.explain(unit.key)
        now = self._state.config.monotonic()
        if placed:
            self.head.placed(unit)
        if not left:
            self._nothing_to_decide(unit)
            if not self.decider.one_at_a_time:
                self._together = min(2 * self._together, _MOST_TOGETHER)
        elif decision.status == "error" or any(m.status == "error" for m in left):
            self._state.queue.fail(unit, now)
        else:
            self._state.queue.reject(unit, self._rejecting(unit, decision, left, pods), now)
            self._retry_in_time(unit, decision)
            if not placed:
                self.head.refused(unit, list(pods.values()))
        if unit.is_group and not placed and not self._has_quorum(unit):
            reason = "SchedulerError" if decision.status == "error" else "Unschedulable"
            self._report_group(GroupKey(unit.key[1], unit.key[2]), "False", reason, decision.message)
        rejected = [pods[m.pod.path] for m in left if m.status == "unschedulable"]
        if rejected and decision.status != "error":
            self._deallocator.rejected(unit, rejected, [pods[m.pod.path] for m in placed])

    def _preempt(self, unit: QueuedUnit, decision: Decision, pods: Mapping[str, Obj]) -> None:
        group = group_object(self._state.cluster.snapshot(), unit)
        needed = 1
        if group is not None:
            key = GroupKey(unit.key[1], unit.key[2])
            gangs = self._gang_scheduling(group)
            needed = members_needed(self._state.cluster.snapshot(), key, group, gang_scheduling=gangs)
            self._report_group(key, "False", "Unschedulable", decision.message)
        self.preemption.execute(decision, pods, group, needed)
        if decision.evictions:
            self._state.metrics.observe("preemption_victims", len(decision.evictions))
        plugins = self._refusing(unit, decision.members, pods)
        self._state.queue.reject(unit, queueing_hints.rejecting(plugins, pods.values()), self._state.config.monotonic())

    def _rejecting(
        self, unit: QueuedUnit, decision: Decision, left: Sequence[MemberDecision], pods: Mapping[str, Obj]
    ) -> frozenset[str]:
        """Return the plugins whose events may change the decision."""
        plugins = self._refusing(unit, left, pods, whole=decision.status != "scheduled")
        if any(reason.type == "ClaimInFlight" for member in left for reason in member.reasons):
            plugins |= queueing_hints.IN_FLIGHT
        snapshot = self._state.cluster.snapshot()
        if snapshot.reservation is not None:
            members = [snapshot.pods[member.pod.path] for member in left if member.pod.path in snapshot.pods]
            if members and blocking_reservation(snapshot, members, groups=self._state.config.groups, now=self._now()):
                plugins |= queueing_hints.RESERVATION
        preemptor = group_object(self._state.cluster.snapshot(), unit) or next(iter(pods.values()))
        is_kept = self._state.config.groups and has_places_kept_from_all(snapshot)
        if is_kept or self.binding_cycle.is_binding_below(priority_of(preemptor)):
            plugins |= queueing_hints.PREEMPTION
        return queueing_hints.rejecting(plugins, pods.values())

    def _refusing(
        self, unit: QueuedUnit, left: Sequence[MemberDecision], pods: Mapping[str, Obj], *, whole: bool = True
    ) -> frozenset[str]:
        """Return the plugins that refused members, and what would help others of a group refused as a `whole`."""
        refusals = [member.plugins for member in left]
        plugins = frozenset(chain.from_iterable(refusals))
        if not unit.is_group or not whole:
            return plugins
        spread = self._state.config.spreads_by_force
        return plugins | queueing_hints.wanted_by(list(pods.values()), refusals, spread=spread)

    def _retry_in_time(self, unit: QueuedUnit, decision: Decision) -> None:
        """Retry the unit at the time from which the decision may differ."""
        if decision.again_at is not None:
            self._state.queue.retry_at(unit, self._state.config.monotonic() + max(decision.again_at - self._now(), 0.0))

    def _start_binding(self, unit: QueuedUnit, placed: tuple[MemberDecision, ...], started: float) -> None:
        known = self._state.cluster.now
        key = GroupKey(unit.key[1], unit.key[2]) if unit.is_group else None
        group = known.pod_group(key) if key is not None else None
        minimum = required_members(group, gang_scheduling=self._gang_scheduling(group))
        pod = known.pods.get(placed[0].pod.path)
        first_active = started if unit.first_active is None else unit.first_active
        profile = pod.scheduler_name if pod is not None else ""
        attempt = Attempt(profile, started, first_active, unit.attempts, unit.flushed)
        binding_task = BindingTask(key, minimum, placed, unit_errors=unit.errors, attempt=attempt)
        infos = [known.pods[member.pod.path] for member in placed]
        if any(member.volumes or awaits_devices(member, info) for member, info in zip(placed, infos, strict=True)):
            pods = [info.obj for info in infos]
            chosen = self.decider.options(pods).profile
            binding_task.bind_timeout, binding_task.device_timeout = chosen.bind_timeout, chosen.device_timeout
        began = self._state.config.monotonic()
        self.binding_cycle.assume(binding_task)
        reserving = self._state.config.monotonic() - began
        self._state.metrics.extension_point("Reserve", "Success", profile, reserving, runs=len(placed))
        for member in placed:
            self._state.queue.take_out(unit.key, member.pod.path)
        self._state.tasks.spawn(self.binding_cycle.carry_out(binding_task))

    def _has_quorum(self, unit: QueuedUnit) -> bool:
        """Tell whether a group has places for its quorum, bound or not: members beyond it say nothing of the group."""
        key, known = GroupKey(unit.key[1], unit.key[2]), self._state.cluster.snapshot()
        group = group_object(known, unit)
        return has_quorum(known, key, group, gang_scheduling=self._gang_scheduling(group))

    def _gang_scheduling(self, group: Obj | None) -> bool:
        return self._state.config.gang_scheduling or (group is not None and is_translated(group))

    def _check_again(self, unit: QueuedUnit) -> None:
        if self._state.queue.units.get(unit.key) is unit:
            self.pre_enqueue.recheck_all(unit)

    # -- results of binding ------------------------------------------------------------------------------------------

    def member_bound(self, binding_task: BindingTask, member: MemberDecision) -> None:
        """Report that a member is bound."""
        attempt, began, metrics = binding_task.attempt, self._state.config.monotonic(), self._state.metrics
        metrics.attempted("scheduled", attempt.profile, began - attempt.began)
        metrics.bound(attempt.number, began - attempt.first_active, flushed=attempt.flushed)
        pod = self._state.cluster.now.pods.get(member.pod.path)
        if pod is not None and pod.key.uid == member.pod.uid:
            self.status.bound(pod.obj, member.node or "")
        metrics.extension_point("PostBind", "Success", attempt.profile, self._state.config.monotonic() - began)

    def devices_awaited(self, member: MemberDecision) -> None:
        """Report that a member's binding waits for its devices."""
        pod = self._state.cluster.now.pods.get(member.pod.path)
        if pod is not None and pod.key.uid == member.pod.uid:
            self.status.awaits_devices(pod.obj, member.node or "")

    def members_returned(self, binding_task: BindingTask, failures: Mapping[PodKey, Exception]) -> None:
        """Put members that lost their place back into the queue, with a backoff whatever happens meanwhile."""
        now = self._state.config.monotonic()
        units: dict[tuple[str, str, str], QueuedUnit] = {}
        for pod, problem in failures.items():
            info = self._state.cluster.now.pods.get(pod.path)
            if info is None or info.key.uid != pod.uid or not self.handlers.waits(info.obj):
                continue
            _log.warning("pod %s: %s", pod.path, problem)
            self._state.metrics.attempted("error", binding_task.attempt.profile, now - binding_task.attempt.began)
            self._rejected(info.obj, "SchedulerError", str(problem))
            unit = self._state.queue.put(self.handlers.unit_key(info.obj), pod.path, priority_of(info.obj), now)
            self.pre_enqueue.check(unit, pod.path)
            units[unit.key] = unit
        for unit in units.values():
            unit.errors = max(unit.errors, binding_task.unit_errors)
            if unit.place in (QueueStage.HELD, QueueStage.UNSCHEDULABLE) and self.pre_enqueue.may_go(unit):
                self._state.queue.fail(unit, now)
            else:
                self.pre_enqueue.hold_or_release(unit)
        self.handlers.may_help(queueing_hints.PLACE_LOST)
        self.wake()

    # -- reporting ----------------------------------------------------------------------------------------------------

    def explain(self, key: tuple[str, str, str]) -> None:
        """Have it published why a unit waits, if that is published at all."""
        if self.publisher is not None:
            self.publisher.waits(key)

    def _rejected(self, pod: Obj, reason: str, message: str) -> None:
        preempts = self.decider.options([pod]).profile.preemption
        snapshot, failed = self._state.cluster.snapshot(), reason == "SchedulerError"
        kept = keeps_nomination(snapshot, PodInfo.of(pod), preempts=preempts, failed=failed)
        self.status.rejected(pod, reason, message, NominationChange(keep=kept))

    def _report_group(self, key: GroupKey, status: str, reason: str, message: str) -> None:
        group = self._state.cluster.now.pod_group(key)
        if group is not None and not is_translated(group) and "PodGroup" in self._state.objects.informers:
            self.status.group(self._state.objects.informers["PodGroup"].kind, group, status, reason, message)

    def report_reserved(self, obj: Obj, text: str | None) -> None:
        """Write the condition of an object that places are reserved for (`text`), or no longer (None)."""
        if obj["kind"] in self._state.objects.informers and not is_translated(obj):
            informer = self._state.objects.informers[obj["kind"]]
            self.status.reserved(informer.kind, informer.store.get(path_of(obj)) or obj, text)

    def report_group_scheduled(self, key: GroupKey) -> None:
        """Set PodGroupScheduled on a group of which enough members are bound."""
        snapshot = self._state.cluster.now
        group = snapshot.pod_group(key)
        if group is not None and len(snapshot.group_state(key).assigned) >= required_members(group):
            self._report_group(key, "True", "Scheduled", "")
