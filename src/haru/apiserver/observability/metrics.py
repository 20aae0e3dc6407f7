"""The server's metrics, under the names that Kubernetes gives them, in Prometheus' text form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from haru.apiserver.object_store import ObjectStore
from haru.apiserver.request.http import Request
from haru.exposition import HistogramOf
from haru.loop_lag import lag_lines

_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
_VERBS = {"POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE", "HEAD": "GET", "GET": "GET"}


class Metrics:
    """Counters of one server."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.gates = objects.gates
        self.watches = 0
        self._judged: Counter[bool] = Counter()
        self.more: list[Callable[[], list[str]]] = []
        """What else has counters of its own."""
        self._requests: Counter[tuple[str, str, int]] = Counter()
        name = "apiserver_request_duration_seconds"
        self._durations = HistogramOf(name, "Time from request to answer.", ("verb", "resource"), _BUCKETS)

    def observe(self, request: Request, status: int, seconds: float) -> None:
        """Count a finished request."""
        verb = _VERBS.get(request.method, "OTHER")
        resource = resource_of(request.path)
        self._requests[verb, resource, status] += 1
        self._durations.observe(seconds, verb, resource)

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
        lines += self._durations.lines()
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
        for bucket in sorted({resource.bucket for resource in self._objects.served.all()}):
            page = await self._objects.store.range(f"{bucket}/", limit=1)
            count = len(page.records) + page.remaining
            if count:
                lines.append(f'apiserver_storage_objects{{resource="{bucket}"}} {count}')
        lines += [*self.gates.exposition(), *lag_lines()]
        for counters in self.more:
            lines += counters()
        return "\n".join(lines) + "\n"


@lru_cache(maxsize=1024)
def resource_of(path: str) -> str:
    """The resource of a path for metrics: only known resources, so that clients cannot add labels."""
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
