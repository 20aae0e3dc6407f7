"""Collect what one decision costs, by extension point and plugin, for the metrics of its scheduler.

The engine reads no clock of its own: a recorder brings one. Source: kube-scheduler's instrumented plugins and
`framework_extension_point_duration_seconds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

_MOST_RUNS = 1000


class CountedPlan(Protocol):
    """A filter plan that counts its checks: `ends[i]` ended at filter i, the last one passed all of them."""

    @property
    def plugins(self) -> Sequence[str]:
        """The plugin of each filter."""

    @property
    def ends(self) -> list[int]:
        """How many checks ended where."""


class MetricsRecorder:
    """Hold the durations and counts of one decision. `timed`: each plugin's runs are measured, too, up to 1000.

    `points` are (extension point, status, seconds), `runs` are (plugin, extension point, status, seconds).
    """

    def __init__(self, clock: Callable[[], float], *, timed: bool = False) -> None:
        self.clock = clock
        self.timed = timed
        self.points: list[tuple[str, str, float]] = []
        self.runs: list[tuple[str, str, str, float]] = []
        self.evaluations: Counter[tuple[str, str]] = Counter()
        self.batch_attempts: Counter[str] = Counter()
        self.batch_flushes: Counter[str] = Counter()
        self.preemptions = 0
        self._since: float | None = None
        self._starts: list[tuple[int, int, dict[str, int], dict[str, int]]] = []
        """What had been recorded when each pod's pass began."""
        self._quiet = False
        self._plans: dict[int, CountedPlan] = {}

    def start(self) -> None:
        """Begin to measure one pod's pass through the extension points."""
        if not self._quiet:
            known = dict(self.batch_attempts), dict(self.batch_flushes)
            self._starts.append((len(self.points), len(self.runs), *known))
            self._since = self.clock()

    def keep(self, pods: int) -> None:
        """Drop what was recorded of pods after the first so many: they are decided once more. Checks stay counted."""
        if pods < len(self._starts):
            points, runs, attempts, flushes = self._starts[pods]
            del self.points[points:], self.runs[runs:], self._starts[pods:]
            self.batch_attempts, self.batch_flushes = Counter(attempts), Counter(flushes)

    def lap(self, point: str, status: str = "Success") -> None:
        """Record the time since the last extension point."""
        if self._since is not None:
            now = self.clock()
            self.points.append((point, status, now - self._since))
            self._since = now

    def stop(self) -> None:
        """End what `start` began."""
        self._since = None

    @contextmanager
    def post_filter(self) -> Iterator[list[str]]:
        """Measure preemption; the list takes its status. Its dry runs are no extension points of their own."""
        began, status = self.clock(), ["Unschedulable"]
        self.preemptions += 1
        self._quiet = True
        try:
            yield status
        finally:
            self._quiet = False
            seconds = self.clock() - began
            self.points.append(("PostFilter", status[-1], seconds))
            if self.timed:
                self.run("DefaultPreemption", "PostFilter", status[-1], seconds)

    def run(self, plugin: str, point: str, status: str, seconds: float) -> None:
        """Record one run of a plugin."""
        self.runs.append((plugin, point, status, seconds))
        self.timed = len(self.runs) < _MOST_RUNS

    def uses(self, plan: CountedPlan) -> None:
        """Count the checks of this plan at the end of the decision."""
        self._plans[id(plan)] = plan

    def finish(self) -> None:
        """Add the checks of all plans to the evaluations of their plugins."""
        for plan in self._plans.values():
            asked = 0
            for number in range(len(plan.ends) - 1, -1, -1):
                asked += plan.ends[number]
                plan.ends[number] = 0
                first = number < len(plan.plugins) and plan.plugins[number] not in plan.plugins[:number]
                if first and asked:
                    self.evaluations[plan.plugins[number], "Filter"] += asked
        self._plans.clear()
