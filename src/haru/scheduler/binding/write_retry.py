"""Writing to an API that fails now and then: which failures may pass, and how long to wait before the next attempt."""

from __future__ import annotations

from typing import Final

from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind

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
