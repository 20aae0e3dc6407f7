"""Writing to an API that fails now and then: which failures may pass, when to try again, and times that are written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.names import format_time

PODS: Final = known_kind("v1", "Pod")
CLAIMS: Final = known_kind("resource.k8s.io/v1", "ResourceClaim")
ATTEMPTS: Final = 6
_MAX_DELAY_SECONDS: Final = 5.0


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed a little later, or has succeeded although the answer was lost."""
    if isinstance(error, StatusError):
        return error.code >= 500 or error.code in (408, 429)
    return isinstance(error, OSError)


def delay(attempt: int) -> float:
    """The seconds to wait after the attempt of this number: doubled each time, up to five."""
    return min(0.05 * 2.0 ** min(attempt, 10), _MAX_DELAY_SECONDS)


@dataclass(frozen=True, slots=True)
class WriteTimes:
    """Times of writes. `claims`: allocations get a timestamp (DRADeviceBindingConditions)."""

    clock: Callable[[], datetime]
    claims: bool = True
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic: Callable[[], float] = time.monotonic

    def now(self) -> str:
        """Return the time as the API has it."""
        return format_time(self.clock())

    def allocation_time(self) -> str | None:
        """Return the timestamp of an allocation, if there is to be one."""
        return self.now() if self.claims else None
