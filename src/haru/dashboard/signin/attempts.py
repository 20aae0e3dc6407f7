"""How many wrong tokens one address may try: then it waits until the oldest of them are some minutes old."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

MOST, WINDOW_SECONDS = 10, 300.0
_ADDRESSES = 4096


class Attempts:
    """The wrong tokens of the last minutes; `monotonic` is in seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._of: dict[str, deque[float]] = {}

    def wait(self, address: str) -> float:
        """Return for how many seconds an address may not try; 0 where it may."""
        times = self._of.get(address)
        if times is None or len(times) < MOST:
            return 0.0
        return max(0.0, times[0] + WINDOW_SECONDS - self._monotonic())

    def failed(self, address: str) -> None:
        """Count a wrong token."""
        # The addresses are in the order of their last attempts.
        own = self._of[address] = self._of.pop(address, deque(maxlen=MOST))
        own.append(self._monotonic())
        while len(self._of) > _ADDRESSES:
            del self._of[next(iter(self._of))]
