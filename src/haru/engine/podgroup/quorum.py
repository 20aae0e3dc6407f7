"""Count how many members a PodGroup needs, and how many of them still lack a place.

In 1.36 a member that has succeeded leaves its gang's count, so a gang of four with one succeeded and one failed member
waits for ever for the replacement. A PodGroup with the annotation `haru.dev/count-succeeded: "true"` counts succeeded
members: quorum sees a gang with a lower minCount. Haru's Job controller sets it, as a completed index stays completed.
Source: KEP-4671 (`schedulingPolicy.gang.minCount`); the annotation is Haru's.
"""

from __future__ import annotations

from collections import Counter

from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.decision import GroupKey, Obj
from haru.kube.jobs import COUNT_SUCCEEDED
from haru.kube.meta import annotations_of


def min_count(group: Obj | None) -> int | None:
    """Return how many members a gang needs; None for groups of the basic policy and for no group."""
    policy = ((group or {}).get("spec") or {}).get("schedulingPolicy") or {}
    gang = policy.get("gang")
    return int(gang.get("minCount") or 1) if gang is not None else None


def required_members(group: Obj | None, *, gang_scheduling: bool = True) -> int:
    """Return how many members must have places at once: a gang's minCount, else 1."""
    return (min_count(group) if gang_scheduling else None) or 1


def lacks_members(snapshot: Snapshot, key: GroupKey, group: Obj | None) -> bool:
    """Tell whether a gang has fewer living members than it needs, so that no place could let it start."""
    minimum = min_count(group)
    return minimum is not None and snapshot.group_state(key).count < minimum


def has_quorum(snapshot: Snapshot, key: GroupKey, group: Obj | None, *, gang_scheduling: bool = True) -> bool:
    """Tell whether as many members as the group needs have places."""
    return snapshot.group_state(key).scheduled_count >= required_members(group, gang_scheduling=gang_scheduling)


def members_needed(snapshot: Snapshot, key: GroupKey | None, group: Obj | None, *, gang_scheduling: bool = True) -> int:
    """Return how many pending members must find places at once: at least 1, and 1 without a group.

    A member that a pending eviction removes has lost its place in a later pass, so the pass with the fewest counts.
    """
    if key is None:
        return 1
    placed = min(moment.group_state(key).scheduled_count for moment in snapshot.passes)
    return max(1, required_members(group, gang_scheduling=gang_scheduling) - placed)


def as_needed(group: Obj, succeeded: int) -> Obj:
    """Return the PodGroup with its minCount lowered by the members that have succeeded."""
    gang = group["spec"]["schedulingPolicy"].get("gang")
    if not succeeded or gang is None or annotations_of(group).get(COUNT_SUCCEEDED) != "true":
        return group
    policy = {"gang": {**gang, "minCount": max(1, gang["minCount"] - succeeded)}}
    return {**group, "spec": {**group["spec"], "schedulingPolicy": policy}}


def count_succeeded(cluster: SchedulerCache) -> None:
    """Lower the minCount of each group in the cache by its succeeded members; for a cluster read as a whole."""
    snapshot = cluster.snapshot()
    succeeded_by_group = Counter(
        pod.group.path for pod in snapshot.pods.values() if pod.group and pod.status.get("phase") == "Succeeded"
    )
    for path, number in succeeded_by_group.items():
        group = snapshot.pod_groups.get(path)
        if group is not None and (adjusted := as_needed(group, number)) is not group:
            cluster.apply(adjusted)
