"""How many requests may be worked on at once: readers and writers apart, and a plain 429 beyond.

Source: kube-apiserver's max-requests-inflight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from haru.kube.errors import too_many_requests_error

_READS = ("GET", "HEAD")


class InFlight:
    """Counts what is in flight; watches are not counted, they wait rather than work."""

    def __init__(self, reads: int, writes: int) -> None:
        self._limits = (reads, writes)
        self._counts = [0, 0]

    @contextmanager
    def slot(self, method: str) -> Iterator[None]:
        """Hold a place for the time of a request; 429 when there is none."""
        which = 0 if method in _READS else 1
        if self._counts[which] >= self._limits[which]:
            raise too_many_requests_error("Too many requests, please try again later.")
        self._counts[which] += 1
        try:
            yield
        finally:
            self._counts[which] -= 1
