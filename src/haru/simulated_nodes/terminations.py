"""Pods that are being deleted: since when, and which of their containers have ended by now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from haru.kube.meta import Obj, uid_of
from haru.kube.names import format_time, parse_time
from haru.kube.pod_containers import statuses_of
from haru.kube.simulated_containers.stop_traps import LEAST_SECONDS
from haru.simulated_nodes.events import PodEvents
from haru.simulated_nodes.stops import Stop, stopped_status, stops_of, takes_time

_TRUNCATED_SECONDS: Final = 1.5
"""The object says in whole seconds when its deletion was asked for."""


class _Termination(NamedTuple):
    """Since when a pod is being stopped, and when each container ends."""

    since: datetime
    stops: Mapping[str, Stop]


class Terminations:
    """The pods of a fleet that are being deleted."""

    def __init__(self, clock: Callable[[], datetime], events: PodEvents) -> None:
        self._clock, self._events = clock, events
        self._begun: dict[str, _Termination] = {}

    def forget(self, pod: Obj) -> None:
        """The pod has ended."""
        self._begun.pop(uid_of(pod), None)

    def has_begun(self, pod: Obj) -> bool:
        """Whether the pod is being stopped, and takes its time."""
        return uid_of(pod) in self._begun

    def step(self, pod: Obj) -> tuple[Obj | None, float | None]:
        """The status to write now, if any, and the seconds until the next container ends; None if all have."""
        now, grace = self._clock(), float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        running = {name for name, status in statuses_of(pod).items() if "running" in (status.get("state") or {})}
        begun = self._begun.get(uid_of(pod))
        if begun is None:
            begun = _Termination(_asked_at(pod, grace, now), stops_of(pod, grace))
            if running:
                self._events.stopped(pod)
            if takes_time(pod):
                self._begun[uid_of(pod)] = begun
        # A second deletion may have shortened the grace period.
        latest = grace + LEAST_SECONDS
        ends = {name: begun.since + timedelta(seconds=min(one.after, latest)) for name, one in begun.stops.items()}
        over = {name: (begun.stops[name], format_time(at)) for name, at in ends.items() if at <= now}
        left = min(((at - now).total_seconds() for at in ends.values() if at > now), default=None)
        if left is None or running & over.keys():
            return stopped_status(pod, over, format_time(now)), left
        return None, left


def _asked_at(pod: Obj, grace: float, now: datetime) -> datetime:
    """When the deletion was asked for."""
    text = pod["metadata"].get("deletionTimestamp")
    asked = parse_time(text) - timedelta(seconds=grace) if text else now
    return now if abs((now - asked).total_seconds()) <= _TRUNCATED_SECONDS else min(asked, now)
