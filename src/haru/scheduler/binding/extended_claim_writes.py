"""Claims behind extended resources, as the scheduler makes them, records them in pods and clears them away. Pure.

Such a claim is known by its annotation and its owner, so whoever schedules next finds it again, recorded or not: it is
used if it suits, else removed. What a pod's status says of its devices is written with the version that was read: a
late write can then not undo what came after it.
Source: KEP-5004 (PreBind, Unreserve and PostFilter of the DynamicResources plugin); KEP-5517 (what devices take of
their node's resources is recorded beside).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from haru.engine import Snapshot
from haru.engine.dra import extended_resource_claim_owner, requested_devices
from haru.engine.plugins import extended_resource_claim_use
from haru.engine.state import ClaimAllocation, ClusterView, MemberDecision, PodInfo, PodKey
from haru.kube.meta import Obj, allocation_of, controller_of, is_being_deleted, name_of, namespace_of, uid_of

EXTENDED = "extendedResourceClaimStatus"
CLAIMED = "nodeAllocatableResourceClaimStatuses"


def claims_to_create(members: Iterable[MemberDecision]) -> dict[str, tuple[PodKey, Obj]]:
    """By stand-in path: the claims that have to exist before they can be allocated, and whose they are."""
    return {a.path: (m.pod, a.new_claim) for m in members for a in m.allocations if a.new_claim is not None}


def body_of(claim: Obj) -> Obj:
    """The claim as it is sent: without the stand-ins for what the server makes."""
    metadata = {key: value for key, value in claim["metadata"].items() if key not in ("name", "uid")}
    return {**claim, "metadata": metadata}


def with_created(member: MemberDecision, created: Mapping[str, Obj]) -> MemberDecision:
    """The decision with the claims that exist by now in place of their stand-ins."""
    if not any(a.path in created for a in member.allocations):
        return member
    paths: dict[str, str] = {}
    allocations: list[ClaimAllocation] = []
    for one in member.allocations:
        claim = created.get(one.path)
        if claim is not None:
            made = replace(one, claim_name=name_of(claim), claim_uid=uid_of(claim), new_claim=None)
            paths[one.path] = made.path
            one = made
        allocations.append(one)
    extended = member.extended
    if extended is not None:
        extended = replace(extended, path=paths.get(extended.path, extended.path))
    return replace(member, allocations=tuple(allocations), extended=extended)


def _name(path: str) -> str:
    return path.partition("/")[2]


def is_same_claim(claim: Obj, wanted: Obj) -> bool:
    """Whether a claim is one that was asked for, and nobody has used: its creation was answered by nobody."""
    unused = not allocation_of(claim) and not is_being_deleted(claim)
    return (
        unused
        and extended_resource_claim_owner(claim) == extended_resource_claim_owner(wanted)
        and requested_devices(claim) == requested_devices(wanted)
    )


def recorded(member: MemberDecision) -> dict[str, Any]:
    """What the status of a pod must say of its devices before it is bound; None for what must not be there."""
    claim: Obj | None = None
    if member.extended is not None:
        claim = {
            "resourceClaimName": _name(member.extended.path),
            "requestMappings": list(member.extended.mappings),
        }
    return {EXTENDED: claim, CLAIMED: list(member.claimed) or None}


def unrecorded(member: MemberDecision, pod: Mapping[str, Any] | None) -> dict[str, Any]:
    """What of it a pod does not say yet; of a pod that is not known nothing is assumed to be there."""
    status = (pod or {}).get("status") or {}
    if member.extended is None and not (member.claimed or status.get(EXTENDED) or status.get(CLAIMED)):
        return {}
    return {field: value for field, value in recorded(member).items() if (status.get(field) or None) != value}


def place_patch(member: MemberDecision, pod: Mapping[str, Any] | None, *, nominate: bool) -> Obj | None:
    """A merge patch of the status that tells the pod's place and devices; None if there is nothing to tell."""
    status = unrecorded(member, pod)
    metadata = {"uid": member.pod.uid}
    if status and pod is not None:
        metadata["resourceVersion"] = pod["metadata"].get("resourceVersion") or ""
    if nominate:
        status["nominatedNodeName"] = member.node
    return {"metadata": metadata, "status": status} if status else None


def to_clear(member: MemberDecision) -> list[str]:
    """What has to go from the pod's status when the decision is taken back: what is told of claims that go too."""
    made = {one.path for one in member.allocations}
    gone = [EXTENDED] if member.extended is not None and member.extended.path in made else []
    return [*gone, CLAIMED] if member.claimed and made else gone


def surplus_claims(snapshot: Snapshot, schedulers: Collection[str], is_busy: Callable[[PodKey], bool]) -> list[Obj]:
    """Claims of living pods that no attempt will use: made twice, or not for the node that the pod went to."""
    found: list[Obj] = []
    for uid, paths in snapshot.claim_index.extended.items():
        claims = {path: snapshot.claims[path] for path in sorted(paths) if path not in snapshot.claim_index.in_flight}
        for path, claim in claims.items():
            pod = _owner(snapshot, claim, uid)
            if pod is None or pod.scheduler_name not in schedulers or is_busy(pod.key):
                continue
            if path != _kept(snapshot, pod):
                found.append(claim)
    return found


def _owner(snapshot: Snapshot, claim: Obj, uid: str) -> PodInfo | None:
    owner = controller_of(claim) or {}
    pod = snapshot.pods.get(f"{namespace_of(claim)}/{owner.get('name')}")
    return pod if pod is not None and pod.key.uid == uid else None


def _kept(snapshot: Snapshot, pod: PodInfo) -> str:
    """The path of the claim that a pod uses, or will use."""
    if pod.node:
        name = (pod.status.get(EXTENDED) or {}).get("resourceClaimName") or ""
        return f"{pod.key.namespace}/{name}"
    use = extended_resource_claim_use(snapshot, pod)
    return use.path if use is not None else ""


def stale_claims(snapshot: ClusterView, member: MemberDecision) -> list[Obj]:
    """Claims that were made for a pod's extended resources, but for the one that it is about to be bound with."""
    used = member.extended.path if member.extended is not None else ""
    paths = snapshot.claim_index.extended.get(member.pod.uid) or frozenset()
    return [snapshot.claims[path] for path in sorted(paths - {used}) if path not in snapshot.claim_index.in_flight]
