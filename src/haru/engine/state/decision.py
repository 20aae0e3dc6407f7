"""A decision is a value: who goes where with which devices, and why not, as typed objects with numbers.

Whoever holds a Decision enacts it: the live scheduler through the API, a simulation on its model, a test on nothing.
Reasons are gathered where the decision is made; their types are a closed list that docs/reasons.md explains, and which
is added to but never renamed. Texts follow kube-scheduler 1.36 where it has one.
Source: KEP-4671 (PodGroup cycle), KEP-4381 (allocation results).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from haru.engine.dra.diagnosis.reasons import RefusalType
from haru.kube.meta import Obj

Status = Literal["scheduled", "nominated", "unschedulable", "error"]
"""`nominated`: nobody is bound now; the places are free once the evictions of the decision are done."""

ReasonType = Literal[
    # Held before any attempt
    "Gated",
    "PodGroupMissing",
    "TooFewMembers",
    "GangSchedulingOff",
    # The group
    "Quorum",
    "SchedulerNameMismatch",
    "GroupError",
    "TopologyDomain",
    # Nodes
    "NoNodes",
    "NodeUnschedulable",
    "NodeNameMismatch",
    "NodeTaints",
    "NodeAffinityMismatch",
    "NodeLabelMissing",
    "TopologyKeyMissing",
    "MembersPinned",
    "PortsTaken",
    "InsufficientResource",
    "TooManyPods",
    "FeaturesMissing",
    "VolumeMissing",
    "VolumeUnbound",
    "VolumeInUse",
    "VolumeNodeAffinity",
    "VolumeNoMatch",
    "StorageClassMissing",
    "NoProvisioner",
    "StorageExhausted",
    "DiskConflict",
    "TooManyVolumes",
    "PodAffinity",
    "AffinityPodMissing",
    "PodAntiAffinity",
    "ExistingPodAntiAffinity",
    "TopologySpread",
    # Claims
    "ClaimNotCreated",
    "ClaimMissing",
    "ClaimDeleting",
    "ClaimForeign",
    "ClaimInFlight",
    "ClaimNotOnNode",
    "ClaimReservedFull",
    "BindingConditions",
    "ClaimNotShareable",
    "ClaimUnreferenced",
    "PodLevelExceeded",
    # Devices
    RefusalType,
    "DevicesScattered",
    # The attempt itself failed
    "GaveUp",
    # States that explain reports
    "Running",
    "Starting",
    "Waiting",
    "DevicesNotReady",
    "Completed",
    "Failed",
    "Terminating",
    "Suspended",
    "PodsMissing",
    "NoGang",
    "QuotaExceeded",
    "Allocated",
    "Unused",
    "DeviceAllocatedTwice",
    "NominatedNode",
    "Reserved",
    "Stranded",
    "NothingWaits",
    "NotReadable",
    "SchedulerUnknown",
    "FailedCreate",
    # After a pod has its place
    "ImagePullBackOff",
    "ContainerNotStarted",
    "CrashLoopBackOff",
    "OOMKilled",
    "FailedPrepareDynamicResources",
    "DeviceUnhealthy",
    "EvictionWaits",
]

REASON_TYPES: tuple[str, ...] = get_args(ReasonType)


def object_path(obj: Obj) -> str:
    """`namespace/name`, or `name` alone for objects without a namespace."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


def namespaced_name(obj: Obj) -> str:
    """`namespace/name` of a namespaced object, `default` where none is written."""
    return f"{obj['metadata'].get('namespace') or 'default'}/{obj['metadata']['name']}"


class PodKey(NamedTuple):
    """A pod: its place in the API and its identity."""

    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class GroupKey(NamedTuple):
    """A PodGroup, which pods name by name (never by UID)."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Reason:
    """One cause: a type of the closed list, a sentence, and the numbers and names behind it."""

    type: ReasonType
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> Obj:
        """The reason as it appears in JSON output: `type`, `message` and the data beside them."""
        return {"type": self.type, "message": self.message, **self.data}


@dataclass(frozen=True, slots=True)
class FilterFailure:
    """Hold the refusal of one node by one plugin. `resolvable`: evicting pods from the node might help."""

    plugin: str
    reason: Reason
    resolvable: bool


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the nodes said to a pod that none of them took: the failures of each node, by name.

    `nodes` is empty if PreFilter rejected the pod, for the reason `rejection`. `error` is the selector's error that
    ended the attempt; the failures are then those of the other filters.
    Source: kube-scheduler's `Diagnosis.NodeToStatus`.
    """

    pod: PodKey
    nodes: Mapping[str, Sequence[FilterFailure]]
    error: str = ""
    rejection: Reason | None = None


# Not frozen, which would take thrice as long to make; never changed.
@dataclass(slots=True, unsafe_hash=True)
class ClaimAllocation:
    """An allocation to be written: a claim's `status.allocation`, and the entry of `reservedFor` that goes with it.

    `new_claim` is the claim itself where it is to be created first, for extended resources (KEP-5004); name and UID
    are stand-ins then, the real ones come with the object.
    """

    claim_namespace: str
    claim_name: str
    claim_uid: str
    allocation: Obj
    reserve_for: Obj
    new_claim: Obj | None = None

    @property
    def path(self) -> str:
        """`namespace/name` of the claim."""
        return f"{self.claim_namespace}/{self.claim_name}"


@dataclass(frozen=True, slots=True)
class ClaimReservation:
    """A claim that is allocated already, or by an earlier member of the decision, and that this pod uses too."""

    claim_namespace: str
    claim_name: str
    claim_uid: str
    reserve_for: Obj

    @property
    def path(self) -> str:
        """`namespace/name` of the claim."""
        return f"{self.claim_namespace}/{self.claim_name}"


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """The claim behind a pod's extended resources, by path, and which container gets what of it (KEP-5004)."""

    path: str
    mappings: tuple[Obj, ...]


@dataclass(frozen=True, slots=True)
class VolumeBinding:
    """A volume claim that is to be bound before its pod is: to a volume, or (empty) to one provisioned for the node."""

    claim_namespace: str
    claim_name: str
    claim_uid: str
    volume: str = ""

    @property
    def path(self) -> str:
        """`namespace/name` of the claim."""
        return f"{self.claim_namespace}/{self.claim_name}"


# Not frozen, which would take thrice as long to make; never changed.
@dataclass(slots=True, unsafe_hash=True)
class MemberDecision:
    """What becomes of one pod.

    `allocations` are the claims that this member's placement allocates; `reservations` those that it joins. `plugins`
    names who rejected it, as kube-scheduler names its plugins, so that the queue knows which events may help.
    `claimed` is what its devices take of the node, for `status.nodeAllocatableResourceClaimStatuses` (KEP-5517).
    `volumes` are its volume claims that wait for a node (WaitForFirstConsumer).
    Of a nominated member node, allocations and reservations are those it is to have once the victims are gone.
    """

    pod: PodKey
    status: Status
    node: str | None = None
    allocations: tuple[ClaimAllocation, ...] = ()
    reservations: tuple[ClaimReservation, ...] = ()
    reasons: tuple[Reason, ...] = ()
    message: str = ""
    plugins: tuple[str, ...] = ()
    extended: ExtendedClaim | None = None
    claimed: tuple[Obj, ...] = ()
    volumes: tuple[VolumeBinding, ...] = ()

    @property
    def joined(self) -> dict[str, Obj]:
        """The entries of `reservedFor` of the claims that it joins, by the claims' paths."""
        return {one.path: one.reserve_for for one in self.reservations}


# Not frozen, which would take thrice as long to make; never changed.
@dataclass(slots=True, unsafe_hash=True)
class Eviction:
    """A running pod that has to go. `unit` names its PodGroup where that goes as a whole (disruptionMode PodGroup)."""

    pod: PodKey
    node: str
    unit: GroupKey | None = None


# Not frozen, which would take thrice as long to make; never changed.
@dataclass(slots=True, unsafe_hash=True)
class Decision:
    """What becomes of a group, or of a single pod (`group` is None): nothing is bound unless `status` is scheduled.

    `evictions` are there only where `status` is nominated, and then all of them are needed (KEP-5710). `version` is the
    snapshot's, so that a decision can be replayed on the state it was made from. `again_at` (seconds since the epoch)
    is when time alone may change the answer. `diagnosis` is that of the first member if no member has a place; it is
    no part of the decision's value.
    """

    group: GroupKey | None
    status: Status
    message: str = ""
    members: tuple[MemberDecision, ...] = ()
    reasons: tuple[Reason, ...] = ()
    version: int = 0
    evictions: tuple[Eviction, ...] = ()
    again_at: float | None = None
    diagnosis: Diagnosis | None = field(default=None, compare=False, repr=False)

    @property
    def nominated(self) -> tuple[MemberDecision, ...]:
        """The members whose places will be free once the evicted are gone."""
        return tuple(m for m in self.members if m.status == "nominated")

    @property
    def placed(self) -> tuple[MemberDecision, ...]:
        """The members that are to be bound."""
        return tuple(m for m in self.members if m.status == "scheduled")
