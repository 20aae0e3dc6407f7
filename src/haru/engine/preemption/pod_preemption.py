"""Preempt for a single pod: choose the one node where eviction costs least, by the rules of 1.36, with devices.

On every node where evictions could help, a dry run removes all less important units with a pod there. Where the pod
then fits, units are reprieved in order, and the remaining victims decide between nodes. A PodGroup that is disrupted as
a whole is evicted whole, on whatever nodes its pods run. Where no single node suffices because pods elsewhere block it
(a device that several nodes see, a pod with anti-affinity), the rule for groups applies.
Source: KEP-268 (default preemption, as 1.36 behaves), KEP-5710 (units); devices and whole groups are our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from haru.engine.framework.interfaces import FilterFailure, counted_message
from haru.engine.podgroup.decision_builder import DecisionBuilder, with_message
from haru.engine.podgroup.schedule_one import Placed, PodPlacer
from haru.engine.podgroup.search_budget import UnansweredError
from haru.engine.preemption.eligibility import evictable_pods
from haru.engine.preemption.feasibility_oracle import Preemptor
from haru.engine.preemption.nominated_placements import own_nominated_placements
from haru.engine.preemption.podgroup_preemption import (
    NEVER,
    Search,
    Victims,
    after_pending_evictions,
    has_pending_evictions,
    nominated,
    waits_for_pending_evictions,
)
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Decision
from haru.engine.state.overlay import Overlay

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_CLAIMS = "no new claims to deallocate"
STILL_NOT = "still not schedulable"
_ENOUGH_PERCENT = 10
_ENOUGH = 100
"""Limits on the number of candidate nodes, absolute and in percent of all (KEP-268's defaults)."""
_PRIORITY_OFFSET = 2**31
_CLUSTER_WIDE_FAILURES = frozenset(
    {"DevicesUnavailable", "PodAntiAffinity", "ExistingPodAntiAffinity", "TopologySpread"}
)
"""Reasons for which pods on other nodes may make a node infeasible."""

Refusals = Mapping[str, Sequence[FilterFailure]]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Hold a candidate node with its victims."""

    node: str
    victims: Victims

    def cost(self) -> tuple[int, int, int, int]:
        """Return the cost, the smallest wins: budget violations, highest priority, sum of priorities, pod count."""
        units = self.victims.units
        pods = sum(len(unit.pods) for unit in units)
        total = sum((unit.priority + _PRIORITY_OFFSET) * len(unit.pods) for unit in units)
        return self.victims.violations, self._highest(), total, pods

    def started(self) -> str:
        """Return when the first of the most important victims started: the later, the better."""
        return min((unit.started for unit in self.victims.units if unit.priority == self._highest()), default="")

    def _highest(self) -> int:
        return max((unit.priority for unit in self.victims.units), default=-_PRIORITY_OFFSET)


def preempt_for_pod(snapshot: Snapshot, refused: Decision, preemptor: Preemptor) -> Decision:
    """Preempt for a pod that does not fit: nominate it with evictions, or add the reason to the refusal."""
    pod = preemptor.info.members[0]
    if pod.spec.get("preemptionPolicy") == "Never":
        return _with_preemption_message(refused, preemptor, NEVER)
    base = after_pending_evictions(snapshot)
    try:
        if has_pending_evictions(snapshot) and own_nominated_placements(snapshot, preemptor.info.members):
            kept = nominated(base, refused, preemptor, Victims((), 1, preemptor.places))
            if kept is not None:
                return _with_preemption_message(kept, preemptor, TERMINATING)
        refusals = _refusals(base, preemptor)
        if refusals is None:
            # Pending evictions already make the pod fit.
            if not waits_for_pending_evictions(snapshot, preemptor):
                return refused
            return nominated(base, refused, preemptor, Victims((), 1, preemptor.places)) or refused
        return _preempt(base, refused, preemptor, refusals)
    except UnansweredError as error:
        return DecisionBuilder(None, preemptor.info.members, snapshot.version).failed(error.reason)


def _preempt(base: Snapshot, refused: Decision, preemptor: Preemptor, refusals: Refusals) -> Decision:
    texts: dict[str, Sequence[str]] = {}
    search = Search(base, preemptor)
    best = _best(base, preemptor, search, refusals, texts)
    if best is not None:
        return nominated(base, refused, preemptor, best.victims) or refused
    victims = _cluster_wide_victims(base, preemptor, search, refusals)
    if victims is not None:
        return nominated(base, refused, preemptor, victims) or refused
    summary = counted_message(len(base.node_names), (text for listed in texts.values() for text in listed))
    return _with_preemption_message(refused, preemptor, summary)


def _best(
    base: Snapshot, preemptor: Preemptor, search: Search, refusals: Refusals, texts: dict[str, Sequence[str]]
) -> _Candidate | None:
    """Return the cheapest candidate, or None; `texts` collects the reasons of the other nodes."""
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
    # Of equal start times the first candidate wins.
    return max(cheapest, key=_Candidate.started)


def _candidates(
    base: Snapshot, preemptor: Preemptor, search: Search, refusals: Refusals, texts: dict[str, Sequence[str]]
) -> Iterator[_Candidate]:
    names, pod = base.node_names, preemptor.info.members[0]
    start = crc32(f"{preemptor.info.options.seed}/{pod.key.path}".encode()) % max(1, len(names))
    for name in (*names[start:], *names[:start]):
        failures = refusals.get(name, ())
        if not failures or not all(f.resolvable or f.reason.type == "DevicesUnavailable" for f in failures):
            texts[name] = (NOT_HELPFUL,)
            continue
        units = evictable_pods(base, preemptor, name)
        if not units:
            texts[name] = (NO_VICTIMS,)
            continue
        victims = search.victims(units, refused=True, places=((name,),))
        if victims is not None:
            yield _Candidate(name, victims)
        else:
            texts[name] = [failure.reason.message for failure in failures]


def _cluster_wide_victims(base: Snapshot, preemptor: Preemptor, search: Search, refusals: Refusals) -> Victims | None:
    """Return victims anywhere in the cluster, if pods elsewhere may block the pod."""
    types = {failure.reason.type for failures in refusals.values() for failure in failures}
    if types.isdisjoint(_CLUSTER_WIDE_FAILURES):
        return None
    units = evictable_pods(base, preemptor)
    return search.victims(units, refused=True) if units else None


def _refusals(base: Snapshot, preemptor: Preemptor) -> Refusals | None:
    """Return each node's failures (empty if PreFilter rejected the pod); None if it fits without evictions."""
    pod = preemptor.info.members[0]
    placer = PodPlacer(Overlay(base), preemptor.info.group, preemptor.info.options, base.node_names)
    outcome = placer.place(pod)
    if isinstance(outcome, Placed):
        return None
    if outcome.failed:
        raise UnansweredError(outcome.reasons[0])
    return outcome.diagnosis.nodes if outcome.diagnosis is not None else {}


def _with_preemption_message(refused: Decision, preemptor: Preemptor, summary: str) -> Decision:
    claims = STILL_NOT if preemptor.info.members[0].claims else NO_CLAIMS
    return with_message(refused, f"{claims}, preemption: {summary}")
