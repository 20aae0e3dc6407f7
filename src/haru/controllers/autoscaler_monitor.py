"""What the horizontal pod autoscaler counts, under kube-controller-manager's names.

Source: Kubernetes 1.36, pkg/controller/podautoscaler/monitor, as behaviour.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Metric

_PREFIX: Final = "horizontal_pod_autoscaler_controller"
_BUCKETS: Final = tuple(0.001 * 2**power for power in range(15))
_RESULT: Final = ("action", "error")


@dataclass(slots=True)
class Result:
    """What came of some work: `scale_up`, `scale_down` or `none`; and whether it failed."""

    action: str = "none"
    error: str = "none"


class AutoscalerMonitor:
    """Counts looks at autoscalers and at their metrics, with the time that they take."""

    def __init__(self) -> None:
        by_type = (*_RESULT, "metric_type")
        self._reconciliations = _timed("reconciliation", "looks at autoscalers", _RESULT, "reconciliations")
        self._computations = _timed("metric_computation", "looks at metrics", by_type)
        self._autoscalers = Gauge(f"{_PREFIX}_num_horizontal_pod_autoscalers", "Autoscalers there are.", registry=None)
        self._desired = Gauge(
            f"{_PREFIX}_desired_replicas", "Replicas that are wanted.", ("namespace", "hpa_name"), registry=None
        )

    def collect(self) -> Iterable[Metric]:
        """All of it."""
        for one in (*self._reconciliations, *self._computations, self._autoscalers, self._desired):
            yield from one.collect()

    @contextmanager
    def reconciliation(self) -> Iterator[Result]:
        """Count one look at an autoscaler."""
        with _counted(self._reconciliations) as result:
            yield result

    @contextmanager
    def computation(self, metric_type: str) -> Iterator[Result]:
        """Count one look at a metric."""
        with _counted(self._computations, metric_type) as result:
            yield result

    def count_autoscalers(self, count: int) -> None:
        """Say how many autoscalers there are."""
        self._autoscalers.set(count)

    def desire(self, namespace: str, name: str, replicas: int) -> None:
        """Say what an autoscaler wants."""
        self._desired.labels(namespace, name).set(replicas)

    def forget(self, namespace: str, name: str) -> None:
        """An autoscaler is gone."""
        with suppress(KeyError):
            self._desired.remove(namespace, name)


def _timed(name: str, what: str, labels: tuple[str, ...], plural: str = "") -> tuple[Counter, Histogram]:
    return (
        Counter(f"{_PREFIX}_{plural or name}", f"How many {what}.", labels, registry=None),
        Histogram(
            f"{_PREFIX}_{name}_duration_seconds",
            f"Seconds that {what} take.",
            labels,
            buckets=_BUCKETS,
            registry=None,
        ),
    )


@contextmanager
def _counted(meters: tuple[Counter, Histogram], *labels: str) -> Iterator[Result]:
    counter, histogram = meters
    result, start = Result(), time.perf_counter()
    try:
        yield result
    finally:
        values = (result.action if result.error == "none" else "none", result.error, *labels)
        counter.labels(*values).inc()
        histogram.labels(*values).observe(time.perf_counter() - start)
