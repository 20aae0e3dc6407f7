"""What a decision with nominations asks for: places are kept for the preemptor, its victims go, everybody is told.

Until the victims are gone the unit waits in the queue like any other; what it was promised is kept from others of at
most its priority, devices included, and it is decided again as soon as anything leaves.
Source: KEP-268, KEP-5278 (nominated nodes), KEP-5710; docs/adr/0004.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from haru.engine import Decision, SchedulerCache
from haru.engine.preemption import displaced
from haru.engine.state import Nomination, PodKey, nominations_of
from haru.scheduler.metrics import SchedulerMetrics
from haru.scheduler.preemption.victim_deletion import EvictionOrder, Evictor, order_for, orders_left_over
from haru.scheduler.status.status_writer import StatusWriter

Obj = dict[str, Any]
_log = logging.getLogger(__name__)


class PreemptionExecutor:
    """Makes room for those that a decision nominates. `failed` hears of a preemptor whose victims would not go."""

    def __init__(
        self,
        cluster: SchedulerCache,
        evictor: Evictor,
        reporter: StatusWriter,
        metrics: SchedulerMetrics,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        failed: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._evictor = evictor
        self._reporter = reporter
        self._metrics = metrics
        self._spawn = spawn
        self._failed = failed

    def make(self, decision: Decision, pods: Mapping[str, Obj], group: Obj | None, needed: int) -> None:
        """Keep the places, send the evictions out. `pods` are the members decided, by path; `needed` of them at least
        must have a place, or nobody is to go for them."""
        preemptor = group or next(iter(pods.values()))
        priority = int((preemptor.get("spec") or {}).get("priority") or 0)
        snapshot = self._cluster.snapshot()
        for key in displaced(snapshot, decision, priority):
            self.give_up(key)
        kept = [self._still_waiting_for(nomination) for nomination in nominations_of(decision, priority)]
        self._cluster.nominate(kept)
        for member in decision.members:
            node = (member.node or "") if member.status == "nominated" else ""
            if not node:
                self._cluster.forget_nomination(member.pod)
            message = member.message or decision.message
            self._reporter.rejected(pods[member.pod.path], "Unschedulable", message, nominate=node)
        if decision.evictions:
            self._metrics.preemption_attempts.inc()
            self._metrics.preemption_victims.observe(len(decision.evictions))
            name = (next(iter(pods.values())).get("spec") or {}).get("schedulerName", "")
            members = frozenset(nomination.pod for nomination in kept)
            order = order_for(preemptor, decision.evictions, name, lambda: self._stand(members) >= needed)
            self._spawn(self._evict(order, members))

    def catch_up(self) -> None:
        """Go on with what a scheduler before this one has begun."""
        for order in orders_left_over(self._cluster.snapshot()):
            self._spawn(self._evict(order, frozenset()))

    def give_up(self, pod: PodKey) -> None:
        """The place kept for a pod is kept no longer."""
        if pod.path not in self._cluster.snapshot().nominations:
            return
        self._cluster.forget_nomination(pod)
        info = self._cluster.snapshot().pods.get(pod.path)
        if info is not None and info.key == pod and not info.node:
            self._reporter.unnominated(info.obj)

    def _still_waiting_for(self, nomination: Nomination) -> Nomination:
        """Promised again: those whose going was waited for and who are still there are waited for still."""
        before = self._cluster.snapshot().nominations.get(nomination.pod.path)
        if before is None or before.pod != nomination.pod:
            return nomination
        known = self._cluster.snapshot().pods
        there = (pod for pod in before.evictions if pod.path in known and known[pod.path].key == pod)
        return replace(nomination, evictions=nomination.evictions.union(there))

    def _stand(self, members: frozenset[PodKey]) -> int:
        """How many of the members still wait for their place."""
        nominations = self._cluster.snapshot().nominations
        return sum(1 for pod in members if pod.path in nominations and nominations[pod.path].pod == pod)

    async def _evict(self, order: EvictionOrder, members: frozenset[PodKey]) -> None:
        failures = await self._evictor.carry_out(order)
        if not failures:
            return
        _log.warning("evictions: %s", failures[0])
        for pod in members:
            self.give_up(pod)
        self._failed()
