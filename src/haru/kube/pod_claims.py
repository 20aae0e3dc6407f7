"""Claims of a pod as its kubelet sees them: which they are, and whether the pod may use them now.

Source: kubelet `cm/dra`, as behaviour (KEP-4381, KEP-5004, KEP-5729).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj, allocation_of, controller_of, key_of, name_of, namespace_of, podgroup_of, uid_of

FAILED_PREPARE: Final = "FailedPrepareDynamicResources"
"""The reason of the event that says why."""


class NotPrepared(Exception):
    """The pod cannot start yet; the text says which claim is the obstacle and why."""


def old_claim_exists(name: str, uid: str) -> str:
    """Why a claim is not prepared while an earlier one of its name is, in kubelets' words."""
    return (
        f"old ResourceClaim with same name {name} and different UID {uid} still exists (previous pod force-deleted?!)"
    )


class PodClaim(NamedTuple):
    """A claim that a pod uses."""

    name: str
    generated: bool
    """Made from a template for this pod or its group, so that its owner must be one of them."""
    entry: str = ""
    """The pod's name for it; empty for the claim of its extended resources."""


def pod_claims(pod: Mapping[str, Any]) -> list[PodClaim]:
    """The claims of a pod; NotPrepared while one has not been generated."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    generated = {entry.get("name"): entry for entry in status.get("resourceClaimStatuses") or ()}
    claims = []
    for entry in spec.get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            claims.append(PodClaim(entry["resourceClaimName"], False, entry["name"]))
            continue
        made = generated.get(entry["name"])
        if made is None:
            raise NotPrepared(f'prepare dynamic resources: pod "{key_of(pod)}": ResourceClaim not created yet')
        if made.get("resourceClaimName"):
            claims.append(PodClaim(made["resourceClaimName"], True, entry["name"]))
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if extended:
        claims.append(PodClaim(extended, True))
    return claims


def awaits_preparation(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has a node, and claims that may not be prepared there yet."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    has_claims = spec.get("resourceClaims") or status.get("extendedResourceClaimStatus")
    return bool(has_claims and spec.get("nodeName")) and status.get("phase") == "Pending"


def check_claim(pod: Obj, use: PodClaim, claim: Obj | None) -> None:
    """NotPrepared unless the pod may use the claim now."""
    where = f"{namespace_of(pod)}/{use.name}"
    if claim is None:
        missing = f'resourceclaims.resource.k8s.io "{use.name}" not found'
        raise NotPrepared(f"prepare dynamic resources: fetch ResourceClaim {use.name}: {missing}")
    if use.generated and not _generated_for(pod, claim):
        group = podgroup_of(pod)
        owner = f"neither Pod nor PodGroup {group} is the owner" if group else "Pod is not owner"
        made = f"ResourceClaim {where} was not created for Pod {key_of(pod)}"
        raise NotPrepared(f"prepare dynamic resources: {made} ({owner})")
    if not _reserved(pod, claim):
        raise NotPrepared(
            f"prepare dynamic resources: pod {name_of(pod)} ({uid_of(pod)}) is not allowed to use ResourceClaim "
            f"{use.name} ({uid_of(claim)})"
        )
    if not allocation_of(claim):
        raise NotPrepared(f"prepare dynamic resources: ResourceClaim {use.name}: not allocated")


def _generated_for(pod: Obj, claim: Obj) -> bool:
    owner = controller_of(claim) or {}
    if owner.get("uid") == uid_of(pod):
        return True
    group = podgroup_of(pod)
    return bool(group) and owner.get("kind") == "PodGroup" and owner.get("name") == group


def _reserved(pod: Obj, claim: Obj) -> bool:
    group = podgroup_of(pod)
    for consumer in (claim.get("status") or {}).get("reservedFor") or ():
        if consumer.get("resource") == "pods" and consumer.get("uid") == uid_of(pod):
            return True
        if group and consumer.get("resource") == "podgroups" and consumer.get("name") == group:
            return True
    return False


def claim_keys(pod: Obj) -> list[str]:
    """The keys of the claims that are known so far for the pod."""
    try:
        return [f"{namespace_of(pod)}/{use.name}" for use in pod_claims(pod)]
    except NotPrepared:
        return []
