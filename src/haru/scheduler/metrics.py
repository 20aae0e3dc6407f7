"""Measure the scheduler under kube-scheduler's names; the text is Prometheus'. Source: kube-scheduler 1.36 metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from haru.engine.framework import MetricsRecorder
from haru.exposition import CounterOf, GaugeOf, HistogramOf
from haru.kube.meta import Obj
from haru.scheduler.coexistence.metrics import CoexistenceMetrics
from haru.scheduler.metric_table import METRICS

_SAMPLED = 10
_MOST_ATTEMPTS = 15
BIND_CALL, STATUS_CALL = "pod_binding", "pod_status_patch"
WITHOUT_EVENT = "ForceActivate"


class SchedulerMetrics:
    """The metrics of one scheduler, so that several can live in a process. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._counters = {m.name: CounterOf(m.name, m.help, m.labels) for m in METRICS if m.kind == "counter"}
        self._gauges = {m.name: GaugeOf(m.name, m.help, m.labels) for m in METRICS if m.kind == "gauge"}
        self._histograms = {
            m.name: HistogramOf(m.name, m.help, m.labels, m.buckets) for m in METRICS if m.kind == "histogram"
        }
        # By the names that callers use.
        self._counted = {
            name.removeprefix("scheduler_").removesuffix("_total"): c for name, c in self._counters.items()
        }
        self._observed = {name.removeprefix("scheduler_"): found for name, found in self._histograms.items()}
        self._points = self._histograms["scheduler_framework_extension_point_duration_seconds"]
        self._decisions = 0
        self.coexistence = CoexistenceMetrics()

    def text(self) -> bytes:
        """The metrics in the Prometheus text format."""
        every: dict[str, CounterOf | GaugeOf | HistogramOf] = {}
        for some in (self._counters, self._gauges, self._histograms):
            every.update(some)
        lines = [line for metric in METRICS for line in every[metric.name].lines()]
        lines += self.coexistence.lines()
        return "".join(f"{line}\n" for line in lines).encode()

    def count(self, name: str, *values: str, amount: int = 1) -> None:
        """Add to the counter `scheduler_NAME_total`."""
        self._counted[name].counts[values] += amount

    def observe(self, name: str, value: float, *values: str) -> None:
        """Add an observation to the histogram `scheduler_NAME`."""
        self._observed[name].put(values, value)

    def read(self, name: str, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Have the gauge `scheduler_NAME` read its values."""
        self._gauges[f"scheduler_{name}"].read = read

    # -- scheduling cycles --------------------------------------------------------------------------------------------

    def recorder(self) -> MetricsRecorder:
        """Return a recorder for the next decision; plugins are measured in one decision of ten, as in 1.36."""
        self._decisions += 1
        return MetricsRecorder(self.clock, timed=self._decisions % _SAMPLED == 1)

    def decided(self, recorder: MetricsRecorder, profile: str) -> None:
        """Take in what a decision has cost."""
        recorder.finish()
        for point, status, seconds in recorder.points:
            self._points.put((point, status, profile), seconds)
        for plugin, point, status, seconds in recorder.runs:
            self.observe("plugin_execution_duration_seconds", seconds, plugin, point, status)
        for (plugin, point), number in recorder.evaluations.items():
            self.count("plugin_evaluation", plugin, point, profile, amount=number)
        for result, number in recorder.batch_attempts.items():
            self.count("batch_attempts", profile, result, amount=number)
        for reason, number in recorder.batch_flushes.items():
            self.count("batch_cache_flushed", profile, reason, amount=number)
        if recorder.preemptions:
            self.count("preemption_attempts", amount=recorder.preemptions)

    def extension_point(self, point: str, status: str, profile: str, seconds: float, runs: int = 1) -> None:
        """Observe runs of an extension point that took so long each."""
        self._points.put((point, status, profile), seconds, runs)

    def waited_for_siblings(self, result: str, seconds: float, members: int) -> None:
        """Observe how long members of a gang waited until all had what they need."""
        self._observed["permit_wait_duration_seconds"].put((result,), seconds, members)

    def attempted(self, result: str, profile: str, seconds: float) -> None:
        """Count a pod's attempt: scheduled, unschedulable or error."""
        self.count("schedule_attempts", result, profile)
        self.observe("scheduling_attempt_duration_seconds", seconds, result, profile)

    def group_attempted(self, result: str, profile: str, seconds: float) -> None:
        """Count a group's attempt: scheduled, unschedulable, waiting_on_preemption or error."""
        self.count("podgroup_schedule_attempts", result, profile)
        self.observe("podgroup_scheduling_attempt_duration_seconds", seconds, result, profile)

    def bound(self, attempts: int, waited: float, *, flushed: bool) -> None:
        """Count a bound pod: its attempts, the seconds since it was first active, whether a flush had woken it."""
        label = str(attempts) if attempts < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"
        self.observe("pod_scheduling_attempts", attempts)
        self.observe("pod_scheduling_sli_duration_seconds", waited, label)
        if flushed:
            self.count("pod_scheduled_after_flush")

    def devices_awaited(self, profile: str, status: str, seconds: float, results: Sequence[Obj]) -> None:
        """Count the devices that a pod waited for: success, failure, timeout or error."""
        for result in results:
            labels = profile, result["driver"], status
            self.observe("dra_bindingconditions_wait_duration_seconds", seconds, *labels)
            if result.get("bindingConditions"):
                self.count("dra_bindingconditions_allocations", *labels)

    def api_call(self, call_type: str, result: str, seconds: float) -> None:
        """Count a write that ran beside the scheduling cycles."""
        self.count("async_api_call_execution", call_type, result)
        self.observe("async_api_call_execution_duration_seconds", seconds, call_type, result)


class QueueMetrics:
    """What the queue measures. `event` is the label of the watch event that is being handled."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._metrics = metrics
        self.clock = metrics.clock
        self.event = WITHOUT_EVENT

    def incoming(self, queue: str, event: str, pods: int) -> None:
        """Count pods that entered a queue; an empty event stands for the one that is being handled."""
        self._metrics.count("queue_incoming_pods", queue, event or self.event, amount=pods)

    def hinted(self, plugin: str, seconds: float) -> None:
        """Observe how long it took to wake what a plugin had refused."""
        self._metrics.observe("queueing_hint_execution_duration_seconds", seconds, plugin, self.event, "Queue")

    def handled(self, labels: tuple[str, ...], seconds: float) -> None:
        """Observe how long an event took, under each of its labels."""
        for label in labels:
            self._metrics.observe("event_handling_duration_seconds", seconds, label)
