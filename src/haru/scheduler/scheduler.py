"""Run a live scheduler: watch the cluster, pop units from the queue, and have each decided in a scheduling cycle.

Source: kube-scheduler 1.36 as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.engine import SchedulerCache
from haru.engine.podgroup import GANGS_OFF
from haru.engine.preemption import keeps_nomination
from haru.engine.state import DecodedObjects
from haru.event_loop import TimeSlice, cancelled
from haru.explanation_worker import InlineWorker, ThreadWorker
from haru.scheduler.binding.deallocation import orphan_cleanup
from haru.scheduler.coexistence.partition_leases import PartitionGuard
from haru.scheduler.debugger import StateDump, capture
from haru.scheduler.decision_log import DecisionLog
from haru.scheduler.events.informers import Watchers, served_kinds
from haru.scheduler.gauges import connect_gauges
from haru.scheduler.metrics import QueueMetrics, SchedulerMetrics
from haru.scheduler.queue.scheduling_queue import SchedulingQueue
from haru.scheduler.scheduling_cycle import SchedulingCycle
from haru.scheduler.settings import SchedulerConfig
from haru.scheduler.shared import SchedulerState
from haru.scheduler.status.conditions import NominationChange

_SECONDS = 5.0
_AT_ONCE = 10
"""So many holds are told at each look while pods come or are scheduled: most of those of a burst end by themselves."""


class HoldReports:
    """Tells of holds. Unless `every` one is told, only those that no pod's author could know of: gates of ours.

    What is held is `explained` as well, again when its unit has other pods. A burst of pods waits for claims that are
    being made: to write that into each would take the time in which they are made. So the oldest holds are told first,
    and the others once there is nothing to decide, or in their turn.
    """

    def __init__(self, state: SchedulerState, cycle: SchedulingCycle, every: bool) -> None:
        self._cluster, self._queue = state.cluster, state.queue
        self._admission, self._status = cycle.pre_enqueue, cycle.status
        self._cycle = cycle
        self._every = every
        self._explained: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Look every five seconds, until cancelled."""
        seen: dict[str, str] = {}
        decided = self._cycle.decider.count
        while True:
            await asyncio.sleep(_SECONDS)
            now, piece = dict(self._admission.blocked), TimeSlice()
            self._told = {path: message for path, message in self._told.items() if now.get(path) == message}
            decided, before = self._cycle.decider.count, decided
            left = len(now) if now == seen and decided == before else _AT_ONCE
            for path, message in now.items():
                if seen.get(path) == message:
                    is_known = path in self._told
                    if (self._every or message.startswith(GANGS_OFF)) and (is_known or left > 0):
                        self._tell(path, message)
                        left -= not is_known
                    self._explain(path, message)
                    await piece.shared()
            seen = now
            self._explained = {key: said for key, said in self._explained.items() if key in self._queue.units}

    def _explain(self, path: str, message: str) -> None:
        info = self._cluster.snapshot().pods.get(path)
        if info is None or info.gated:
            return
        key = self._cycle.handlers.unit_key(info.obj)
        said = message, len(self._queue.units[key].pods) if key in self._queue.units else 0
        if self._explained.get(key) != said:
            self._explained[key] = said
            self._cycle.explain(key)

    def _tell(self, path: str, message: str) -> None:
        snapshot = self._cluster.snapshot()
        info = snapshot.pods.get(path)
        # Others had a turn since: it may be held no longer.
        if info is None or info.gated or self._admission.blocked.get(path) != message:
            return
        self._told[path] = message
        kept = keeps_nomination(snapshot, info)
        self._status.not_scheduled(info.obj, "NotReadyForScheduling", message, NominationChange(keep=kept))


_log = logging.getLogger(__name__)
_FLUSH_SECONDS = 30.0


class Scheduler:
    """A live scheduler over one API client.

    `run` keeps going until cancelled; then it closes the recorder and leaves nothing running.
    """

    def __init__(
        self, client: ApiClient, config: SchedulerConfig, recorder: EventRecorder, log: DecisionLog | None = None
    ) -> None:
        client = self._client = client.without_managed_fields()
        self._recorder = recorder
        self._given = config
        config = self._config = config.with_foreign_groups()
        decoded = client.shared.common(DecodedObjects) if client.shared is not None else None
        self.cluster = SchedulerCache(decoded=decoded) if log is None else log.cluster
        self.metrics = SchedulerMetrics(config.monotonic)
        self._queue_metrics = QueueMetrics(self.metrics)
        if not config.partition.is_whole:
            self.cluster.confine(config.partition)
        self.queue = SchedulingQueue(
            config.initial_backoff,
            config.max_backoff,
            pop_from_backoff=config.pop_from_backoff,
            metrics=self._queue_metrics,
        )
        self._state = SchedulerState(config, self.cluster, self.queue, self.metrics)
        self.ready = self._state.ready
        self._cycle = SchedulingCycle(client, self._state, recorder, log)
        writers = self._cycle.binding_cycle, self._cycle.status
        connect_gauges(self.metrics, self.cluster, self._cycle.pre_enqueue, self.queue, writers)

    # -- running ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch, decide and bind until cancelled."""
        kinds, missing = await served_kinds(self._client, run_times=self._config.backfill)
        self._log_server(missing)
        if "PodGroup" not in kinds:
            _log.warning("the server does not serve PodGroups of Kubernetes: gangs are those of other projects only")
        elif self._given.gate_off:
            self._cycle.pre_enqueue.gangs_are_off(self._given.gate_off, hold=self._config.hold_group_members)
        if "batch/v1 Job" in missing:
            _log.warning("Jobs may not be listed: backfill does not count on their activeDeadlineSeconds")
        handlers, metrics = self._cycle.handlers, self._queue_metrics
        watchers = Watchers(self._client, kinds, self.cluster, handlers, self._given, metrics)
        self._state.objects.informers = watchers.informers
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(watchers.run(), name="scheduler watchers")
                await watchers.wait_synced()
                self._state.objects.begin()
                self._cycle.catch_up()
                self._remove_orphans()
                group.create_task(self._flush_periodically(), name="scheduler flush")
                publisher, held = self._cycle.publisher, self._cycle.pre_enqueue
                if self._config.report_holds or held.gate_off or publisher is not None:
                    reports = HoldReports(self._state, self._cycle, self._config.report_holds)
                    group.create_task(reports.run(), name="scheduler holds")
                if publisher is not None:
                    worker = InlineWorker() if self._config.explain_inline else ThreadWorker(publisher.busy)
                    group.create_task(publisher.run(worker), name="scheduler explanations")
                self.ready.set()
                await self._run_cycles()
        finally:
            # A scheduler that is no leader any more must not go on binding.
            await cancelled(*(self._state.tasks.running | self._cycle.status.tasks))
            await self._recorder.close()

    def _log_server(self, missing: Sequence[str]) -> None:
        version = self._client.version
        served = sorted({f"{group}/{serving}" for group, serving, _ in version.readable})
        absent = f"; not served: {', '.join(missing)}" if missing else ""
        _log.info("API server 1.%s serves %s%s", version.minor, ", ".join(served) or "no resource.k8s.io", absent)

    async def _run_cycles(self) -> None:
        publisher = self._cycle.publisher
        while True:
            if self._cycle.run_next():
                if publisher is not None:
                    publisher.cycle_ran()
                # Let watch events and the API server in between two decisions.
                await asyncio.sleep(0)
                await self._cycle.binder.slots.wait_for_room()
                continue
            self._state.woken.clear()
            due = self.queue.next_wake()
            seconds = None if due is None else max(due - self._config.monotonic(), 0.0)
            try:
                async with asyncio.timeout(seconds):
                    await self._state.woken.wait()
            except TimeoutError:
                continue

    def _remove_orphans(self) -> None:
        names, unreserver = self._config.scheduler_names, self._cycle.binder.unreserver
        for work in orphan_cleanup(self.cluster.snapshot(), unreserver, names, self.cluster.is_assumed):
            self._state.tasks.spawn(work)

    async def _flush_periodically(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self._remove_orphans()
            if self.queue.flush_leftovers(self._config.monotonic()):
                self._state.woken.set()

    async def watch_partitions(self, guard: PartitionGuard) -> None:
        """Compare the partition with those of other schedulers until cancelled. Raises OverlapError."""
        self._cycle.coexistence.overlaps = lambda: guard.overlapping > 0
        self.metrics.coexistence.overlapping_schedulers = lambda: guard.overlapping
        await guard.watch(self.cluster.snapshot)

    async def wait_seen(self, kind: str, revision: int) -> None:
        """Wait until the cache has every object of a kind that was written up to a revision."""
        await self.ready.wait()
        informers = self._state.objects.informers
        await informers[kind].wait_seen(revision)

    async def drain(self) -> None:
        """Wait until every decision so far is written or given up."""
        while tasks := self._state.tasks.running | self._cycle.status.tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    def dump(self) -> StateDump:
        """Copy the state of the cache and the queue, for the log."""
        informers = self._state.objects.informers
        watched: dict[str, Collection[str]] = {
            kind: informers[kind].store for kind in ("Node", "Pod") if kind in informers
        }
        return capture(self.cluster, self.queue, self._cycle.pre_enqueue.blocked, self._config.monotonic(), watched)
