"""Pods of simulated nodes that go for critical ones, and the critical pods that wait until they have ended.

Nothing of it outlasts the process, as with kubelets: a critical pod that waits is admitted anew, and others go anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from haru.kube.meta import Obj, is_being_deleted, key_of, uid_of
from haru.kube.names import format_time
from haru.kube.node_preemption import CONDITION, MESSAGE, PREEMPTING, seconds_to_wait
from haru.simulated_nodes import pods as podlib

_DISRUPTION: Final = "DisruptionTarget"


class _Wait(NamedTuple):
    """For whose end a critical pod waits, and how long at most."""

    key: str
    victims: set[str]
    until: datetime


class Preemptions:
    """The preemptions of a fleet's kubelets."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._begun: dict[str, datetime] = {}
        """By uid of a victim, since when it ends."""
        self._waits: dict[str, _Wait] = {}
        self._awaited: dict[str, list[str]] = {}
        """By uid of a victim, the uids of the pods that wait for its end."""

    def begin(self, pod: Obj, victims: Sequence[Obj]) -> list[Obj]:
        """Have a critical pod wait for others; those of them that would not end anyway."""
        now = self._clock()
        until = now + timedelta(seconds=seconds_to_wait(victims))
        self._waits[uid_of(pod)] = _Wait(key_of(pod), set(map(uid_of, victims)), until)
        for one in victims:
            self._awaited.setdefault(uid_of(one), []).append(uid_of(pod))
        new = [one for one in victims if not is_being_deleted(one) and uid_of(one) not in self._begun]
        self._begun.update((uid_of(one), now) for one in new)
        return new

    def seconds_left(self, pod: Obj) -> float:
        """How long a critical pod has to wait; 0 for any other."""
        wait = self._waits.get(uid_of(pod))
        return max(0.0, (wait.until - self._clock()).total_seconds()) if wait is not None and wait.victims else 0.0

    def forget(self, pod: Obj) -> list[str]:
        """The pod has ended; the keys of those that waited for it."""
        uid = uid_of(pod)
        self._begun.pop(uid, None)
        self._waits.pop(uid, None)
        waited = [wait for one in self._awaited.pop(uid, ()) if (wait := self._waits.get(one)) is not None]
        for wait in waited:
            wait.victims.discard(uid)
        return [wait.key for wait in waited]

    def ending(self, pod: Obj) -> Obj | None:
        """A victim as if it had been deleted, with the time that it has for its end; None for any other pod."""
        since = self._begun.get(uid_of(pod))
        return None if since is None else podlib.as_stopped(pod, since)


def preempted_status(pod: Obj, status: Obj, now: datetime) -> Obj:
    """The status of a victim whose containers have ended."""
    told = podlib.condition(_DISRUPTION, format_time(now), "TerminationByKubelet", CONDITION, status=True)
    conditions = [*(status.get("conditions") or ()), told]
    failed = {"phase": "Failed", "reason": PREEMPTING, "message": MESSAGE, "conditions": conditions}
    return podlib.observed(pod, {**status, **failed})
