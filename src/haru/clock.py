"""The time as a value that a component is given: what its timestamps and its deadlines go by.

A pure room takes moments as arguments and imports no clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Clock:
    """Two ways to tell the time that go on together."""

    now: Callable[[], datetime] = utc_now
    """The time of day, with its time zone."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds since some moment; it never goes back. That of the running event loop, too."""


SYSTEM = Clock()
"""The time of the machine."""
