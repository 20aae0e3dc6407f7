"""Histograms and counters with labels, in Prometheus' text format, for servers that count in every request.

prometheus-client, which controllers and accounting use, takes six times as long to observe and fifteen times as long to
write the text, which holds up the event loop: ADR 16.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

Labels = tuple[str, ...]


def head(name: str, kind: str, text: str) -> list[str]:
    """The lines before a metric's samples; `kind` is counter, gauge or histogram."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


class CounterOf:
    """A counter for every combination of its labels' values."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self.counts: Counter[Labels] = Counter()
        """By the labels' values, in their order."""
        if not labels:
            self.counts[()] = 0

    def add(self, *values: str, amount: int = 1) -> None:
        """Add `amount` under the labels' values, in their order."""
        self.counts[values] += amount

    def lines(self) -> list[str]:
        """Text lines with the head; none before the first event."""
        if not self.counts:
            return []
        found = head(self._name, "counter", self._text)
        shown = sorted((_labelled(self._labels, values), count) for values, count in self.counts.items())
        return found + [f"{self._name}{_braced(labels)} {count}" for labels, count in shown]


class GaugeOf:
    """A gauge whose values are read when the text is written; `read` returns them by the labels' values."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self.read: Callable[[], Mapping[Labels, float]] = dict

    def lines(self) -> list[str]:
        """Text lines with the head; none without a value."""
        shown = sorted((_labelled(self._labels, values), value) for values, value in self.read().items())
        found = [f"{self._name}{_braced(labels)} {value:g}" for labels, value in shown]
        return head(self._name, "gauge", self._text) + found if found else []


class HistogramOf:
    """A histogram of seconds for every combination of its labels' values."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name, self._text, self._labels, self._bounds = name, text, tuple(labels), tuple(bounds)
        self._seen: dict[Labels, list[float]] = {}
        """Counts per bucket, the last one above all bounds, then the sum of seconds."""
        if not labels:
            self._seen[()] = [0] * (len(self._bounds) + 1) + [0.0]

    def observe(self, seconds: float, *values: str) -> None:
        """Add an observation under the labels' values, in their order."""
        self.put(values, seconds)

    def put(self, values: Labels, seconds: float, times: int = 1) -> None:
        """Add an observation under the labels' values, in their order, so many times."""
        counts = self._seen.get(values)
        if counts is None:
            counts = self._seen[values] = [0] * (len(self._bounds) + 1) + [0.0]
        counts[bisect_left(self._bounds, seconds)] += times
        counts[-1] += seconds * times

    def lines(self) -> list[str]:
        """Text lines with the head; none before the first event."""
        if not self._seen:
            return []
        return [*head(self._name, "histogram", self._text), *self.samples()]

    def samples(self) -> list[str]:
        """Text lines without the head."""
        found: list[str] = []
        for labels, values in sorted((_labelled(self._labels, values), values) for values in self._seen):
            before = f"{labels}," if labels else ""
            total = 0
            *counts, seconds = self._seen[values]
            for bound, count in zip((*map(_bound, self._bounds), "+Inf"), counts, strict=True):
                total += int(count)
                found.append(f'{self._name}_bucket{{{before}le="{bound}"}} {total}')
            found.append(f"{self._name}_sum{_braced(labels)} {seconds:.9f}")
            found.append(f"{self._name}_count{_braced(labels)} {total}")
        return found


def _bound(bound: float) -> str:
    """Write a bound as Go does: the shortest text that reads back as the same number."""
    return repr(float(bound)).removesuffix(".0")


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _labelled(names: Labels, values: Labels) -> str:
    return ",".join(f'{name}="{escaped(value)}"' for name, value in sorted(zip(names, values, strict=True)))


def escaped(value: str) -> str:
    """The value of a label as the text format has it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
