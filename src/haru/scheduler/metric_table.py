"""The scheduler's metrics: names, types, labels, buckets and stability of kube-scheduler 1.36.

What each measures here: docs/reference/metrics.md. Source: pkg/scheduler/metrics in kube-scheduler 1.36, KEP-4671.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import mul

STABLE, BETA, ALPHA = "STABLE", "BETA", "ALPHA"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric under its full name; only a histogram has `buckets`."""

    name: str
    labels: tuple[str, ...]
    stability: str
    text: str
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> str:
        """The type: counter, histogram or gauge."""
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def help(self) -> str:
        """The text of HELP, which begins with the stability, as Kubernetes writes it."""
        return f"[{self.stability}] {self.text}"


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return `count` bounds, each `factor` times the one before."""
    return tuple(accumulate(repeat(factor, count - 1), mul, initial=start))


_MILLISECONDS = exponential(0.001, 2, 15)
_TENTHS = exponential(0.0001, 2, 12)
_FINE = exponential(0.00001, 1.5, 20)

METRICS = (
    Metric(
        "scheduler_schedule_attempts_total",
        ("result", "profile"),
        STABLE,
        "Attempts to schedule a pod, by result: scheduled (bound), unschedulable, error.",
    ),
    Metric(
        "scheduler_scheduling_attempt_duration_seconds",
        ("result", "profile"),
        STABLE,
        "Time from the start of a scheduling cycle until the pod is bound or returns to the queue.",
        _MILLISECONDS,
    ),
    Metric(
        "scheduler_preemption_victims",
        (),
        STABLE,
        "Pods that one preemption evicts.",
        exponential(1, 2, 7),
    ),
    Metric("scheduler_preemption_attempts_total", (), STABLE, "Preemptions tried, with victims or without."),
    Metric(
        "scheduler_pending_pods",
        ("queue",),
        STABLE,
        "Pods that wait: active, backoff, unschedulable (tried in vain), gated (held before the first attempt).",
    ),
    Metric(
        "scheduler_pod_scheduling_attempts",
        (),
        STABLE,
        "Attempts that a bound pod needed.",
        exponential(1, 2, 5),
    ),
    Metric(
        "scheduler_framework_extension_point_duration_seconds",
        ("extension_point", "status", "profile"),
        STABLE,
        "Time that all plugins of an extension point take for one pod.",
        _TENTHS,
    ),
    Metric(
        "scheduler_queue_incoming_pods_total",
        ("queue", "event"),
        STABLE,
        "Pods that entered a queue, by the event that moved them.",
    ),
    Metric("scheduler_goroutines", ("operation",), BETA, "Concurrent tasks, by what they do."),
    Metric(
        "scheduler_pod_scheduling_sli_duration_seconds",
        ("attempts",),
        BETA,
        "Time from a pod's first entry into the active queue until it is bound, over all attempts.",
        exponential(0.01, 2, 20),
    ),
    Metric(
        "scheduler_permit_wait_duration_seconds",
        ("result",),
        BETA,
        "Time that a gang's member waits for its siblings before it is bound.",
        _MILLISECONDS,
    ),
    Metric(
        "scheduler_unschedulable_pods",
        ("plugin", "profile"),
        BETA,
        "Waiting pods, by plugin that refused them; a pod counts once for each such plugin.",
    ),
    Metric(
        "scheduler_plugin_evaluation_total",
        ("plugin", "extension_point", "profile"),
        BETA,
        "Runs of a plugin's code: PreFilter, Filter, PreScore and Score.",
    ),
    Metric(
        "scheduler_event_handling_duration_seconds",
        ("event",),
        ALPHA,
        "Time to take one watch event into the cache and the queue.",
        _TENTHS,
    ),
    Metric(
        "scheduler_scheduling_algorithm_duration_seconds",
        (),
        ALPHA,
        "Time to decide one pod that belongs to no group.",
        _MILLISECONDS,
    ),
    Metric("scheduler_inflight_events", ("event",), ALPHA, "Events that wait for the end of a scheduling cycle."),
    Metric(
        "scheduler_batch_attempts_total",
        ("profile", "result"),
        ALPHA,
        "Pods placed with the result of an equal pod before (hint_used) or without (no_hint).",
    ),
    Metric(
        "scheduler_batch_cache_flushed_total",
        ("profile", "reason"),
        ALPHA,
        "Results of equal pods that were given up, by reason.",
    ),
    Metric(
        "scheduler_pod_scheduled_after_flush_total",
        (),
        ALPHA,
        "Pods bound after no event had woken them for five minutes.",
    ),
    Metric(
        "scheduler_plugin_execution_duration_seconds",
        ("plugin", "extension_point", "status"),
        ALPHA,
        "Time of one run of a plugin, in one of ten scheduling cycles.",
        _FINE,
    ),
    Metric(
        "scheduler_queueing_hint_execution_duration_seconds",
        ("plugin", "event", "hint"),
        ALPHA,
        "Time to find and wake what a plugin had refused, for one event.",
        _FINE,
    ),
    Metric("scheduler_cache_size", ("type",), ALPHA, "Nodes, pods on nodes, and assumed pods in the cache."),
    Metric(
        "scheduler_preemption_goroutines_duration_seconds",
        ("result",),
        ALPHA,
        "Time to delete the victims of one preemption.",
        exponential(0.01, 2, 20),
    ),
    Metric(
        "scheduler_preemption_goroutines_execution_total",
        ("result",),
        ALPHA,
        "Preemptions whose victims were deleted, or not.",
    ),
    Metric(
        "scheduler_async_api_call_execution_total",
        ("call_type", "result"),
        ALPHA,
        "Writes beside the scheduling cycles: bindings and statuses of pods.",
    ),
    Metric(
        "scheduler_async_api_call_execution_duration_seconds",
        ("call_type", "result"),
        ALPHA,
        "Time of a write beside the scheduling cycles, with its retries.",
        _MILLISECONDS,
    ),
    Metric(
        "scheduler_pending_async_api_calls",
        ("call_type",),
        ALPHA,
        "Writes beside the scheduling cycles that have not ended.",
    ),
    Metric(
        "scheduler_resourceclaim_creates_total",
        ("status",),
        ALPHA,
        "Claims that were to be created for extended resources.",
    ),
    Metric(
        "scheduler_dra_bindingconditions_allocations_total",
        ("profile", "driver", "status"),
        ALPHA,
        "Devices with binding conditions that pods waited for: success, failure, timeout, error.",
    ),
    Metric(
        "scheduler_dra_bindingconditions_wait_duration_seconds",
        ("profile", "driver", "status"),
        ALPHA,
        "Time that the binding of a pod waited for its devices.",
        exponential(0.1, 2, 14),
    ),
    Metric(
        "scheduler_podgroup_schedule_attempts_total",
        ("result", "profile"),
        ALPHA,
        "Attempts to schedule a PodGroup: scheduled, unschedulable, waiting_on_preemption, error.",
    ),
    Metric(
        "scheduler_podgroup_scheduling_attempt_duration_seconds",
        ("result", "profile"),
        ALPHA,
        "Time of a PodGroup's scheduling cycle.",
        _MILLISECONDS,
    ),
    Metric(
        "scheduler_podgroup_scheduling_algorithm_duration_seconds",
        (),
        ALPHA,
        "Time to decide one PodGroup.",
        _MILLISECONDS,
    ),
)
