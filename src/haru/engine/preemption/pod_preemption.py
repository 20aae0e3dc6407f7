"""Preempt for a single pod: choose the one node where eviction costs least, by the rules of 1.36, with devices.

On every node where evictions could help, a dry run removes all less important units with a pod there. Where the pod
then fits, units are reprieved in order, and the remaining victims decide between nodes. A PodGroup that is disrupted as
a whole is evicted whole, on whatever nodes its pods run. Where no single node suffices because pods elsewhere block it
(a device that several nodes see, a pod with anti-affinity), the rule for groups applies.
Source: KEP-268 (default preemption, as 1.36 behaves), KEP-5710 (units); devices and whole groups are our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from zlib import crc32

from haru.engine.framework.interfaces import FilterFailure, counted_message, weighed
from haru.engine.plugins.dynamicresources.extended_resources import backed_resources
from haru.engine.plugins.dynamicresources.prefilter import PLUGIN, device_demand_of
from haru.engine.podgroup.decision_builder import DecisionBuilder, with_message
from haru.engine.podgroup.placed import Placed
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.podgroup.schedule_one import PodPlacer, Unschedulable
from haru.engine.podgroup.search_budget import UnansweredError
from haru.engine.preemption.dry_run import without_pods
from haru.engine.preemption.eligibility import evictable_pods
from haru.engine.preemption.feasibility_oracle import Preemptor
from haru.engine.preemption.node_candidates import NodeCandidates
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
from haru.engine.state.decision import Decision, Reason
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.errors import aggregate

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_CLAIMS = "no new claims to deallocate"
STILL_NOT = "still not schedulable"
BY_GROUP = "not eligible due to workload aware preemption enabled"
"""Of each member; its group may evict."""
_ENOUGH_PERCENT = 10
_ENOUGH = 100
"""Limits on the number of candidate nodes, absolute and in percent of all (KEP-268's defaults)."""
_LEAST_TOGETHER, _MOST_TOGETHER = 5, 50
"""How many nodes are looked at together."""
_TOLD = 20
"""Up to so many nodes are asked what refuses the pod there after all evictions, which only the message says."""
_CLUSTER_WIDE_FAILURES = frozenset(
    {"DevicesUnavailable", "PodAntiAffinity", "ExistingPodAntiAffinity", "TopologySpread"}
)
"""Reasons for which pods on other nodes may make a node infeasible."""

Refusals = Mapping[str, Sequence[FilterFailure]]


def preempt_for_pod(snapshot: Snapshot, refused: Decision, preemptor: Preemptor) -> Decision:
    """Preempt for a pod that does not fit: nominate it with evictions, or add the reason to the refusal."""
    pod = preemptor.info.members[0]
    if pod.spec.get("preemptionPolicy") == "Never":
        return _with_preemption_message(snapshot, refused, preemptor, NEVER)
    base = after_pending_evictions(snapshot)
    errors: dict[str, Reason] = {}
    try:
        if has_pending_evictions(snapshot) and own_nominated_placements(snapshot, preemptor.info.members):
            kept = nominated(base, refused, preemptor, Victims((), 1, preemptor.places))
            if kept is not None:
                return _with_preemption_message(snapshot, kept, preemptor, TERMINATING)
        known = refused.diagnosis if base is snapshot else None
        refusals, places = (
            (known.nodes, preemptor.places) if known is not None else _refusals_after(base, refused, preemptor, errors)
        )
        if refusals is None:
            # Pending evictions already make the pod fit.
            if not waits_for_pending_evictions(snapshot, preemptor):
                return refused
            return nominated(base, refused, preemptor, Victims((), 1, places)) or refused
        return _preempt(base, refused, preemptor, refusals, errors)
    except UnansweredError as error:
        return _unanswered(snapshot, refused, preemptor, (*errors.values(), error.reason))


def _preempt(
    base: Snapshot, refused: Decision, preemptor: Preemptor, refusals: Refusals, errors: dict[str, Reason]
) -> Decision:
    texts: dict[str, Sequence[str]] = {}
    search = Search(base, preemptor)
    candidates = NodeCandidates(base, preemptor, search, errors)
    best = _best(base, preemptor, candidates, refusals, texts)
    if best is not None:
        return nominated(base, refused, preemptor, best) or refused
    victims = _cluster_wide_victims(base, preemptor, search, refusals)
    if victims is not None:
        return nominated(base, refused, preemptor, victims) or refused
    if errors:
        return _unanswered(base, refused, preemptor, errors.values())
    _tell_what_is_left(base, preemptor, candidates, texts)
    return _with_preemption_message(base, refused, preemptor, _summary(base, refusals, texts))


def _best(
    base: Snapshot,
    preemptor: Preemptor,
    candidates: NodeCandidates,
    refusals: Refusals,
    texts: dict[str, Sequence[str]],
) -> Victims | None:
    """Return the victims on the cheapest node, or None; `texts` collects the reasons of the nodes that were asked."""
    best: Victims | None = None
    found, guarded = 0, True
    enough = max(_ENOUGH, len(base.node_names) * _ENOUGH_PERCENT // 100)

    def missing() -> int:
        return enough - found

    nodes = _nodes_with_units(base, preemptor, candidates, refusals, texts)
    for name in _looked_at(nodes, candidates, missing):
        if best is not None and candidates.is_no_better(name, best):
            guarded = False
        else:
            try:
                candidate = candidates.candidate(name)
                if candidate is None:
                    texts[name] = [failure.reason.message for failure in refusals.get(name, ())]
                    continue
                if best is None or candidate.least_cost <= best.cost:
                    best = _better(best, candidate.victims())
            except UnansweredError as error:
                candidates.errors[name] = error.reason
                continue
            guarded = guarded and candidate.violations > 0
        found += 1
        if found >= enough and not guarded:
            break
    return best


def _better(best: Victims | None, other: Victims) -> Victims:
    """Return the cheaper victims; of equal cost those that started later, of equal start times the first."""
    if best is None or other.cost < best.cost:
        return other
    return other if other.cost == best.cost and other.started > best.started else best


def _nodes_with_units(
    base: Snapshot,
    preemptor: Preemptor,
    candidates: NodeCandidates,
    refusals: Refusals,
    texts: dict[str, Sequence[str]],
) -> Iterator[str]:
    """Yield the nodes on which evictions may help; `texts` collects the reasons of the others."""
    names, pod = base.node_names, preemptor.info.members[0]
    start = crc32(f"{preemptor.info.options.seed}/{pod.key.path}".encode()) % max(1, len(names))
    last: Sequence[FilterFailure] = ()
    is_helpful = False
    for name in candidates.nodes_with_units((*names[start:], *names[:start])):
        failures = refusals.get(name, ())
        if failures is not last:  # equal nodes share them
            last, is_helpful = failures, _is_helpful(failures)
        if not is_helpful:
            texts[name] = (NOT_HELPFUL,)
        elif candidates.has_units(name):
            yield name
        else:
            texts[name] = (NO_VICTIMS,)


def _looked_at(nodes: Iterator[str], candidates: NodeCandidates, missing: Callable[[], int]) -> Iterator[str]:
    """Yield nodes once they were looked at, many together, but not many more than candidates are `missing`."""
    while together := list(islice(nodes, min(_MOST_TOGETHER, max(_LEAST_TOGETHER, missing())))):
        candidates.look_at(together)
        yield from together


def _tell_what_is_left(
    base: Snapshot, preemptor: Preemptor, candidates: NodeCandidates, texts: dict[str, Sequence[str]]
) -> None:
    """Say of each node that was asked what refuses the pod once all less important units are gone from it."""
    asked = [name for name, told in texts.items() if told not in ((NOT_HELPFUL,), (NO_VICTIMS,))]
    for name in asked if len(asked) <= _TOLD else ():
        emptied = without_pods(base, [pod for unit in candidates.units(name) for pod in unit.leaving])
        failures = _refusals(emptied, preemptor, (name,))
        if failures is not None:
            texts[name] = [failure.reason.message for failure in failures.get(name, ())]


def _is_helpful(failures: Sequence[FilterFailure]) -> bool:
    """Tell whether evictions may end what a node refuses the pod for."""
    return bool(failures) and all(f.resolvable or f.reason.type == "DevicesUnavailable" for f in failures)


def _summary(base: Snapshot, refusals: Refusals, texts: Mapping[str, Sequence[str]]) -> str:
    """Return why no node is freed: its own text for each node that was asked; on the others nothing may go."""
    counts = Counter(chain.from_iterable(texts.values()))
    others = [refusals.get(name, ()) for name in base.node_names if name not in texts]
    for failures, count in weighed(others):
        counts[NO_VICTIMS if _is_helpful(failures) else NOT_HELPFUL] += count
    return counted_message(len(base.node_names), counts)


def _cluster_wide_victims(base: Snapshot, preemptor: Preemptor, search: Search, refusals: Refusals) -> Victims | None:
    """Return victims anywhere in the cluster, if pods elsewhere may block the pod."""
    units = evictable_pods(base, preemptor)
    if not units:
        return None
    types = {failure.reason.type for failures, _ in weighed(refusals.values()) for failure in failures}
    return None if types.isdisjoint(_CLUSTER_WIDE_FAILURES) else search.victims(units, refused=True)


def _refusals_after(
    base: Snapshot, refused: Decision, preemptor: Preemptor, errors: dict[str, Reason]
) -> tuple[Refusals | None, Sequence[Sequence[str]]]:
    """Return `_refusals` of all nodes, and where the pod fits; nodes are asked one by one if one of them fails."""
    try:
        return _refusals(base, preemptor, base.node_names), preemptor.places
    except UnansweredError:
        before = refused.diagnosis.nodes if refused.diagnosis is not None else {}
    refusals: dict[str, Sequence[FilterFailure]] = {}
    for name in base.node_names:
        try:
            found = _refusals(base, preemptor, (name,))
        except UnansweredError as error:
            errors[name] = error.reason
            found = {name: before.get(name, ())}
        if found is None:
            return None, ((name,),)
        refusals.update(found)
    return refusals, preemptor.places


def _refusals(base: Snapshot, preemptor: Preemptor, nodes: Sequence[str]) -> Refusals | None:
    """Return each node's failures (empty if PreFilter rejected the pod); None if it fits without evictions."""
    pod = preemptor.info.members[0]
    placer = PodPlacer(Overlay(base), preemptor.info.group, preemptor.info.options, nodes)
    outcome = placer.place(pod)
    if isinstance(outcome, Placed):
        return None
    if outcome.failed:
        raise UnansweredError(outcome.reasons[0])
    return outcome.diagnosis.nodes if outcome.diagnosis is not None else {}


def _unanswered(snapshot: Snapshot, refused: Decision, preemptor: Preemptor, reasons: Collection[Reason]) -> Decision:
    """Tell of errors of the dry run, as 1.36: the pod stays unschedulable. A search that gave up is an error itself."""
    gave_up = next((reason for reason in reasons if reason.type != "SelectorError"), None)
    if gave_up is not None:
        return DecisionBuilder(None, preemptor.info.members, snapshot.version).failed(gave_up)
    told = with_message(refused, f"preemption: {aggregate(reason.message for reason in reasons)}")
    # What changes the devices may end the error, so it wakes the pod, though no device was asked by the filters.
    members = tuple([replace(m, plugins=tuple(dict.fromkeys((*m.plugins, PLUGIN)))) for m in told.members])
    return replace(told, members=members)


def _with_preemption_message(snapshot: Snapshot, refused: Decision, preemptor: Preemptor, summary: str) -> Decision:
    words = _of_claims(snapshot, preemptor.info, preemptor.info.members[0])
    return with_message(refused, f"{words}, preemption: {summary}")


def with_claims_message(snapshot: Snapshot, refused: Decision, info: PodGroupInfo) -> Decision:
    """Append what DynamicResources says of a pod that no preemption is tried for: its profile has none."""
    return with_message(refused, _of_claims(snapshot, info, info.members[0]))


def member_messages(snapshot: Snapshot, info: PodGroupInfo) -> Callable[[Unschedulable], str]:
    """Return what 1.36 tells of a refused member: what nodes say, whether it has claims, and that it evicts nobody."""
    by_group = f", preemption: {BY_GROUP}" if info.options.preemption.preempt_for_groups else ""
    told: dict[str, str] = {}

    def message_of(refused: Unschedulable) -> str:
        message = refused.message
        if message not in told:
            is_of_nodes = message.endswith(".")
            words = f" {_of_claims(snapshot, info, refused.pod)}{by_group}" if is_of_nodes else ""
            told[message] = f"{message}{words}"
        return told[message]

    return message_of


def _of_claims(snapshot: Snapshot, info: PodGroupInfo, pod: PodInfo) -> str:
    options = info.options
    has_claims = bool(pod.claims or (options.gates.extended_resources and backed_resources(snapshot, pod)))
    if has_claims:
        # Of claims for which no node is asked 1.36 knows nothing here.
        has_claims = not isinstance(device_demand_of(Overlay(snapshot), pod, info.group, options), Reason)
    return STILL_NOT if has_claims else NO_CLAIMS
