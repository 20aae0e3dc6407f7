"""The PodGroup cycle: all pending members are decided at once, on one snapshot, or nobody is bound.

A gang is bound if and only if at least `minCount` of its members have places at once, those that have one already
included. Members are tried in order of priority; if that greedy walk falls short, other placements are searched, with
a budget, before the answer is no. Everything happens on an overlay, so nothing leaks into the cluster.
Source: KEP-4671, as kube-scheduler 1.36 behaves, without its greedy walk's blind spots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from haru.engine.cluster import Snapshot, claim_path
from haru.engine.decision import Decision, GroupKey, Obj, Reason
from haru.engine.groups import result
from haru.engine.groups.attempt import Attempt, attempt_on
from haru.engine.groups.fitting import Preemptor, places
from haru.engine.groups.options import Options
from haru.engine.groups.placements import Placements
from haru.engine.groups.placing import Refused
from haru.engine.groups.preemption import preempt_for_group
from haru.engine.groups.preemption_pod import preempt_for_pod
from haru.engine.groups.promises import kept_from, reserved_now, with_promises
from haru.engine.groups.protection import DELAYED, may_evict_from, protection_ends
from haru.engine.groups.quorum import GROUP_UNSCHEDULABLE, group_hold, min_count
from haru.engine.groups.topology import refused_message, settled_domain, topology_key
from haru.engine.pods import PodInfo


def decide(snapshot: Snapshot, pods: Sequence[Obj], *, group: Obj | None, options: Options) -> Decision:
    """Where the pods go, with which devices, and why not.

    `pods` are the members to decide, in order of their first attempt; members that are placed, ended, gated or being
    deleted are passed over. One pod without `group` is a group of one.
    """
    members = members_of(snapshot, pods)
    key = key_of(group)
    if not members:
        return Decision(key, "unschedulable", "no pod is left to be scheduled", (), (), snapshot.version)
    mismatch = _scheduler_mismatch(members)
    if mismatch is not None:
        return result.failed(key, members, mismatch, snapshot.version)
    if key is not None and options.gang_scheduling:
        hold = group_hold(snapshot, key)
        if hold is not None:
            return result.alike(key, members, "unschedulable", hold, snapshot.version, result.GANG_PLUGIN)
    seen = with_promises(snapshot, members, groups=options.groups, now=options.now)
    needed = needed_of(seen, key, group, options)
    decision = _decide(seen, key, members, group, needed, options)
    if decision.status != "unschedulable" or not (options.preempt_for_groups if key else options.preempt_for_pods):
        return decision
    reservation = kept_from(snapshot, members, groups=options.groups)
    if reservation is not None:
        seen = with_promises(reserved_now(snapshot, reservation), members, groups=options.groups, now=options.now)
    preemptor = Preemptor(members, key, group, needed, options, places(seen, key, group, options))
    return _preempt(seen, decision, preemptor)


def _preempt(snapshot: Snapshot, refused: Decision, preemptor: Preemptor) -> Decision:
    """Whom to evict, if anybody may be evicted yet."""
    may_from = may_evict_from(preemptor)
    if may_from is not None:
        return replace(result.with_note(refused, DELAYED), again_at=may_from)
    rule = preempt_for_pod if preemptor.key is None else preempt_for_group
    decision = rule(snapshot, refused, preemptor)
    if decision.status != "unschedulable":
        return decision
    return replace(decision, again_at=protection_ends(snapshot, preemptor))


def members_of(snapshot: Snapshot, pods: Sequence[Obj]) -> list[PodInfo]:
    """The pods that are to be decided, in the order in which they are."""
    members: list[PodInfo] = []
    last: list[PodInfo] = snapshot.notes.entry("read", None, list)
    for obj in pods:
        known = snapshot.pods.get(claim_path(obj))
        info = known if known is not None and known.obj is obj and not known.node else PodInfo.of(obj)
        placed = info.node or (known is not None and known.key.uid == info.key.uid and known.node)
        if not (placed or info.terminal or info.deleting or info.gated):
            # What was read of the first is read of all that say the same, also in the next decision.
            for like in members[:1] or last:
                info.read_as(like)
            members.append(info)
    last[:] = members[:1] or last
    # Among equals those that have a place reserved come first, so that no sibling takes it.
    promised = snapshot.nominations.keys()
    return sorted(members, key=lambda pod: (-pod.priority, not (pod.nominated_node or pod.key.path in promised)))


def key_of(group: Obj | None) -> GroupKey | None:
    """The name of a group, if there is one."""
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


def needed_of(snapshot: Snapshot, key: GroupKey | None, group: Obj | None, options: Options) -> int:
    """How many of the pending members must find a place."""
    minimum = min_count(group) if options.gang_scheduling else None
    if key is None or minimum is None:
        return 1
    # Members that make room for others have a place no longer than that takes.
    return max(1, minimum - min(moment.group_state(key).scheduled_count for moment in snapshot.moments))


def _decide(
    snapshot: Snapshot,
    key: GroupKey | None,
    members: Sequence[PodInfo],
    group: Obj | None,
    needed: int,
    options: Options,
) -> Decision:
    label = topology_key(group) if options.topology else None
    if key is not None and label is not None:
        return _decide_in_domains(snapshot, key, members, group, needed, options, label)
    attempt = attempt_on(snapshot, members, group, needed, options, snapshot.node_names)
    return _concluded(snapshot, key, members, needed, attempt)


def _decide_in_domains(
    snapshot: Snapshot,
    key: GroupKey,
    members: Sequence[PodInfo],
    group: Obj | None,
    needed: int,
    options: Options,
    label: str,
) -> Decision:
    settled = settled_domain(snapshot, key, label)
    if isinstance(settled, Reason):
        return result.failed(key, members, settled, snapshot.version)
    placements = Placements(snapshot, key, members, group, needed, options, label)
    domains = placements.values if settled is None else [settled]
    best = placements.best(domains)
    if best is not None:
        return result.scheduled(key, best.attempt.outcomes, snapshot.version)
    unanswered = next((trial.attempt for trial in placements.tried if trial.attempt.unanswered), None)
    if unanswered is not None:
        return _concluded(snapshot, key, members, needed, unanswered)
    first = placements.diagnosis(domains[0]).outcomes if domains else ()
    text = next((o.message for o in first if isinstance(o, Refused)), GROUP_UNSCHEDULABLE)
    message = refused_message(len(domains), text)
    reason = Reason("TopologyDomain", message, {"topologyKey": label, "placements": len(domains), "needed": needed})
    return result.nowhere(key, members, reason, first, snapshot.version)


def _concluded(
    snapshot: Snapshot, key: GroupKey | None, members: Sequence[PodInfo], needed: int, attempt: Attempt
) -> Decision:
    if attempt.broken:
        return result.group_error(key, attempt.outcomes, members, snapshot.version)
    if attempt.fit >= needed:
        return result.scheduled(key, attempt.outcomes, snapshot.version)
    if attempt.gave_up is not None:
        return result.failed(key, members, attempt.gave_up, snapshot.version)
    return result.unschedulable(key, attempt.outcomes, needed, attempt.fit, snapshot.version)
