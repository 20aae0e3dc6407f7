"""Consumers that were decided but are not in `status.reservedFor` of their claims yet.

Until the reservation is written the claim would look free once the others have gone. Source: KEP-4381.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from haru.engine.state.decision import ClaimAllocation, Decision, PodKey
from haru.kube.meta import Obj, allocation_of

FROM_EVERYBODY = 2**31
"""The priority of a place that is kept whoever comes: above every pod's."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """A place kept for a pod, from all that are no more important than `priority`.

    `claimed` is what its devices will take of the node (KEP-5517).
    """

    pod: PodKey
    node: str
    priority: int
    allocations: tuple[ClaimAllocation, ...] = ()
    evictions: frozenset[PodKey] = frozenset()
    claimed: tuple[Obj, ...] = ()


def nominations_of(decision: Decision, priority: int) -> tuple[Nomination, ...]:
    """Return the places to keep for a decision of status nominated."""
    going = frozenset(eviction.pod for eviction in decision.evictions)
    return tuple(
        Nomination(member.pod, member.node or "", priority, member.allocations, going, member.claimed)
        for member in decision.nominated
    )


def evicted_pods(nominations: Iterable[Nomination]) -> frozenset[PodKey]:
    """Return the victims that the nominations wait for."""
    return frozenset(pod for nomination in nominations for pod in nomination.evictions)


@dataclass(slots=True)
class _Consumer:
    """An entry of `reservedFor`, and the assumed pods for which it will be written."""

    entry: Obj
    pods: set[str] = field(default_factory=set)


class PendingReservations:
    """The pending consumers, by claim and UID."""

    def __init__(self) -> None:
        self._consumers: dict[str, dict[str, _Consumer]] = {}
        self._by_pod: dict[str, Mapping[str, Obj]] = {}

    def add(self, pod: str, joined: Mapping[str, Obj]) -> list[str]:
        """Add a pod with its entry in each claim; return the claims that change."""
        changed = self.drop(pod)
        self._by_pod[pod] = joined
        for path, entry in joined.items():
            consumers = self._consumers.setdefault(path, {})
            if entry["uid"] not in consumers:
                consumers[entry["uid"]] = _Consumer(entry)
                changed.append(path)
            consumers[entry["uid"]].pods.add(pod)
        return changed

    def drop(self, pod: str) -> list[str]:
        """Remove a pod, which is bound now or not assumed any more; return the claims that change."""
        changed = []
        for path, entry in self._by_pod.pop(pod, {}).items():
            consumers = self._consumers[path]
            consumers[entry["uid"]].pods.discard(pod)
            if not consumers[entry["uid"]].pods:
                del consumers[entry["uid"]]
                changed.append(path)
            if not consumers:
                del self._consumers[path]
        return changed

    def joined_by(self, pod: str) -> Mapping[str, Obj]:
        """Return the entries that are pending for a pod, by claim."""
        return self._by_pod.get(pod, {})

    def reserved(self, path: str, claim: Obj | None) -> Obj | None:
        """Return a claim with its pending consumers; the same object if there are none or it is not allocated."""
        consumers = self._consumers.get(path)
        if not consumers or claim is None or allocation_of(claim) is None:
            return claim
        there = list(claim["status"].get("reservedFor") or ())
        missing = _missing(consumers, {entry.get("uid") for entry in there})
        return {**claim, "status": {**claim["status"], "reservedFor": [*there, *missing]}} if missing else claim


def _missing(consumers: Mapping[str, _Consumer], known: Collection[object]) -> list[Obj]:
    return [consumer.entry for uid, consumer in consumers.items() if uid not in known]
