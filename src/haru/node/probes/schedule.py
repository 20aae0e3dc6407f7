"""Probe schedule and thresholds.

Source: v1 Probe as documented: a threshold of successes or failures in a row turns the result; readiness and liveness
begin once the startup probe has succeeded; what has not been asked yet is not ready, and alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ProbeName = Literal["startup", "liveness", "readiness"]
FIELDS: Mapping[ProbeName, str] = {
    "startup": "startupProbe",
    "liveness": "livenessProbe",
    "readiness": "readinessProbe",
}


@dataclass(slots=True)
class ProbeState:
    """Results of one probe of one running container."""

    probe: Mapping[str, Any]
    name: ProbeName
    result: bool | None = None
    """What holds: None before anything is decided."""
    last: bool | None = None
    count: int = 0

    @property
    def period(self) -> float:
        """Seconds between two attempts."""
        return float(self.probe.get("periodSeconds") or 10)

    @property
    def timeout(self) -> float:
        """Seconds that an attempt may take."""
        return float(self.probe.get("timeoutSeconds") or 1)

    def delay(self, started: float, now: float) -> float:
        """Seconds until the first attempt."""
        return max(0.0, started + float(self.probe.get("initialDelaySeconds") or 0) - now)

    def heard(self, success: bool) -> bool:
        """Take a result in; whether what holds has changed."""
        self.count = self.count + 1 if success == self.last else 1
        self.last = success
        needed = self.probe.get("successThreshold") or 1 if success else self.probe.get("failureThreshold") or 3
        if self.count < needed or self.result == success:
            return False
        self.result = success
        return True

    @property
    def is_final(self) -> bool:
        """No further attempt is due: a startup probe that has decided, a liveness probe that has failed."""
        if self.name == "startup":
            return self.result is not None
        return self.name == "liveness" and self.result is False


def target_port(container: Mapping[str, Any], port: int | str) -> int | None:
    """A port by its number or its name; None for a name that the container does not have."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    return next((one["containerPort"] for one in container.get("ports") or () if one.get("name") == port), None)
