"""How many requests may be worked on at once: readers and writers apart, and a plain 429 beyond. And for how long.

What nodes say of themselves has places of its own, as many as writers have: a node whose heartbeats were refused would
be taken for lost.
Source: kube-apiserver's max-requests-inflight and request-timeout, and the flow schema system-node-high.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from haru.apiserver.config import FlowControl
from haru.event_loop import SharedTimeout
from haru.kube.errors import too_many_requests_error
from haru.kube.kinds import Kind

_READS = ("GET", "HEAD")
_NODES_GROUP = "system:nodes"
_HEARTBEATS = {("", "nodes"), ("coordination.k8s.io", "leases")}


class RequestLimits:
    """Bound how many requests are handled at once, and for how long each may take.

    Watches are not counted: they wait rather than work.
    """

    def __init__(self, flow_control: FlowControl, timeout: SharedTimeout) -> None:
        reads, writes = flow_control.max_reads_in_flight, flow_control.max_writes_in_flight
        self._limits = (reads, writes, writes)
        self._counts = [0, 0, 0]
        self.wait_for = timeout.wait_for
        """Awaits the work of a request; TimeoutError, and the work cancelled, if it takes too long."""

    @property
    def count(self) -> int:
        """How many requests are being handled."""
        return sum(self._counts)

    @contextmanager
    def slot(self, method: str, *, is_heartbeat: bool = False) -> Iterator[None]:
        """Count a request while it is handled; 429 for one too many."""
        which = 2 if is_heartbeat else 0 if method in _READS else 1
        if self._counts[which] >= self._limits[which]:
            raise too_many_requests_error("Too many requests, please try again later.")
        self._counts[which] += 1
        try:
            yield
        finally:
            self._counts[which] -= 1


def is_heartbeat(groups: Collection[str], kind: Kind) -> bool:
    """Whether a request of somebody of these groups is about what nodes say of themselves with."""
    return (kind.group, kind.plural) in _HEARTBEATS and _NODES_GROUP in groups
