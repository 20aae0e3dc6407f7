"""Run the PodGroup scheduling cycle: decide all pending members at once, on one snapshot, all or nothing.

A gang is bound if and only if at least `minCount` of its members have places at once, already placed members included.
Members are tried in order of priority; if that greedy pass falls short, a budgeted search tries other placements before
the answer is no. All placements happen on an overlay, so the cluster state stays unchanged.
Source: KEP-4671, as kube-scheduler 1.36 behaves, without the blind spots of its greedy pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from haru.engine.dra.errors import AllocationError
from haru.engine.framework.interfaces import FilterRequest
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand, device_demand_of
from haru.engine.plugins.volumebinding.late_binding import with_volumes
from haru.engine.podgroup.decision_builder import DecisionBuilder, with_message, with_share_ids
from haru.engine.podgroup.domain_search import DomainSearch
from haru.engine.podgroup.filter_node import make_filter_plan
from haru.engine.podgroup.gang_pre_enqueue import GROUP_UNSCHEDULABLE, gang_gate_reason
from haru.engine.podgroup.placed import Placed
from haru.engine.podgroup.placement_attempt import PlacementAttempt, attempt_placement
from haru.engine.podgroup.podgroup_info import PodGroupInfo, key_of
from haru.engine.podgroup.schedule_one import PodPlacer, Unschedulable
from haru.engine.preemption.eligibility import DELAYED, may_evict_from, protection_ends
from haru.engine.preemption.feasibility_oracle import Preemptor, node_sets
from haru.engine.preemption.nominated_placements import conflicting_reservation, reserved_now, with_nominated_pods
from haru.engine.preemption.pod_preemption import member_messages, preempt_for_pod, with_claims_message
from haru.engine.preemption.podgroup_preemption import preempt_for_group
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import values_of
from haru.engine.state.decision import Decision, Diagnosis, GroupKey, Reason, namespaced_name
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj


def decide(snapshot: Snapshot, pods: Sequence[Obj], *, group: Obj | None, options: Options) -> Decision:
    """Decide nodes and devices for the pods, or why they do not fit.

    `pods` are the members to decide, in order of their first attempt; placed, terminal, gated and terminating members
    are skipped. One pod without `group` is a group of one.
    """
    numbers = itertools.count(1)
    trial_options = options.with_share_ids(lambda: f"trial-{next(numbers)}")
    return with_share_ids(_decide_with_trial_share_ids(snapshot, pods, group, trial_options), options.new_share_id)


def _decide_with_trial_share_ids(
    snapshot: Snapshot, pods: Sequence[Obj], group: Obj | None, options: Options
) -> Decision:
    """Decide with provisional share identifiers: how many are generated depends on what is cached."""
    members = members_of(snapshot, pods)
    key = key_of(group)
    if not members:
        return Decision(key, "unschedulable", "no pod is left to be scheduled", (), (), snapshot.version)
    build = DecisionBuilder(key, members, snapshot.version)
    mismatch = _scheduler_mismatch(members)
    if mismatch is not None:
        return build.failed(mismatch)
    if key is not None and options.gates.gang_scheduling:
        hold = gang_gate_reason(snapshot, key)
        if hold is not None:
            return build.gated(hold)
    groups = options.gates.groups
    with_nominated = with_nominated_pods(snapshot, members, groups=groups, now=options.now)
    info = PodGroupInfo.of(with_nominated, members, group, options)
    decision = _decide(with_nominated, info)
    if decision.status == "scheduled" and "VolumeBinding" in options.profile.filters:
        decision = with_volumes(snapshot, decision, members)
    may_preempt = options.preemption.preempt_for_groups if key else options.preemption.preempt_for_pods
    if decision.status != "unschedulable" or not (key or snapshot.node_names):
        return decision
    if not may_preempt:
        return decision if key or options.profile.preemption else with_claims_message(with_nominated, decision, info)
    reservation = conflicting_reservation(snapshot, members, groups=groups)
    if reservation is not None:
        reserved = reserved_now(snapshot, reservation)
        with_nominated = with_nominated_pods(reserved, members, groups=groups, now=options.now)
        # What the nodes said of another state does not count.
        decision = replace(decision, diagnosis=None)
    return _post_filter(with_nominated, decision, info)


def decide_in_turn(snapshot: Snapshot, pods: Sequence[Obj], *, options: Options) -> list[Decision]:
    """Decide single pods one after the other, each in the state that the ones before it leave.

    The list ends before the first pod that has to be decided alone: one without a place, one that shares a claim or
    has volumes, any while places are kept for somebody.
    """
    index, members = snapshot.pod_index, members_of(snapshot, pods)
    kept = index.nominations or index.nominated or index.terminating or snapshot.reservation
    if kept or [pod.obj for pod in members] != list(pods) or _scheduler_mismatch(members) is not None:
        return []
    numbers = itertools.count(1)
    trial_options = options.with_share_ids(lambda: f"trial-{next(numbers)}")
    placer, decisions = PodPlacer(Overlay(snapshot), None, trial_options, snapshot.node_names), list[Decision]()
    for outcome in placer.place_all(list(itertools.takewhile(lambda pod: not pod.volume_claims, members))):
        if not isinstance(outcome, Placed) or outcome.joined or outcome.extended_claim or outcome.claimed:
            break
        decision = DecisionBuilder(None, (outcome.pod,), snapshot.version).scheduled((outcome,))
        decisions.append(with_share_ids(decision, options.new_share_id))
    if options.recorder is not None:
        options.recorder.keep(len(decisions))
    return decisions


def _post_filter(snapshot: Snapshot, refused: Decision, info: PodGroupInfo) -> Decision:
    recorder = info.options.recorder
    if recorder is None:
        return _preempt(snapshot, refused, Preemptor(info, node_sets(snapshot, info)))
    with recorder.post_filter() as status:
        decision = _preempt(snapshot, refused, Preemptor(info, node_sets(snapshot, info)))
        status.append("Success" if decision.status == "nominated" else "Unschedulable")
    return decision


def _preempt(snapshot: Snapshot, refused: Decision, preemptor: Preemptor) -> Decision:
    """Run preemption for a refused decision, unless the preemption delay has not passed."""
    eligible_from = may_evict_from(preemptor)
    if eligible_from is not None:
        return replace(with_message(refused, DELAYED), again_at=eligible_from)
    rule = preempt_for_pod if preemptor.info.key is None else preempt_for_group
    decision = rule(snapshot, refused, preemptor)
    if decision.status != "unschedulable":
        return decision
    return replace(decision, again_at=protection_ends(snapshot, preemptor))


def members_of(snapshot: Snapshot, pods: Sequence[Obj]) -> list[PodInfo]:
    """Return the pods to decide, in scheduling order."""
    waiting: list[PodInfo] = []
    for obj, known in zip(pods, values_of(snapshot.pods, [*map(namespaced_name, pods)]), strict=True):
        info = known
        if info is None or info.obj is not obj or info.node:
            info = PodInfo.of(obj)
            if known is not None and known.node and known.key.uid == info.key.uid:
                continue  # it has a place by now
        if not (info.node or info.terminal or info.deleting):
            waiting.append(info)
    # Equal pods share the parsed parts of the first one, also in the next decision.
    last: list[PodInfo] = snapshot.decision_cache.get_or_compute("last pod", None, list)
    if last:
        last[0].lend_decoded(waiting[:1])
    for number, info in enumerate(waiting):
        if not info.gated:
            info.lend_decoded(waiting[number + 1 :])
            last[:] = [info]
            break
    members = [info for info in waiting if not info.gated]
    # Among equal priorities nominated pods come first, so that no sibling takes their place.
    nominated = snapshot.pod_index.nominations
    if not nominated and not any(map(attrgetter("nominated_node"), members)):
        return sorted(members, key=attrgetter("priority"), reverse=True)
    return sorted(members, key=lambda pod: (-pod.priority, not (pod.nominated_node or pod.key.path in nominated)))


def diagnose_pod(
    snapshot: Snapshot, pod: PodInfo, group: Obj | None, options: Options, nodes: Sequence[str]
) -> Diagnosis:
    """Ask the nodes what keeps one more such pod away, as `decide` would for the first of its group."""
    with_nominated = with_nominated_pods(snapshot, [pod], groups=options.gates.groups, now=options.now)
    overlay = Overlay(with_nominated)
    try:
        return PodPlacer(overlay, group, options, nodes).diagnose(pod)
    except AllocationError as error:
        # A selector fails on some device: the other filters can still be asked.
        demand = device_demand_of(overlay, pod, group, options)
        plan = make_filter_plan(
            FilterRequest(snapshot, pod, backed=demand.backed if isinstance(demand, DeviceDemand) else frozenset())
        )
        return Diagnosis(pod.key, {name: plan.check(snapshot.nodes[name]) for name in nodes}, str(error))


def _scheduler_mismatch(members: Sequence[PodInfo]) -> Reason | None:
    first = members[0].scheduler_name
    for pod in members:
        if pod.scheduler_name != first:
            message = (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{first}" and "{pod.scheduler_name}"'
            )
            return Reason("SchedulerNameMismatch", message, {"schedulerNames": sorted({first, pod.scheduler_name})})
    return None


def _decide(snapshot: Snapshot, info: PodGroupInfo) -> Decision:
    label = info.topology_key
    if label is not None:
        return _decide_in_domains(snapshot, info, label)
    return _decision_of(snapshot, info, attempt_placement(snapshot, info, snapshot.node_names))


def _decide_in_domains(snapshot: Snapshot, info: PodGroupInfo, label: str) -> Decision:
    """Choose one domain of a topology label for all members; members that already run fix it.

    Source: KEP-5732, its required constraint; the messages are kube-scheduler 1.36's.
    """
    build = _builder(snapshot, info)
    fixed = _fixed_domain(snapshot, info.key, label)
    if isinstance(fixed, Reason):
        return build.failed(fixed)
    search = DomainSearch(snapshot, info, label)
    domains = search.values if fixed is None else [fixed]
    best = search.best(domains)
    if best is not None:
        return build.scheduled(best.attempt.outcomes)
    unanswered = next((trial.attempt for trial in search.tried if trial.attempt.unanswered), None)
    if unanswered is not None:
        return _decision_of(snapshot, info, unanswered)
    first = search.diagnosis(domains[0]).outcomes if domains else ()
    text = next((o.message for o in first if isinstance(o, Unschedulable)), GROUP_UNSCHEDULABLE)
    found = f"0/{len(domains)} placements are available, first placement status: {text}"
    message = found if domains else "no feasible placements found"
    data = {"topologyKey": label, "placements": len(domains), "needed": info.needed}
    return build.no_domain_fits(Reason("TopologyDomain", message, data), first)


def _fixed_domain(snapshot: Snapshot, key: GroupKey | None, label: str) -> str | Reason | None:
    """Return the domain of the placed members, None without any, or the reason why it is unknown."""
    found: dict[str, str] = {}
    for path in sorted(snapshot.group_state(key).scheduled) if key is not None else ():
        name = snapshot.pods[path].node
        node = snapshot.nodes.get(name)
        if node is None or not node.present:
            text = f'getting node for pod {path}: nodeinfo not found for node name "{name}"'
            return Reason("TopologyDomain", text, {"topologyKey": label, "pod": path, "node": name})
        value = node.labels.get(label)
        if value is None:
            text = f"no topology domain found for pod {path}"
            return Reason("TopologyDomain", text, {"topologyKey": label, "pod": path, "node": name})
        found.setdefault(value, path)
    if len(found) > 1:
        text = f"more than 1 domain found for pod group: {', '.join(sorted(found))}"
        return Reason("TopologyDomain", text, {"topologyKey": label, "domains": sorted(found)})
    return next(iter(found), None)


def _builder(snapshot: Snapshot, info: PodGroupInfo) -> DecisionBuilder:
    if info.key is None:
        return DecisionBuilder(None, info.members, snapshot.version)
    return DecisionBuilder(info.key, info.members, snapshot.version, member_messages(snapshot, info))


def _decision_of(snapshot: Snapshot, info: PodGroupInfo, attempt: PlacementAttempt) -> Decision:
    build = _builder(snapshot, info)
    if attempt.broken:
        return build.group_error(attempt.outcomes)
    if attempt.fit >= info.needed:
        return build.scheduled(attempt.outcomes)
    if attempt.gave_up is not None:
        return build.failed(attempt.gave_up)
    return build.unschedulable(attempt.outcomes, info.needed, attempt.fit)
