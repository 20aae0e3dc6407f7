"""Which ResourceClaim a pod's claim entry means, and what a generated claim looks like (pure).

An entry of `spec.resourceClaims` names a claim, or a template from which a claim is made for the pod - or, where the
pod's PodGroup has the very same entry, for the group. The name of a generated claim is recorded in a status.
Source: KEP-4381 (structured parameters), KEP-5729 (claims of workloads).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from haru.kube.kinds import Kind
from haru.kube.meta import (
    Obj,
    allocation_of,
    annotations_of,
    controller_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)

POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
MAX_RESERVED = 256
_EXTENDED_RESOURCE = "resource.kubernetes.io/extended-resource-claim"
_MAX_BASE = 57


def entries_of(obj: Mapping[str, Any]) -> Sequence[Obj]:
    """`spec.resourceClaims` of a Pod or PodGroup."""
    return (obj.get("spec") or {}).get("resourceClaims") or ()


def recorded_names(obj: Mapping[str, Any]) -> dict[str, str | None]:
    """Entry name to generated claim name as the status has it; None: the entry needs no claim."""
    statuses = (obj.get("status") or {}).get("resourceClaimStatuses") or ()
    return {status["name"]: status.get("resourceClaimName") for status in statuses}


def claim_name(obj: Mapping[str, Any], entry: Mapping[str, Any]) -> str | None:
    """The claim that an entry stands for now; None while (or if) there is none."""
    direct = entry.get("resourceClaimName")
    return str(direct) if direct else recorded_names(obj).get(entry["name"])


def claim_keys(pod: Mapping[str, Any]) -> list[str]:
    """`namespace/name` of every claim that a pod has so far, the one for its extended resources included (KEP-5004)."""
    names = [claim_name(pod, entry) for entry in entries_of(pod)]
    extended = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    return [f"{namespace_of(pod)}/{name}" for name in (*names, extended) if name]


def matches_group(group: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether the group has the very same entry, so that the claim is the group's."""
    keys = ("name", "resourceClaimName", "resourceClaimTemplateName")
    return any(all(own.get(key) == entry.get(key) for key in keys) for own in entries_of(group))


def is_owned_by(claim: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Whether the claim was generated for this very pod or group."""
    controller = controller_of(claim)
    return controller is not None and controller.get("uid") == uid_of(owner)


def entry_of(claim: Mapping[str, Any]) -> str | None:
    """The name of the entry that the claim was generated for."""
    return annotations_of(claim).get(POD_CLAIM_ANNOTATION)


def generate_name(owner: str, entry: str) -> str:
    """`<owner>-<entry>-`; when too long both parts are cut in proportion to their lengths and the last dash goes."""
    base = f"{owner}-{entry}-"
    if len(base) <= _MAX_BASE:
        return base
    room = _MAX_BASE - 1
    of_entry = max(1, room * len(entry) // (len(owner) + len(entry)))
    of_owner = room - of_entry
    # A part must not end in a separator: "a.-b" is no DNS name.
    return f"{owner[:of_owner].rstrip('.-')}-{entry[:of_entry].rstrip('.-')}"


def generated_claim(owner: Mapping[str, Any], owner_kind: Kind, entry: str, template: Mapping[str, Any]) -> Obj:
    """The claim to create for an entry of a pod or group."""
    body = template.get("spec") or {}
    metadata: Obj = {
        "generateName": generate_name(name_of(owner), entry),
        "namespace": namespace_of(owner),
        "annotations": {**annotations_of(body), POD_CLAIM_ANNOTATION: entry},
        "ownerReferences": [{**owner_reference(owner, owner_kind, controller=False), "controller": True}],
    }
    if labels := labels_of(body):
        metadata["labels"] = dict(labels)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": body.get("spec") or {},
    }


def consumer(obj: Mapping[str, Any], kind: Kind) -> Obj:
    """The entry for `status.reservedFor`."""
    reference: Obj = {"resource": kind.plural, "name": name_of(obj), "uid": uid_of(obj)}
    return {"apiGroup": kind.group, **reference} if kind.group else reference


def reserved_for(claim: Mapping[str, Any]) -> list[Obj]:
    """`status.reservedFor`."""
    return list((claim.get("status") or {}).get("reservedFor") or ())


def is_allocated(claim: Mapping[str, Any]) -> bool:
    """Whether devices have been allocated for the claim."""
    return bool(allocation_of(claim))


def has_admin_access(claim: Mapping[str, Any]) -> bool:
    """Whether some request of the claim asks for administrative access."""
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
    return any((request.get("exactly") or {}).get("adminAccess") for request in requests)


def classify(claim: Mapping[str, Any]) -> tuple[str, str, str]:
    """The labels under which a claim is counted: allocated, admin_access, source."""
    annotations = annotations_of(claim)
    source = ""
    if POD_CLAIM_ANNOTATION in annotations:
        source = "resource_claim_template"
    elif annotations.get(_EXTENDED_RESOURCE) == "true":
        source = "extended_resource"
    return str(is_allocated(claim)).lower(), str(has_admin_access(claim)).lower(), source
