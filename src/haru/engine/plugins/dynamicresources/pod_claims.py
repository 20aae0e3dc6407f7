"""Resolve a pod's ResourceClaims: by name, created from a template, or shared through the PodGroup.

A claim that is missing, being deleted or created for another pod holds the pod in PreEnqueue and rejects it in
PreFilter, with kube-scheduler's messages.
Source: KEP-4381 and KEP-5729, `resourceclaim.Name` and `IsForPod`, as behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.engine.state.decision import Reason
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.pod_values import PodClaim
from haru.engine.state.snapshot import ClusterView
from haru.kube.meta import Obj, allocation_of, controller_uid_of

MAX_RESERVED_FOR = 256


@dataclass(slots=True, unsafe_hash=True)
class ClaimUse:
    """Hold a claim that a pod uses, and the entry of `reservedFor` for this use. Never changed.

    `made_for` names the extended resources that a claim is to serve which does not exist yet (KEP-5004).
    """

    path: str
    claim: Obj
    reserve_for: Obj
    made_for: frozenset[str] = frozenset()

    @property
    def allocation(self) -> Obj | None:
        """`status.allocation`."""
        allocation: Obj | None = allocation_of(self.claim)
        return allocation

    @property
    def reserved_for(self) -> list[Obj]:
        """`status.reservedFor`."""
        return (self.claim.get("status") or {}).get("reservedFor") or []

    @property
    def consumer(self) -> str:
        """Return what tells the pod or the group for which it is reserved from others."""
        return str(self.reserve_for["uid"] or self.reserve_for["name"])

    @property
    def is_reserved(self) -> bool:
        """Tell whether the claim is reserved for this user already."""
        reserved_for = self.reserved_for
        return bool(reserved_for) and any(entry.get("uid") == self.reserve_for["uid"] for entry in reserved_for)


def resolve_claims(
    snapshot: ClusterView, pod: PodInfo, group: Obj | None, *, workload_claims: bool
) -> tuple[ClaimUse, ...] | Reason:
    """Return the claims that a pod uses, in the order of its spec, or why one cannot be used."""
    uses: dict[str, ClaimUse] = {}
    shares = workload_claims and group is not None and (group.get("spec") or {}).get("resourceClaims")
    for entry in pod.claims:
        shared = _group_claim(entry, group) if shares else None
        found = _named(pod, entry)
        if isinstance(found, Reason):
            return found
        name, generated = found
        if name is None:
            continue
        use = _use(snapshot, pod, name, generated=generated, group=group if shared else None)
        if isinstance(use, Reason):
            return use
        uses.setdefault(use.path, use)
    return tuple(uses.values())


def _group_claim(entry: PodClaim, group: Obj | None) -> Obj | None:
    """Return the PodGroup's claim with the name and reference of the pod's claim."""
    for candidate in ((group or {}).get("spec") or {}).get("resourceClaims") or ():
        reference = (
            candidate["name"],
            candidate.get("resourceClaimName") or "",
            candidate.get("resourceClaimTemplateName") or "",
        )
        if reference == tuple(entry):
            found: Obj = candidate
            return found
    return None


def claim_name(pod: PodInfo, entry: PodClaim) -> str | None:
    """Return the name of the claim of a pod's entry; None if there is none, or none yet."""
    if entry.claim_name:
        return entry.claim_name
    for status in (pod.status.get("resourceClaimStatuses") or ()) if entry.template_name else ():
        if status.get("name") == entry.name:
            found: str | None = status.get("resourceClaimName")
            return found
    return None


def _named(pod: PodInfo, entry: PodClaim) -> tuple[str | None, bool] | Reason:
    """Return the claim's name (None: the entry needs none) and whether a template generated it."""
    if entry.claim_name:
        return entry.claim_name, False
    if not entry.template_name:
        message = f'pod "{pod.key.path}", spec.resourceClaim "{entry.name}": none of the supported fields are set'
        return Reason("ClaimNotCreated", message, {"podClaim": entry.name})
    made = _status_of(pod, entry)
    if made is not None:
        return made.get("resourceClaimName"), True
    message = f'pod "{pod.key.path}": ResourceClaim not created yet'
    return Reason("ClaimNotCreated", message, {"podClaim": entry.name, "template": entry.template_name})


def _status_of(pod: PodInfo, entry: PodClaim) -> Obj | None:
    """Return the entry of the pod's status that names the claim made from a template."""
    for status in pod.status.get("resourceClaimStatuses") or ():
        if status.get("name") == entry.name:
            found: Obj = status
            return found
    return None


def _use(snapshot: ClusterView, pod: PodInfo, name: str, *, generated: bool, group: Obj | None) -> ClaimUse | Reason:
    path = f"{pod.key.namespace}/{name}"
    claim = snapshot.claims.get(path)
    if claim is None:
        return Reason("ClaimMissing", f'resourceclaim.resource.k8s.io "{name}" not found', {"claim": path})
    if "deletionTimestamp" in claim["metadata"] and claim["metadata"]["deletionTimestamp"]:
        return Reason("ClaimDeleting", f'resourceclaim "{name}" is being deleted', {"claim": path})
    if generated:
        foreign = _foreign(pod, claim, path, group)
        if foreign is not None:
            return foreign
    return ClaimUse(path, claim, consumer(pod, group))


def _foreign(pod: PodInfo, claim: Obj, path: str, group: Obj | None) -> Reason | None:
    owner = controller_uid_of(claim)
    if owner == pod.key.uid:
        return None
    made = f"ResourceClaim {path} was not created for Pod {pod.key.path}"
    if group is None:
        return Reason("ClaimForeign", f"{made} (Pod is not owner)", {"claim": path})
    if owner == group["metadata"].get("uid"):
        return None
    group_path = f"{pod.key.namespace}/{group['metadata']['name']}"
    message = f"{made} or PodGroup {group_path} (neither Pod nor PodGroup is the owner)"
    return Reason("ClaimForeign", message, {"claim": path})


def consumer(pod: PodInfo, group: Obj | None) -> Obj:
    """Return the entry of `reservedFor` for a pod, or for the group whose claim it shares."""
    if group is not None:
        meta = group["metadata"]
        return {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": meta["name"],
            "uid": meta.get("uid") or "",
        }
    return {"resource": "pods", "name": pod.key.name, "uid": pod.key.uid}
