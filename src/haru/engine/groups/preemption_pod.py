"""Preemption for a single pod: the one node where it costs least, by the rules of 1.36, with devices.

On every node that evictions could help all less important units that have a pod there are thought away. Where the pod
then fits they are spared in order, and the node is chosen by what is left to evict. A PodGroup that is disrupted as a
whole goes whole, wherever its pods are. Where no single node will do because what stands in the way is elsewhere (a
device that several nodes see, a pod that keeps others away), the rule for groups is asked.
Source: KEP-268 (default preemption, as 1.36 behaves), KEP-5710 (units); devices and whole groups are our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from haru.engine.cluster import Snapshot
from haru.engine.decision import Decision
from haru.engine.groups import result
from haru.engine.groups.errors import UnansweredError
from haru.engine.groups.fitting import Preemptor
from haru.engine.groups.placing import Placed, Placer
from haru.engine.groups.preemption import (
    NEVER,
    Search,
    Victims,
    counts_on_going,
    is_making_room,
    nominated,
    once_room_is_made,
)
from haru.engine.groups.promises import own_promises
from haru.engine.groups.protection import candidates
from haru.engine.nodes.failure import Failure, counted_message
from haru.engine.overlay import Overlay

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_CLAIMS = "no new claims to deallocate"
STILL_NOT = "still not schedulable"
_ENOUGH_PERCENT = 10
_ENOUGH = 100
"""So many nodes are enough to choose among, or so many percent of all (KEP-268's defaults)."""
_PRIORITY_OFFSET = 2**31
_ELSEWHERE = frozenset({"DevicesUnavailable", "PodAntiAffinity", "ExistingPodAntiAffinity", "TopologySpread"})
"""Why a node refuses a pod because of pods that may be on other nodes."""

Refusals = Mapping[str, Sequence[Failure]]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A node with what has to go from it."""

    node: str
    victims: Victims

    def cost(self) -> tuple[int, int, int, int]:
        """The smallest wins: budget violations, highest priority, sum of priorities, number of pods."""
        units = self.victims.units
        pods = sum(len(unit.pods) for unit in units)
        total = sum((unit.priority + _PRIORITY_OFFSET) * len(unit.pods) for unit in units)
        return self.victims.violations, self._highest(), total, pods

    def started(self) -> str:
        """When the first of the most important victims started: the later, the better."""
        return min((unit.started for unit in self.victims.units if unit.priority == self._highest()), default="")

    def _highest(self) -> int:
        return max((unit.priority for unit in self.victims.units), default=-_PRIORITY_OFFSET)


def preempt_for_pod(snapshot: Snapshot, refused: Decision, preemptor: Preemptor) -> Decision:
    """What becomes of a pod that does not fit: nominated, with evictions, or refused and told why."""
    pod = preemptor.members[0]
    if pod.spec.get("preemptionPolicy") == "Never":
        return _noted(refused, preemptor, NEVER)
    base = once_room_is_made(snapshot)
    try:
        if is_making_room(snapshot) and own_promises(snapshot, preemptor.members):
            kept = nominated(base, refused, preemptor, Victims((), 1, preemptor.places))
            if kept is not None:
                return _noted(kept, preemptor, TERMINATING)
        refusals = _refusals(base, preemptor)
        if refusals is None:
            # Room enough is being made already.
            if not counts_on_going(snapshot, preemptor):
                return refused
            return nominated(base, refused, preemptor, Victims((), 1, preemptor.places)) or refused
        return _preempt(base, refused, preemptor, refusals)
    except UnansweredError as error:
        return result.failed(None, preemptor.members, error.reason, snapshot.version)


def _preempt(base: Snapshot, refused: Decision, preemptor: Preemptor, refusals: Refusals) -> Decision:
    texts: dict[str, Sequence[str]] = {}
    search = Search(base, preemptor)
    best = _best(base, preemptor, search, refusals, texts)
    if best is not None:
        return nominated(base, refused, preemptor, best.victims) or refused
    victims = _victims_elsewhere(base, preemptor, search, refusals)
    if victims is not None:
        return nominated(base, refused, preemptor, victims) or refused
    said = counted_message(len(base.node_names), (text for listed in texts.values() for text in listed))
    return _noted(refused, preemptor, said)


def _best(
    base: Snapshot, preemptor: Preemptor, search: Search, refusals: Refusals, texts: dict[str, Sequence[str]]
) -> _Candidate | None:
    """The node that costs least, or None if there is none; `texts` gets what the others have to say."""
    found: list[_Candidate] = []
    enough = max(_ENOUGH, len(base.node_names) * _ENOUGH_PERCENT // 100)
    for candidate in _candidates(base, preemptor, search, refusals, texts):
        found.append(candidate)
        if len(found) >= enough and any(not candidate.victims.violations for candidate in found):
            break
    if not found:
        return None
    costs = [candidate.cost() for candidate in found]
    least = min(costs)
    cheapest = [candidate for candidate, cost in zip(found, costs, strict=True) if cost == least]
    # Of those that started at one time the first.
    return max(cheapest, key=_Candidate.started)


def _candidates(
    base: Snapshot, preemptor: Preemptor, search: Search, refusals: Refusals, texts: dict[str, Sequence[str]]
) -> Iterator[_Candidate]:
    names, pod = base.node_names, preemptor.members[0]
    start = crc32(f"{preemptor.options.seed}/{pod.key.path}".encode()) % max(1, len(names))
    for name in (*names[start:], *names[:start]):
        failures = refusals.get(name, ())
        if not failures or not all(f.resolvable or f.reason.type == "DevicesUnavailable" for f in failures):
            texts[name] = (NOT_HELPFUL,)
            continue
        units = candidates(base, preemptor, name)
        if not units:
            texts[name] = (NO_VICTIMS,)
            continue
        victims = search.victims(units, refused=True, places=((name,),))
        if victims is not None:
            yield _Candidate(name, victims)
        else:
            texts[name] = [failure.reason.message for failure in failures]


def _victims_elsewhere(base: Snapshot, preemptor: Preemptor, search: Search, refusals: Refusals) -> Victims | None:
    """What has to go anywhere, if that is where the trouble may be."""
    types = {failure.reason.type for failures in refusals.values() for failure in failures}
    if types.isdisjoint(_ELSEWHERE):
        return None
    units = candidates(base, preemptor)
    return search.victims(units, refused=True) if units else None


def _refusals(base: Snapshot, preemptor: Preemptor) -> Refusals | None:
    """What each node has against the pod (nothing if it was rejected outright); None if it fits without evictions."""
    pod = preemptor.members[0]
    placer = Placer(Overlay(base), preemptor.group, preemptor.options, base.node_names)
    outcome = placer.place(pod)
    if isinstance(outcome, Placed):
        return None
    if outcome.failed:
        raise UnansweredError(outcome.reasons[0])
    return placer.refusals(pod)


def _noted(refused: Decision, preemptor: Preemptor, said: str) -> Decision:
    claims = STILL_NOT if preemptor.members[0].claims else NO_CLAIMS
    return result.with_note(refused, f"{claims}, preemption: {said}")
