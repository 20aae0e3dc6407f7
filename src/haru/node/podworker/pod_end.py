"""Why a pod ends, and within what time: its work, its deadline, an eviction, a rejection."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from haru.kube.names import parse_time

DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
OVERDUE: Final = "Pod was active on the node longer than the specified deadline"


@dataclass(slots=True)
class PodEnd:
    """What was decided of a pod's end."""

    is_over: bool = False
    failure: tuple[str, str] | None = None
    """Why the pod as a whole has failed, as a reason and a message."""
    disruption: str = ""
    """What its condition says of a pod that goes for others."""
    is_rejected: bool = False
    is_gone: bool = False
    """The API does not have the pod."""
    grace: float = math.inf
    """The longest grace period, in seconds, of a pod that is evicted."""
    kill_began: float | None = None
    is_cleaned: bool = False
    """Nothing of the pod is left but its containers' logs."""

    def fail(self, reason: str, message: str) -> None:
        """The pod is over, and has failed."""
        self.failure, self.is_over = (reason, message), True

    def reject(self, reason: str, message: str) -> None:
        """The node does not take the pod."""
        self.fail(reason, f"Pod was rejected: {message}")
        self.is_rejected = True

    def evict(self, reason: str, message: str, grace: float, disruption: str) -> None:
        """The pod is over, and has `grace` seconds."""
        self.fail(reason, message)
        self.grace, self.disruption = grace, disruption

    def begin_kill(self) -> float:
        """When the first of its containers was killed, by the monotonic clock: now, unless one was."""
        if self.kill_began is None:
            self.kill_began = time.monotonic()
        return self.kill_began


def seconds_left(pod: Mapping[str, Any]) -> float | None:
    """How long a pod may still be active; None without a bound."""
    allowed, began = pod["spec"].get("activeDeadlineSeconds"), (pod.get("status") or {}).get("startTime")
    if allowed is None or began is None:
        return None
    return max(0.0, parse_time(began).timestamp() + float(allowed) - time.time())
