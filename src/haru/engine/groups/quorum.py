"""Who may be tried at all: scheduling gates, claims that are not there yet, gangs that are not complete.

Source: KEP-4671 (PreEnqueue and Permit of the GangScheduling plugin), KEP-3521 (gates), KEP-4381 (claims).
"""

from __future__ import annotations

from haru.engine.cluster import Snapshot
from haru.engine.decision import GroupKey, Obj, Reason
from haru.engine.groups.claims import resolve_claims
from haru.engine.pods import PodInfo

GATED = "Scheduling is blocked due to non-empty scheduling gates"
TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"
WAITING = "waiting for minCount pods from a gang to be scheduled"
GROUP_UNSCHEDULABLE = "pod group is unschedulable"


def group_missing(key: GroupKey) -> str:
    """The message of 1.36, stray letters included: clients match on it."""
    return f'waiting for pods\'s pod group "{key.name}" to appear in scheduling queue'


def min_count(group: Obj | None) -> int | None:
    """How many members a gang needs; None for groups of the basic policy and for no group."""
    policy = ((group or {}).get("spec") or {}).get("schedulingPolicy") or {}
    gang = policy.get("gang")
    return int(gang.get("minCount") or 1) if gang is not None else None


def group_hold(snapshot: Snapshot, key: GroupKey) -> Reason | None:
    """Why no member of a group may be tried: the PodGroup is missing, or a gang has too few living members."""
    group = snapshot.pod_group(key)
    if group is None:
        return Reason("PodGroupMissing", group_missing(key), {"podGroup": key.path})
    minimum = min_count(group)
    living = snapshot.group_state(key).count
    if minimum is not None and living < minimum:
        return Reason("TooFewMembers", TOO_FEW, {"podGroup": key.path, "members": living, "minCount": minimum})
    return None


def pre_enqueue(
    snapshot: Snapshot, pod: Obj, *, gang_scheduling: bool = True, workload_claims: bool = True
) -> Reason | None:
    """Why a pod has to wait before it may be tried, or None."""
    info = PodInfo.of(pod)
    if info.gated:
        gates = [gate.get("name", "") for gate in info.spec.get("schedulingGates") or ()]
        return Reason("Gated", GATED, {"gates": gates})
    group = snapshot.pod_group(info.group) if info.group else None
    if info.group is not None and gang_scheduling:
        hold = group_hold(snapshot, info.group)
        if hold is not None:
            return hold
    claims = resolve_claims(snapshot, info, group, workload_claims=workload_claims)
    return claims if isinstance(claims, Reason) else None
