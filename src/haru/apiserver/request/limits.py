"""How many requests may be worked on at once: readers and writers apart, and a plain 429 beyond. And for how long.

What nodes say of themselves has places of its own, as many as writers have: a node whose heartbeats were refused would
be taken for lost.
Source: kube-apiserver's max-requests-inflight and request-timeout, and the flow schema system-node-high.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from haru.apiserver.config import FlowControl
from haru.kube.errors import too_many_requests_error
from haru.kube.kinds import Kind

T = TypeVar("T")
_READS = ("GET", "HEAD")
_NODES_GROUP = "system:nodes"
_HEARTBEATS = {("", "nodes"), ("coordination.k8s.io", "leases")}


class RequestLimits:
    """Bound how many requests are handled at once, and for how long each may take.

    Watches are not counted: they wait rather than work.
    """

    def __init__(self, flow_control: FlowControl, timeout: RequestTimeout) -> None:
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


@dataclass(slots=True, eq=False)
class _Wait:
    task: asyncio.Task[object]
    until: float
    cancelling: int
    late: bool = False


class RequestTimeout:
    """`asyncio.timeout` where many may take the same time: one timer for all, set for the one that began first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waits: dict[_Wait, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def wait_for(self, work: Awaitable[T]) -> T:
        """Await some work; cancel it and raise TimeoutError if it takes longer."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        wait = _Wait(task, loop.time() + self._seconds, task.cancelling())
        self._waits[wait] = None
        if self._timer is None:
            self._timer = loop.call_at(wait.until, self._look)
        try:
            return await work
        except asyncio.CancelledError:
            if wait.late and task.cancelling() <= wait.cancelling + 1:
                raise TimeoutError from None
            raise  # somebody else wants the task to end
        finally:
            del self._waits[wait]
            if wait.late:
                task.uncancel()

    def _look(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        for wait in self._waits:
            if wait.late:
                continue
            if wait.until > loop.time():
                self._timer = loop.call_at(wait.until, self._look)
                return
            wait.late = True
            wait.task.cancel()
