"""Measure what other schedulers do on the same devices. Source: our own; described in docs/reference/metrics.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from haru.exposition import CounterOf, GaugeOf

_PREFIX = "haru_scheduler_"


def _nothing() -> int:
    return 0


class CoexistenceMetrics:
    """Counters, and gauges that are read when the text is written."""

    def __init__(self) -> None:
        self.foreign_allocations: Callable[[], int] = _nothing
        self.devices_allocated_twice: Callable[[], int] = _nothing
        self.overlapping_schedulers: Callable[[], int] = _nothing
        self.foreign_pods: Counter[str] = Counter()
        """Bound pods by schedulerName."""
        self._confirmed = self._counter(
            "allocations_confirmed", "Allocations whose binding waited until the watch had shown them."
        )
        self._given_back = self._counter(
            "allocations_given_back", "Allocations given back because another claim had the device first."
        )
        self._double = self._counter(
            "double_allocations", "Double allocations that lasted for half a second and were reported."
        )
        self._gauges = (
            self._gauge(
                "devices_allocated_twice",
                "Devices that several claims hold beyond what the device allows.",
                lambda: self.devices_allocated_twice(),
            ),
            self._gauge(
                "overlapping_schedulers",
                "Running schedulers of Haru that may allocate the same devices.",
                lambda: self.overlapping_schedulers(),
            ),
            self._gauge(
                "foreign_allocations",
                "Allocations in the partition that other schedulers wrote.",
                lambda: self.foreign_allocations(),
            ),
            self._pods(),
        )

    def confirmed(self, allocations: int) -> None:
        """Count allocations that the watch has shown before their pods are bound."""
        self._confirmed.add(amount=allocations)

    def given_back(self) -> None:
        """Count an allocation that is given back."""
        self._given_back.add()

    def reported(self) -> None:
        """Count a double allocation that was reported."""
        self._double.add()

    def lines(self) -> list[str]:
        """The metrics in the Prometheus text format."""
        every = (self._confirmed, self._given_back, self._double, *self._gauges)
        return [line for metric in every for line in metric.lines()]

    def _counter(self, name: str, text: str) -> CounterOf:
        return CounterOf(f"{_PREFIX}{name}_total", text, ())

    def _gauge(self, name: str, text: str, read: Callable[[], int]) -> GaugeOf:
        found = GaugeOf(f"{_PREFIX}{name}", text, ())
        found.read = lambda: {(): read()}
        return found

    def _pods(self) -> GaugeOf:
        text = "Bound pods of other schedulers that hold devices of the partition."
        found = GaugeOf(f"{_PREFIX}foreign_pods", text, ("scheduler_name",))
        found.read = lambda: {(name,): count for name, count in self.foreign_pods.items()}
        return found
