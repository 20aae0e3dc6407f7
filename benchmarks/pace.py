"""A clock that counts in seconds of the reference machine, whatever others do to this one meanwhile.

Where several share a machine, even processor time says little: by turns the same work takes one and three times as
long. Hence a small piece of the calibration is done again and again between what is measured, and what was measured
counts by how fast that piece was right before and, if the measured work is long, right after.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.calibrate import work

_PARTS = 50
"""A piece is this part of the calibration: some milliseconds."""
_VALID_SECONDS = 0.004
"""How long the machine is taken to keep its pace: what is shorter is not torn apart by calibration."""


class PacedClock:
    """Call it for the time. `calibration` is what the calibration takes on the machine in whose seconds it counts."""

    def __init__(self, calibration: float, clock: Callable[[], float] = time.thread_time) -> None:
        self._piece = calibration / _PARTS
        self._clock = clock
        self._total = 0.0
        self._factor = self._measured()
        self._last = self._calibrated = clock()

    def __call__(self) -> float:
        """Seconds of the reference machine since some moment."""
        now = self._clock()
        elapsed, factor = now - self._last, self._factor
        if now - self._calibrated > _VALID_SECONDS:
            self._factor = self._measured()
            factor = (factor + self._factor) / 2
            self._calibrated = now = self._clock()
        self._total += elapsed * factor
        self._last = now
        return self._total

    def _measured(self) -> float:
        begun = self._clock()
        work(_PARTS)
        return self._piece / (self._clock() - begun)
