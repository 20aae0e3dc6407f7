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

from haru.engine.framework.options import Options
from haru.engine.podgroup import decision_builder
from haru.engine.podgroup.domain_search import DomainSearch
from haru.engine.podgroup.gang_pre_enqueue import GROUP_UNSCHEDULABLE, gang_gate_reason
from haru.engine.podgroup.placement_attempt import PlacementAttempt, attempt_placement
from haru.engine.podgroup.quorum import members_needed
from haru.engine.podgroup.schedule_one import Unschedulable
from haru.engine.podgroup.topology import fixed_domain, no_placement_message, topology_key
from haru.engine.preemption.eligibility import DELAYED, may_evict_from, protection_ends
from haru.engine.preemption.feasibility_oracle import Preemptor, places
from haru.engine.preemption.nominated_placements import conflicting_reservation, reserved_now, with_nominated_pods
from haru.engine.preemption.pod_preemption import preempt_for_pod
from haru.engine.preemption.podgroup_preemption import preempt_for_group
from haru.engine.state.cache import Snapshot, namespaced_name
from haru.engine.state.decision import Decision, GroupKey, Obj, Reason
from haru.engine.state.pod_info import PodInfo


def decide(snapshot: Snapshot, pods: Sequence[Obj], *, group: Obj | None, options: Options) -> Decision:
    """Decide nodes and devices for the pods, or why they do not fit.

    `pods` are the members to decide, in order of their first attempt; placed, terminal, gated and terminating members
    are skipped. One pod without `group` is a group of one.
    """
    numbers = itertools.count(1)
    trial_options = replace(options, new_share_id=lambda: f"trial-{next(numbers)}")
    return decision_builder.with_share_ids(
        _decide_with_trial_share_ids(snapshot, pods, group, trial_options), options.new_share_id
    )


def _decide_with_trial_share_ids(
    snapshot: Snapshot, pods: Sequence[Obj], group: Obj | None, options: Options
) -> Decision:
    """Decide with provisional share identifiers: how many are generated depends on what is cached."""
    members = members_of(snapshot, pods)
    key = key_of(group)
    if not members:
        return Decision(key, "unschedulable", "no pod is left to be scheduled", (), (), snapshot.version)
    mismatch = _scheduler_mismatch(members)
    if mismatch is not None:
        return decision_builder.failed(key, members, mismatch, snapshot.version)
    if key is not None and options.gates.gang_scheduling:
        hold = gang_gate_reason(snapshot, key)
        if hold is not None:
            return decision_builder.same_for_all(
                key, members, "unschedulable", hold, snapshot.version, decision_builder.GANG_PLUGIN
            )
    with_nominated = with_nominated_pods(snapshot, members, groups=options.gates.groups, now=options.now)
    needed = members_needed(with_nominated, key, group, gang_scheduling=options.gates.gang_scheduling)
    decision = _decide(with_nominated, key, members, group, needed, options)
    if decision.status != "unschedulable" or not (
        options.preemption.preempt_for_groups if key else options.preemption.preempt_for_pods
    ):
        return decision
    reservation = conflicting_reservation(snapshot, members, groups=options.gates.groups)
    if reservation is not None:
        with_nominated = with_nominated_pods(
            reserved_now(snapshot, reservation), members, groups=options.gates.groups, now=options.now
        )
    preemptor = Preemptor(members, key, group, needed, options, places(with_nominated, key, group, options))
    return _preempt(with_nominated, decision, preemptor)


def _preempt(snapshot: Snapshot, refused: Decision, preemptor: Preemptor) -> Decision:
    """Run preemption for a refused decision, unless the preemption delay has not passed."""
    eligible_from = may_evict_from(preemptor)
    if eligible_from is not None:
        return replace(decision_builder.with_message(refused, DELAYED), again_at=eligible_from)
    rule = preempt_for_pod if preemptor.key is None else preempt_for_group
    decision = rule(snapshot, refused, preemptor)
    if decision.status != "unschedulable":
        return decision
    return replace(decision, again_at=protection_ends(snapshot, preemptor))


def members_of(snapshot: Snapshot, pods: Sequence[Obj]) -> list[PodInfo]:
    """Return the pods to decide, in scheduling order."""
    members: list[PodInfo] = []
    last: list[PodInfo] = snapshot.decision_cache.get_or_compute("read", None, list)
    for obj in pods:
        known = snapshot.pods.get(namespaced_name(obj))
        info = known if known is not None and known.obj is obj and not known.node else PodInfo.of(obj)
        placed = info.node or (known is not None and known.key.uid == info.key.uid and known.node)
        if not (placed or info.terminal or info.deleting or info.gated):
            # Equal pods share the parsed parts of the first one, also in the next decision.
            for equal in members[:1] or last:
                info.read_as(equal)
            members.append(info)
    last[:] = members[:1] or last
    # Among equal priorities nominated pods come first, so that no sibling takes their place.
    nominated_paths = snapshot.nominations.keys()
    return sorted(members, key=lambda pod: (-pod.priority, not (pod.nominated_node or pod.key.path in nominated_paths)))


def key_of(group: Obj | None) -> GroupKey | None:
    """Return the key of a group, if there is one."""
    if group is not None:
        return GroupKey(group["metadata"].get("namespace") or "default", group["metadata"]["name"])
    return None


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


def _decide(
    snapshot: Snapshot,
    key: GroupKey | None,
    members: Sequence[PodInfo],
    group: Obj | None,
    needed: int,
    options: Options,
) -> Decision:
    label = topology_key(group) if options.gates.topology else None
    if key is not None and label is not None:
        return _decide_in_domains(snapshot, key, members, group, needed, options, label)
    attempt = attempt_placement(snapshot, members, group, needed, options, snapshot.node_names)
    return _decision_of(snapshot, key, members, needed, attempt)


def _decide_in_domains(
    snapshot: Snapshot,
    key: GroupKey,
    members: Sequence[PodInfo],
    group: Obj | None,
    needed: int,
    options: Options,
    label: str,
) -> Decision:
    fixed = fixed_domain(snapshot, key, label)
    if isinstance(fixed, Reason):
        return decision_builder.failed(key, members, fixed, snapshot.version)
    search = DomainSearch(snapshot, key, members, group, needed, options, label)
    domains = search.values if fixed is None else [fixed]
    best = search.best(domains)
    if best is not None:
        return decision_builder.scheduled(key, best.attempt.outcomes, snapshot.version)
    unanswered = next((trial.attempt for trial in search.tried if trial.attempt.unanswered), None)
    if unanswered is not None:
        return _decision_of(snapshot, key, members, needed, unanswered)
    first = search.diagnosis(domains[0]).outcomes if domains else ()
    text = next((o.message for o in first if isinstance(o, Unschedulable)), GROUP_UNSCHEDULABLE)
    message = no_placement_message(len(domains), text)
    reason = Reason("TopologyDomain", message, {"topologyKey": label, "placements": len(domains), "needed": needed})
    return decision_builder.no_domain_fits(key, members, reason, first, snapshot.version)


def _decision_of(
    snapshot: Snapshot, key: GroupKey | None, members: Sequence[PodInfo], needed: int, attempt: PlacementAttempt
) -> Decision:
    if attempt.broken:
        return decision_builder.group_error(key, attempt.outcomes, members, snapshot.version)
    if attempt.fit >= needed:
        return decision_builder.scheduled(key, attempt.outcomes, snapshot.version)
    if attempt.gave_up is not None:
        return decision_builder.failed(key, members, attempt.gave_up, snapshot.version)
    return decision_builder.unschedulable(key, attempt.outcomes, needed, attempt.fit, snapshot.version)
