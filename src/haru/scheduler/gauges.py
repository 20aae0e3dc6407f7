"""Gauges of the scheduler, counted when they are read: waiting pods, the cache, what runs beside the cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from haru.engine import SchedulerCache
from haru.scheduler.binding.binding_cycle import BindingCycle
from haru.scheduler.metrics import BIND_CALL, STATUS_CALL, SchedulerMetrics
from haru.scheduler.queue.pre_enqueue import PreEnqueue
from haru.scheduler.queue.scheduling_queue import QueueStage, SchedulingQueue
from haru.scheduler.status.status_writer import StatusWriter

Values = Mapping[tuple[str, ...], float]


def connect_gauges(
    metrics: SchedulerMetrics,
    cluster: SchedulerCache,
    pre_enqueue: PreEnqueue,
    queue: SchedulingQueue,
    writers: tuple[BindingCycle, StatusWriter],
) -> None:
    """Have the gauges read these parts of one scheduler."""
    binding, status = writers
    metrics.read("pending_pods", lambda: {(name,): number for name, number in queue.pending().items()})
    metrics.read("unschedulable_pods", partial(_unschedulable, queue, pre_enqueue))
    metrics.read("cache_size", partial(_cache_size, cluster))
    metrics.read("goroutines", lambda: {("binding",): binding.running})
    metrics.read("pending_async_api_calls", lambda: {(BIND_CALL,): binding.running, (STATUS_CALL,): len(status.tasks)})
    # A cycle ends before the next event is handled.
    metrics.read("inflight_events", lambda: {("PodPopped",): 0})


def _unschedulable(queue: SchedulingQueue, pre_enqueue: PreEnqueue) -> Values:
    counts: Counter[tuple[str, ...]] = Counter(pre_enqueue.held_by)
    for unit in queue.units.values():
        if unit.place is not QueueStage.IN_FLIGHT:
            counts.update(unit.refusals)
    return counts


def _cache_size(cluster: SchedulerCache) -> Values:
    snapshot = cluster.snapshot()
    pods = sum(len(node.pods) for node in snapshot.nodes.values())
    return {
        ("nodes",): sum(1 for node in snapshot.nodes.values() if node.present),
        ("pods",): pods,
        ("assumed_pods",): len(cluster.assumed_pods),
    }
