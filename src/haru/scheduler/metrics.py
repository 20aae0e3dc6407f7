"""The scheduler's metrics, under kube-scheduler's names. Source: kube-scheduler 1.36 metrics, KEP-4671."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384)


class SchedulerMetrics:
    """One registry for one scheduler, so that several can live in a process."""

    def __init__(self, pending: Callable[[], Mapping[str, int]]) -> None:
        self.registry = CollectorRegistry()
        self.attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result.",
            ("result", "profile"),
            registry=self.registry,
        )
        self.group_attempts = Counter(
            "scheduler_podgroup_schedule_attempts",
            "Attempts to schedule pod groups, by result.",
            ("profile", "result"),
            registry=self.registry,
        )
        self.algorithm_seconds = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time to decide one unit.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.group_algorithm_seconds = Histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Time to decide one pod group.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.attempt_seconds = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time from the start of a cycle until the pod is bound or given back to the queue.",
            ("result", "profile"),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.preemption_attempts = Counter(
            "scheduler_preemption_attempts",
            "Decisions that evict others.",
            registry=self.registry,
        )
        self.preemption_victims = Histogram(
            "scheduler_preemption_victims",
            "Pods evicted by one decision.",
            registry=self.registry,
            buckets=(1, 2, 4, 8, 16, 32, 64),
        )
        self.claim_creates = Counter(
            "scheduler_resourceclaim_creates",
            "Claims created for extended resources.",
            ("status",),
            registry=self.registry,
        )
        gauge = Gauge("scheduler_pending_pods", "Pods that wait, by queue.", ("queue",), registry=self.registry)
        for queue in ("active", "backoff", "unschedulable", "gated"):
            gauge.labels(queue).set_function(partial(_count, pending, queue))

    def text(self) -> bytes:
        """The metrics in the Prometheus text format."""
        return generate_latest(self.registry)


def _count(pending: Callable[[], Mapping[str, int]], queue: str) -> float:
    return float(pending().get(queue, 0))
