"""Histograms and counters with labels, in Prometheus' text form, for servers that count in each request.

An observation is a look into a table and an addition: prometheus-client, which scheduler and controllers use, takes ten
times as long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

Labels = tuple[str, ...]


class CounterOf:
    """A counter for every combination of its labels' values."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._counts: Counter[Labels] = Counter()

    def add(self, *values: str) -> None:
        """One more, under the values of the labels in their order."""
        self._counts[values] += 1

    def lines(self) -> list[str]:
        """The exposition; nothing of what never happened."""
        if not self._counts:
            return []
        found = [f"# HELP {self._name} {self._text}", f"# TYPE {self._name} counter"]
        shown = sorted((_labelled(self._labels, values), count) for values, count in self._counts.items())
        return found + [f"{self._name}{{{labels}}} {count}" for labels, count in shown]


class HistogramOf:
    """A histogram of seconds for every combination of its labels' values."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name, self._text, self._labels, self._bounds = name, text, tuple(labels), tuple(bounds)
        self._seen: dict[Labels, list[float]] = {}
        """How many fell below each bound and above the last, and the sum of them all."""

    def observe(self, seconds: float, *values: str) -> None:
        """One observation, under the values of the labels in their order."""
        counts = self._seen.get(values)
        if counts is None:
            counts = self._seen[values] = [0] * (len(self._bounds) + 1) + [0.0]
        counts[bisect_left(self._bounds, seconds)] += 1
        counts[-1] += seconds

    def lines(self) -> list[str]:
        """The exposition; nothing of what never happened."""
        if not self._seen:
            return []
        return [f"# HELP {self._name} {self._text}", f"# TYPE {self._name} histogram", *self.samples()]

    def samples(self) -> list[str]:
        """The exposition but for its head."""
        found: list[str] = []
        for labels, values in sorted((_labelled(self._labels, values), values) for values in self._seen):
            before = f"{labels}," if labels else ""
            total = 0
            *counts, seconds = self._seen[values]
            for bound, count in zip((*(f"{b:g}" for b in self._bounds), "+Inf"), counts, strict=True):
                total += int(count)
                found.append(f'{self._name}_bucket{{{before}le="{bound}"}} {total}')
            inside = f"{{{labels}}}" if labels else ""
            found.append(f"{self._name}_sum{inside} {seconds:.9f}")
            found.append(f"{self._name}_count{inside} {total}")
        return found


def _labelled(names: Labels, values: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(zip(names, values, strict=True)))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
