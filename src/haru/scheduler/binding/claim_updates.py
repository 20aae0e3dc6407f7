"""Compute the writes to ResourceClaims for a decision, and the claims after them. Pure.

Source: KEP-4381 (allocation, reservedFor, the finalizer that protects an allocated claim).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from sys import intern

from haru.engine.state import ClaimAllocation, ClaimReservation, MemberDecision, PodKey, pinned_node
from haru.kube.meta import Obj, allocation_of
from haru.kube.shared_parts import SharedParts, interned

FINALIZER = "resource.kubernetes.io/delete-protection"
CONFIRMED = "scheduler.haru.dev/confirmed-since"
_SELECTORS = SharedParts(interned)
"""The node selectors of allocations that are kept: those of a node's devices are one."""
ALLOCATION_FIELDS = ("reservedFor", "allocation", "devices")


class BindingError(Exception):
    """Raised when a member cannot be bound; the text says which write failed, and why."""


@dataclass(slots=True)
class ClaimWrite:
    """Hold the write to one claim for the members of one decision."""

    namespace: str
    name: str
    uid: str
    allocation: Obj | None = None
    consumers: list[Obj] = field(default_factory=list)
    pods: set[PodKey] = field(default_factory=set)

    @property
    def path(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def claim_writes(members: Iterable[MemberDecision]) -> dict[str, ClaimWrite]:
    """One write per claim: the allocation and every consumer that the decision adds."""
    writes: dict[str, ClaimWrite] = {}
    for member in members:
        items: tuple[ClaimAllocation | ClaimReservation, ...] = (*member.allocations, *member.reservations)
        for item in items:
            write = writes.setdefault(item.path, ClaimWrite(item.claim_namespace, item.claim_name, item.claim_uid))
            if isinstance(item, ClaimAllocation):
                write.allocation = item.allocation
            if all(known["uid"] != item.reserve_for["uid"] for known in write.consumers):
                write.consumers.append(item.reserve_for)
            write.pods.add(member.pod)
    return writes


def is_place_reserved(member: MemberDecision) -> bool:
    """Tell whether a claim, once written, keeps the member's place: it is reserved for it, and of use there alone.

    Not of a member with extended resources: its status is written in any case, and can say it.
    """
    return member.extended is None and any(
        made.reserve_for.get("resource") == "pods" and pinned_node(made.allocation) == member.node
        for made in member.allocations
    )


def reserved_claim(claim: Obj, write: ClaimWrite, timestamp: str | None) -> Obj:
    """Return the claim with finalizer, allocation and reservation. Raises BindingError if it changed meanwhile.

    `timestamp` becomes `allocationTimestamp` where the gate DRADeviceBindingConditions is on.
    """
    metadata, status = claim["metadata"], claim.get("status") or {}
    if metadata.get("uid") != write.uid:
        raise BindingError(f"claim {write.path} was replaced by another one of that name")
    if metadata.get("deletionTimestamp"):
        raise BindingError(f"claim {write.path} got deleted in the meantime")
    current = status.get("allocation")
    if current is None and write.allocation is None:
        raise BindingError(f"claim {write.path} lost its allocation in the meantime")
    if current is not None and write.allocation is not None and not same_allocation(current, write.allocation):
        raise BindingError(f"claim {write.path} got allocated elsewhere")
    allocation = current
    if allocation is None:
        allocation = dict(write.allocation or {})
        if timestamp and "allocationTimestamp" not in allocation:
            allocation["allocationTimestamp"] = intern(timestamp)
    reserved = list(status.get("reservedFor") or ())
    known = {entry.get("uid") for entry in reserved}
    reserved += [entry for entry in write.consumers if entry["uid"] not in known]
    finalizers = list(metadata.get("finalizers") or ())
    if current is None and FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    result = {**claim, "metadata": dict(metadata), "status": {**status, "allocation": allocation}}
    result["status"]["reservedFor"] = reserved
    if finalizers:
        result["metadata"]["finalizers"] = finalizers
    return result


def as_kept(answer: Obj, sent: Obj, known: Obj | None) -> Obj | None:
    """Return the answer to a write of a status, made of what was sent and of the claim as it is kept.

    None if it differs from them in more than its version and finalizers.
    """
    if known is None or answer.get("status") != sent["status"] or answer.get("spec") != known.get("spec"):
        return None
    metadata = answer["metadata"]
    written = {"resourceVersion": metadata.get("resourceVersion"), "managedFields": None}
    if "finalizers" in metadata:
        written["finalizers"] = [*map(intern, metadata["finalizers"])]
    kept = {**known["metadata"], **written}
    if kept != {**metadata, **written}:
        return None
    del kept["managedFields"]
    status, allocation = sent["status"], sent["status"]["allocation"]
    if "nodeSelector" in allocation:
        shared = {**allocation, "nodeSelector": _SELECTORS.part(allocation["nodeSelector"])}
        status = {**status, "allocation": shared}
    return {**known, "metadata": kept, "status": status}


def confirmed_claim(claim: Obj, began: int) -> Obj:
    """Return the claim with the revision at which the scheduler began that relies on it; nothing else changes."""
    metadata = claim["metadata"]
    annotations = {**(metadata.get("annotations") or {}), CONFIRMED: str(began)}
    return {**claim, "metadata": {**metadata, "annotations": annotations}}


def same_allocation(left: Obj, right: Obj) -> bool:
    """Tell whether two allocations are equal but for their timestamps."""
    return {**left, "allocationTimestamp": ""} == {**right, "allocationTimestamp": ""}


def freed_status(claim: Obj) -> Obj:
    """The claim's status without its allocation and everything that goes with one."""
    return {k: v for k, v in (claim.get("status") or {}).items() if k not in ALLOCATION_FIELDS}


def without_finalizer(claim: Obj) -> Obj:
    """Return the claim without the finalizer."""
    metadata = dict(claim["metadata"])
    metadata["finalizers"] = [f for f in metadata.get("finalizers") or () if f != FINALIZER]
    return {**claim, "metadata": metadata}


def users_of(claim: Obj) -> list[str]:
    """The paths of the pods that a claim is reserved for."""
    namespace = claim["metadata"].get("namespace", "")
    entries = (claim.get("status") or {}).get("reservedFor") or ()
    return [f"{namespace}/{entry.get('name')}" for entry in entries if entry.get("resource") == "pods"]


def is_protected_for_nothing(claim: Obj) -> bool:
    """Tell whether the claim has the finalizer but no allocation, after an unfinished write."""
    allocated = allocation_of(claim)
    return FINALIZER in (claim["metadata"].get("finalizers") or ()) and not allocated
