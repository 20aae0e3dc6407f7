"""Describe the pods that one cycle decides together: pending members of a PodGroup, or a single pod.

Source: PodGroupInfo of kube-scheduler's framework (KEP-4671).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine.framework.options import Options
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.decision import GroupKey
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.snapshot import ClusterView
from haru.kube.jobs import COUNT_SUCCEEDED
from haru.kube.meta import Obj, annotations_of


def min_count(group: Obj | None) -> int | None:
    """Return how many members a gang needs; None for groups of the basic policy and for no group."""
    policy = ((group or {}).get("spec") or {}).get("schedulingPolicy") or {}
    gang = policy.get("gang")
    return int(gang.get("minCount") or 1) if gang is not None else None


def required_members(group: Obj | None, *, gang_scheduling: bool = True) -> int:
    """Return how many members must have places at once: a gang's minCount, else 1."""
    return (min_count(group) if gang_scheduling else None) or 1


def lacks_members(snapshot: ClusterView, key: GroupKey, group: Obj | None) -> bool:
    """Tell whether a gang has fewer living members than it needs, so that no place could let it start."""
    minimum = min_count(group)
    return minimum is not None and snapshot.group_state(key).count < minimum


def keeps_places(group: Obj | None, members: int, placed: int) -> bool:
    """Tell whether a gang is half placed, and has the members to be whole."""
    minimum = min_count(group)
    return minimum is not None and 0 < placed < minimum <= members


def has_quorum(snapshot: Snapshot, key: GroupKey, group: Obj | None, *, gang_scheduling: bool = True) -> bool:
    """Tell whether as many members as the group needs have places."""
    return snapshot.group_state(key).scheduled_count >= required_members(group, gang_scheduling=gang_scheduling)


def members_needed(
    snapshot: ClusterView, key: GroupKey | None, group: Obj | None, *, gang_scheduling: bool = True
) -> int:
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


@dataclass(frozen=True, slots=True)
class PodGroupInfo:
    """Hold pending members, of which `needed` must find places at once, and the options of the decision.

    `group` is the PodGroup; it is None, and so is `key`, for a single pod.
    """

    members: Sequence[PodInfo]
    key: GroupKey | None
    group: Obj | None
    needed: int
    options: Options

    @classmethod
    def of(cls, snapshot: Snapshot, members: Sequence[PodInfo], group: Obj | None, options: Options) -> PodGroupInfo:
        """Describe the members as the snapshot, with nominated pods, has their group."""
        key = key_of(group)
        needed = members_needed(snapshot, key, group, gang_scheduling=options.gates.gang_scheduling)
        return cls(members, key, group, needed, options)

    @property
    def topology_key(self) -> str | None:
        """Return the label of the group's required topology constraint (KEP-5732), if there is one."""
        if self.key is None or not self.options.gates.topology:
            return None
        constraints = ((self.group or {}).get("spec") or {}).get("schedulingConstraints") or {}
        return next((str(constraint["key"]) for constraint in constraints.get("topology") or ()), None)


def key_of(group: Obj | None) -> GroupKey | None:
    """Return the key of a group, if there is one."""
    if group is not None:
        return GroupKey(group["metadata"].get("namespace") or "default", group["metadata"]["name"])
    return None
