"""Decide whether a pod may enter the active queue: scheduling gates, missing claims, incomplete gangs.

Source: KEP-4671 (PreEnqueue and Permit of the GangScheduling plugin), KEP-3521 (gates), KEP-4381 (claims).
"""

from __future__ import annotations

from haru.engine.plugins.dynamicresources.pod_claims import resolve_claims
from haru.engine.podgroup.podgroup_info import lacks_members, min_count
from haru.engine.state.decision import GroupKey, Reason
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.snapshot import ClusterView
from haru.kube.meta import Obj

GATED = "Scheduling is blocked due to non-empty scheduling gates"
TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"
WAITING = "waiting for minCount pods from a gang to be scheduled"
GROUP_UNSCHEDULABLE = "pod group is unschedulable"
FITS_ALONE = f"{GROUP_UNSCHEDULABLE}, {WAITING}, one or more plugins asked to wait and no plugin rejected pod"
"""Of a member that has a place, in a gang that has too few."""
GANGS_OFF = "gang scheduling is off in this scheduler"


def podgroup_missing(key: GroupKey) -> str:
    """Return the message of 1.36, stray letters included: clients match on it."""
    return f'waiting for pods\'s pod group "{key.name}" to appear in scheduling queue'


def gang_gate_reason(snapshot: ClusterView, key: GroupKey) -> Reason | None:
    """Return why no member of a group may be scheduled: the PodGroup is missing or the gang has too few members."""
    group = snapshot.pod_group(key)
    if group is None:
        return Reason("PodGroupMissing", podgroup_missing(key), {"podGroup": key.path})
    if not lacks_members(snapshot, key, group):
        return None
    data = {"podGroup": key.path, "members": snapshot.group_state(key).count, "minCount": min_count(group)}
    return Reason("TooFewMembers", TOO_FEW, data)


def gangs_off(snapshot: ClusterView, key: GroupKey, gate: str) -> Reason | None:
    """Return why a disabled feature gate keeps a group's members pending; a basic group needs GenericWorkload alone."""
    group = snapshot.pod_group(key)
    if gate != "GenericWorkload" and group is not None and min_count(group) is None:
        return None
    message = f"{GANGS_OFF} (feature gate {gate}): a pod that names a PodGroup is not scheduled alone"
    return Reason("GangSchedulingOff", message, {"podGroup": key.path})


def pre_enqueue(
    snapshot: ClusterView,
    pod: Obj | PodInfo,
    *,
    gang_scheduling: bool = True,
    workload_claims: bool = True,
    gate_off: str = "",
) -> Reason | None:
    """Return why a pod must not enter the active queue yet, or None.

    `gate_off` is the disabled gang feature gate, if members of groups have to wait for it.
    """
    info = pod if isinstance(pod, PodInfo) else PodInfo.of(pod)
    if info.gated:
        gates = [gate.get("name", "") for gate in info.spec.get("schedulingGates") or ()]
        return Reason("Gated", GATED, {"gates": gates})
    group = snapshot.pod_group(info.group) if info.group else None
    if info.group is not None and gate_off:
        off = gangs_off(snapshot, info.group, gate_off)
        if off is not None:
            return off
    if info.group is not None and gang_scheduling:
        hold = gang_gate_reason(snapshot, info.group)
        if hold is not None:
            return hold
    claims = resolve_claims(snapshot, info, group, workload_claims=workload_claims)
    return claims if isinstance(claims, Reason) else None
