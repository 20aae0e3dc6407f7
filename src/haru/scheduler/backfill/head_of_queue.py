"""Reserve places for the head of the queue, so that smaller units cannot starve it.

The head is the first unit in queue order that did not fit and that the end of running pods would let start. There is
one reservation at a time. Every attempt of the head renews it; when the head has started or is gone, the next unit
becomes the head.
Source: EASY backfilling; docs/adr/0007.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from haru.engine import Options, SchedulerCache, reserve_earliest_start
from haru.engine.backfill import BackfillReservation, is_reserved
from haru.engine.state import time_text
from haru.kube.meta import Obj
from haru.kube.names import counted, names_text
from haru.scheduler.queue import queueing_hints
from haru.scheduler.queue.queue_keys import group_object
from haru.scheduler.queue.scheduling_queue import QueuedUnit, QueueStage, SchedulingQueue
from haru.scheduler.settings import SchedulerConfig

_LATE_SECONDS = 1.0


class BackfillHost(Protocol):
    """The scheduler as the head of the queue needs it."""

    def options(self, pods: Sequence[Obj]) -> Options:
        """Return how these pods are decided."""

    def report_reserved(self, obj: Obj, text: str | None) -> None:
        """Write the condition of an object that places are reserved for (`text`), or no longer (None)."""

    def may_help(self, plugins: frozenset[str]) -> None:
        """Wake the units that these plugins rejected."""


class HeadOfQueue:
    """Reserve places in the cluster for one unit, the head of the queue."""

    def __init__(
        self,
        cluster: SchedulerCache,
        queue: SchedulingQueue,
        config: SchedulerConfig,
        host: BackfillHost,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._config = config
        self._host = host
        self._holder: QueuedUnit | None = None
        self._reported: tuple[Obj, str] | None = None
        self._without_reservation: set[tuple[str, str, str]] = set()

    def refused(self, unit: QueuedUnit, pods: Sequence[Obj]) -> None:
        """Reserve places for a unit that does not fit and evicts no pod, if it is the head."""
        if not self._config.backfill or self._is_behind(unit):
            return
        before, holder = self._cluster.snapshot().reservation, self._holder
        group = group_object(self._cluster.snapshot(), unit)
        found = reserve_earliest_start(self._cluster.snapshot(), pods, group=group, options=self._host.options(pods))
        if found is None:
            self._without_reservation.add(unit.key)
            if holder is unit:
                self._release()
            elif holder is None:
                self._next()
            return
        self._holder = unit
        self._cluster.reserve(found)
        self._announce(group or pods[0], found)
        if before is not None and before != found:
            self._host.may_help(queueing_hints.RESERVATION)
        now = self._config.monotonic()
        if found.until is not None and found.waits_for:
            wait = max(found.until - self._config.clock().timestamp(), 0.0)
            self._queue.retry_at(unit, now + wait + _LATE_SECONDS)
        if holder is not None and holder is not unit and not found.waits_for:
            # Only what was kept for the other one was in its way.
            self._queue.retry(unit, now)

    def catch_up(self) -> None:
        """Take back what an earlier scheduler said: the head says it again at its attempt, before who is behind."""
        snapshot = self._cluster.snapshot()
        for obj in [*snapshot.pod_groups.values(), *(pod.obj for pod in snapshot.pods.values())]:
            if is_reserved(obj):
                self._host.report_reserved(obj, None)

    def placed(self, unit: QueuedUnit) -> None:
        """Release the reservation of a unit that is placed or nominated."""
        if unit is self._holder:
            self._release()

    def release_if_gone(self) -> None:
        """Release the reservation if the head does not wait any more."""
        holder = self._holder
        if holder is not None and (self._queue.units.get(holder.key) is not holder or holder.place is QueueStage.HELD):
            self._release()

    def _is_behind(self, unit: QueuedUnit) -> bool:
        holder = self._holder
        return holder is not None and holder is not unit and holder.rank < unit.rank

    def _release(self) -> None:
        self._holder = None
        self._cluster.reserve(None)
        self._without_reservation.clear()
        if self._reported is not None:
            self._host.report_reserved(self._reported[0], None)
            self._reported = None
        self._host.may_help(queueing_hints.RESERVATION)
        self._next()

    def _next(self) -> None:
        """Retry the next unit that might become the head."""
        unit = self._queue.first_waiting(but=self._without_reservation)
        if unit is not None:
            self._queue.retry(unit, self._config.monotonic())

    def _announce(self, obj: Obj, found: BackfillReservation) -> None:
        text = reservation_text(found)
        if self._reported is not None and self._reported[0]["metadata"].get("uid") != obj["metadata"].get("uid"):
            self._host.report_reserved(self._reported[0], None)
        self._reported = (obj, text)
        self._host.report_reserved(obj, text)


def reservation_text(reservation: BackfillReservation) -> str:
    """Describe the reservation and what it waits for; equal reservations have equal texts."""
    nodes = sorted({place.node for place in reservation.places})
    text = f"places for {counted(len(reservation.places), 'pod')} are kept on {names_text(nodes)}"
    if reservation.waits_for:
        text += f"; waiting for the end of {names_text(sorted(pod.path for pod in reservation.waits_for))}"
    if reservation.until is not None and reservation.waits_for:
        text += f", by {time_text(reservation.until)} at the latest"
    return text
