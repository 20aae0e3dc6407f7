"""How often and how long users tried to speak for others, by mode (KEP 5284), under Kubernetes' names."""

from __future__ import annotations

from haru.exposition import CounterOf, HistogramOf

_LABELS = ("mode", "decision")
_BOUNDS = tuple(0.001 * 2**step for step in range(15))


class _Timed:
    """A counter and a histogram of the same."""

    def __init__(self, name: str, what: str) -> None:
        self._count = CounterOf(f"apiserver_impersonation_{name}_total", f"{what}, by mode and decision.", _LABELS)
        duration = f"apiserver_impersonation_{name}_duration_seconds"
        self._durations = HistogramOf(duration, f"Seconds of {what.lower()}.", _LABELS, _BOUNDS)

    def add(self, mode: str, seconds: float, *, allowed: bool) -> None:
        """Count one; `mode` is empty where none allowed it."""
        decision = "allowed" if allowed else "denied"
        self._count.add(mode, decision)
        self._durations.observe(seconds, mode, decision)

    def lines(self) -> list[str]:
        return [*self._count.lines(), *self._durations.lines()]


class ImpersonationMetrics:
    """What one server has counted."""

    def __init__(self) -> None:
        self.attempts = _Timed("attempts", "Requests in the name of others")
        self.checks = _Timed("authorization_attempts", "Questions to the authorizers about these")

    def lines(self) -> list[str]:
        """The text for /metrics."""
        return [*self.attempts.lines(), *self.checks.lines()]
