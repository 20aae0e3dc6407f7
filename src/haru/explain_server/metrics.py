"""What the resident answer counts, under the names that Kubernetes gives such metrics of an API server."""

from __future__ import annotations

from collections.abc import Callable

from haru.engine import Snapshot
from haru.explain_server.questions import is_other, parse_path
from haru.exposition import CounterOf, GaugeOf, HistogramOf, Labels
from haru.loop_lag import lag_lines

_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
"""Those of kube-apiserver."""
_TERMINATED = (429, 504)


class Metrics:
    """Counters of one server; `waiting` says how many questions wait, `snapshot` what the cache has."""

    def __init__(self, waiting: Callable[[], int], snapshot: Callable[[], Snapshot]) -> None:
        labels = ("verb", "resource", "code")
        self._requests = CounterOf("apiserver_request_total", "Answered requests.", labels)
        self._durations = HistogramOf(
            "apiserver_request_duration_seconds", "Time from request to answer.", ("verb", "resource"), _BUCKETS
        )
        self._terminated = CounterOf(
            "apiserver_request_terminations_total", "Requests refused in self-defense, or not answered in time.", labels
        )
        self._depth = GaugeOf("workqueue_depth", "Questions that wait or are being answered.", ("name",))
        self._depth.read = lambda: {("explanations",): waiting()}
        self._objects = GaugeOf("haru_explain_cache_objects", "Objects in the cache.", ("kind",))
        self._objects.read = lambda: _counted(snapshot())

    def observe(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        resource, _, name = parse_path(path) or ("", "", path)
        labels = "GET" if name else "LIST", "others" if is_other(resource) else resource
        self._requests.add(*labels, str(status))
        self._durations.observe(seconds, *labels)
        if status in _TERMINATED:
            self._terminated.add(*labels, str(status))

    def text(self) -> bytes:
        """All of them in the text format of Prometheus."""
        every = (self._requests, self._durations, self._terminated, self._depth, self._objects)
        lines = (line for metric in every for line in metric.lines())
        return "".join(f"{line}\n" for line in (*lines, *lag_lines())).encode()


def _counted(snapshot: Snapshot) -> dict[Labels, float]:
    slices = sum(len(pool.slices) for pool in snapshot.devices.pools.values())
    counts = {kind: len(objects) for kind, objects in snapshot.others.items()}
    counts |= {"Node": len(snapshot.node_names), "Pod": len(snapshot.pods)}
    counts |= {"ResourceClaim": len(snapshot.claims), "ResourceSlice": slices}
    return {(kind,): count for kind, count in counts.items()}
