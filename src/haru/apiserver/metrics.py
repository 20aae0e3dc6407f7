"""The server's metrics, under the names that Kubernetes gives them, in Prometheus' text form."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from haru.apiserver.core import Core
from haru.apiserver.http import Request

_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
_VERBS = {"POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE", "HEAD": "GET", "GET": "GET"}


class Metrics:
    """Counters of one server."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.watches = 0
        self._judged: Counter[bool] = Counter()
        self.more: list[Callable[[], list[str]]] = []
        """What else has counters of its own."""
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._durations: dict[tuple[str, str], list[float]] = {}

    def observe(self, request: Request, status: int, seconds: float) -> None:
        """Count a finished request."""
        verb = _VERBS.get(request.method, "OTHER")
        resource = resource_of(request.path)
        self._requests[verb, resource, status] += 1
        times = self._durations.get((verb, resource))
        if times is None:
            times = self._durations[verb, resource] = [0.0] * (len(_BUCKETS) + 2)
        times[-1] += 1
        times[-2] += seconds
        bucket = bisect_left(_BUCKETS, seconds)
        if bucket < len(_BUCKETS):
            times[bucket] += 1

    def judged(self, allowed: bool) -> None:
        """Count what the authorizers said of a request."""
        self._judged[allowed] += 1

    async def text(self) -> str:
        """The exposition."""
        lines = [
            "# HELP apiserver_request_total Requests by verb, resource and HTTP status.",
            "# TYPE apiserver_request_total counter",
        ]
        for (verb, resource, status), count in sorted(self._requests.items()):
            lines.append(f'apiserver_request_total{{code="{status}",resource="{resource}",verb="{verb}"}} {count}')
        lines += [
            "# HELP apiserver_request_duration_seconds Time from request to answer.",
            "# TYPE apiserver_request_duration_seconds histogram",
        ]
        for (verb, resource), times in sorted(self._durations.items()):
            lines += _histogram(f'resource="{resource}",verb="{verb}"', times)
        lines += [
            "# HELP apiserver_longrunning_requests Watches that are open.",
            "# TYPE apiserver_longrunning_requests gauge",
            f'apiserver_longrunning_requests{{verb="WATCH"}} {self.watches}',
            "# HELP authorization_attempts_total Requests by what the authorizers said; no opinion means 403.",
            "# TYPE authorization_attempts_total counter",
            f'authorization_attempts_total{{result="allowed"}} {self._judged[True]}',
            f'authorization_attempts_total{{result="no-opinion"}} {self._judged[False]}',
            "# HELP apiserver_storage_objects Stored objects by resource.",
            "# TYPE apiserver_storage_objects gauge",
        ]
        for bucket in sorted({resource.bucket for resource in self._core.served.all()}):
            page = await self._core.store.range(f"{bucket}/", limit=1)
            count = len(page.records) + page.remaining
            if count:
                lines.append(f'apiserver_storage_objects{{resource="{bucket}"}} {count}')
        lines += self._core.gates.exposition()
        for counters in self.more:
            lines += counters()
        return "\n".join(lines) + "\n"


def _histogram(labels: str, times: list[float]) -> list[str]:
    name = "apiserver_request_duration_seconds"
    lines = []
    total = 0
    for bound, count in zip(_BUCKETS, times, strict=False):
        total += int(count)
        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {total}')
    lines.append(f'{name}_bucket{{{labels},le="+Inf"}} {int(times[-1])}')
    lines.append(f"{name}_sum{{{labels}}} {times[-2]:.6f}")
    lines.append(f"{name}_count{{{labels}}} {int(times[-1])}")
    return lines


@lru_cache(maxsize=4096)
def resource_of(path: str) -> str:
    """The resource that a path is counted under; bounded by what is served, not by what is asked for."""
    from haru.kube.kinds import lookup

    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return ""
    if rest[0] == "namespaces" and len(rest) > 2 and lookup(group, version, rest[2]):
        rest = rest[2:]
    return rest[0] if lookup(group, version, rest[0]) else ""
