"""Carry out a decision with nominations: nominate the pods, delete the victims, report both.

Until the victims are gone the unit waits in the queue; its nominated places and devices are kept from pods of at most
its priority, and it is decided again when any pod leaves a node.
Source: KEP-268, KEP-5278 (nominated nodes), KEP-5710; docs/adr/0004.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from haru.engine import Decision
from haru.engine.preemption import displaced
from haru.engine.state import GroupKey, Nomination, PodKey, nominations_of
from haru.kube.meta import Obj
from haru.scheduler.preemption.victim_deletion import EvictionOrder, Evictor, eviction_order, unfinished_orders
from haru.scheduler.shared import SchedulerState
from haru.scheduler.status.conditions import NominationChange
from haru.scheduler.status.status_writer import StatusWriter

_log = logging.getLogger(__name__)


class PreemptionExecutor:
    """Carry out decisions that nominate pods. `failed` is called when the victims of a preemptor cannot be deleted."""

    def __init__(
        self, state: SchedulerState, evictor: Evictor, status: StatusWriter, failed: Callable[[], None]
    ) -> None:
        self._metrics = state.metrics
        self._cluster = state.cluster
        self._evictor = evictor
        self._status = status
        self._tasks = state.tasks
        self._failed = failed

    def execute(self, decision: Decision, pods: Mapping[str, Obj], group: Obj | None, needed: int) -> None:
        """Nominate the members and delete the victims.

        `pods` are the members decided, by path; unless `needed` of them still have a nomination, and their group is
        there, no pod is evicted.
        """
        preemptor = group or next(iter(pods.values()))
        priority = int((preemptor.get("spec") or {}).get("priority") or 0)
        snapshot = self._cluster.snapshot()
        for key in displaced(snapshot, decision, priority):
            self.remove_nomination(key)
        kept = [self._with_pending_evictions(nomination) for nomination in nominations_of(decision, priority)]
        self._cluster.nominate(kept)
        for member in decision.members:
            node = (member.node or "") if member.status == "nominated" else ""
            if not node:
                self._cluster.forget_nomination(member.pod)
            message = member.message or decision.message
            self._status.rejected(pods[member.pod.path], "Unschedulable", message, NominationChange(nominate=node))
        if decision.evictions:
            name = (next(iter(pods.values())).get("spec") or {}).get("schedulerName", "")
            members = frozenset(nomination.pod for nomination in kept)
            order = eviction_order(
                preemptor,
                decision.evictions,
                name,
                lambda: self._is_there(decision.group) and self._count_nominated(members) >= needed,
            )
            self._tasks.spawn(self._evict(order, members))

    def catch_up(self) -> None:
        """Go on with the evictions that an earlier scheduler began."""
        for order in unfinished_orders(self._cluster.snapshot()):
            self._tasks.spawn(self._evict(order, frozenset()))

    def remove_nomination(self, pod: PodKey) -> None:
        """Drop the nomination of a pod, and take it out of the pod's status."""
        if pod.path not in self._cluster.snapshot().pod_index.nominations:
            return
        self._cluster.forget_nomination(pod)
        info = self._cluster.snapshot().pods.get(pod.path)
        if info is not None and info.key == pod and not info.node:
            self._status.unnominated(info.obj)

    def _with_pending_evictions(self, nomination: Nomination) -> Nomination:
        """Return a renewed nomination that also waits for the victims of the old one that still exist."""
        before = self._cluster.snapshot().pod_index.nominations.get(nomination.pod.path)
        if before is None or before.pod != nomination.pod:
            return nomination
        known = self._cluster.snapshot().pods
        there = (pod for pod in before.evictions if pod.path in known and known[pod.path].key == pod)
        return replace(nomination, evictions=nomination.evictions.union(there))

    def _is_there(self, group: GroupKey | None) -> bool:
        """Tell whether the preemptor's group, if it has one, still exists."""
        return group is None or self._cluster.now.pod_group(group) is not None

    def _count_nominated(self, members: frozenset[PodKey]) -> int:
        """Count the members that still have a nomination."""
        nominations = self._cluster.snapshot().pod_index.nominations
        return sum(1 for pod in members if pod.path in nominations and nominations[pod.path].pod == pod)

    async def _evict(self, order: EvictionOrder, members: frozenset[PodKey]) -> None:
        began = self._metrics.clock()
        failures = await self._evictor.carry_out(order)
        result = "error" if failures else "success"
        self._metrics.count("preemption_goroutines_execution", result)
        self._metrics.observe("preemption_goroutines_duration_seconds", self._metrics.clock() - began, result)
        if not failures:
            return
        _log.warning("evictions: %s", failures[0])
        for pod in members:
            self.remove_nomination(pod)
        self._failed()
