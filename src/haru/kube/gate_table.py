"""The feature gates that this code or its documents know, with their stage and default in every version served.

`haru apiserver` may take an older version's place (emulation): a gate then has the stage and the default that it had
there, and one that came later does not exist. A line of the table is a gate's name, its specifications by the version
that brought them (only the last before each version served), and what it requires.
Source: the versioned feature tables of Kubernetes 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

Stage = Literal["ALPHA", "BETA", "GA"]

NEWEST = 36
"""The minor version of Kubernetes 1 that Haru is."""
OLDEST = 33
"""The oldest minor version whose place its API server can take."""
OLDEST_SERVER = 32
"""The oldest minor version of a server that its components can work with."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature gate as one version has it."""

    name: str
    stage: Stage
    default: bool
    locked: bool = False
    requires: tuple[str, ...] = ()


_DRA = ("DynamicResourceAllocation",)
_WORKLOAD = ("GenericWorkload",)
_USER_NAMESPACES = ("UserNamespacesSupport",)

# Name, specifications ("1.MINOR STAGE on|off [locked]", oldest first), requirements.
_TABLE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("APIServerIdentity", ("1.26 BETA on",), ()),
    ("CRIListStreaming", ("1.36 ALPHA off",), ()),
    ("DRAAdminAccess", ("1.32 ALPHA off", "1.34 BETA on", "1.36 GA on locked"), ()),
    ("DRAConsumableCapacity", ("1.34 ALPHA off", "1.36 BETA on"), _DRA),
    (
        "DRADeviceBindingConditions",
        ("1.34 ALPHA off", "1.36 BETA on"),
        (*_DRA, "DRAResourceClaimDeviceStatus"),
    ),
    ("DRADeviceTaintRules", ("1.35 ALPHA off", "1.36 BETA off"), ("DRADeviceTaints",)),
    ("DRADeviceTaints", ("1.33 ALPHA off", "1.36 BETA on"), _DRA),
    ("DRAExtendedResource", ("1.34 ALPHA off", "1.36 BETA on"), _DRA),
    ("DRAListTypeAttributes", ("1.36 ALPHA off",), _DRA),
    ("DRANodeAllocatableResources", ("1.36 ALPHA off",), _DRA),
    ("DRAPartitionableDevices", ("1.33 ALPHA off", "1.36 BETA on"), _DRA),
    ("DRAPrioritizedList", ("1.33 ALPHA off", "1.34 BETA on", "1.36 GA on"), _DRA),
    ("DRAResourceClaimDeviceStatus", ("1.32 ALPHA off", "1.33 BETA on"), _DRA),
    ("DRAResourceClaimGranularStatusAuthorization", ("1.36 BETA on",), _DRA),
    ("DRAResourcePoolStatus", ("1.36 ALPHA off",), _DRA),
    ("DRASchedulerFilterTimeout", ("1.34 BETA on",), _DRA),
    ("DRAWorkloadResourceClaims", ("1.36 ALPHA off",), (*_DRA, *_WORKLOAD)),
    ("DynamicResourceAllocation", ("1.32 BETA off", "1.34 GA on", "1.35 GA on locked"), ()),
    ("ExternalServiceAccountTokenSigner", ("1.32 ALPHA off", "1.34 BETA on", "1.36 GA on locked"), ()),
    ("GangScheduling", ("1.35 ALPHA off",), _WORKLOAD),
    ("GenericWorkload", ("1.35 ALPHA off",), ()),
    ("KubeletFineGrainedAuthz", ("1.32 ALPHA off", "1.33 BETA on", "1.36 GA on locked"), ()),
    ("KubeletPSI", ("1.33 ALPHA off", "1.34 BETA on", "1.36 GA on locked"), ()),
    ("KubeletPodResourcesDynamicResources", ("1.27 ALPHA off", "1.34 BETA on", "1.36 GA on locked"), ()),
    ("KubeletPodResourcesGet", ("1.27 ALPHA off", "1.34 BETA on", "1.36 GA on locked"), ()),
    ("LocalStorageCapacityIsolationFSQuotaMonitoring", ("1.31 BETA off",), _USER_NAMESPACES),
    ("MemoryQoS", ("1.22 ALPHA off",), ()),
    ("MutablePodResourcesForSuspendedJobs", ("1.35 ALPHA off", "1.36 BETA on"), ()),
    ("MutableSchedulingDirectivesForSuspendedJobs", ("1.35 ALPHA off", "1.36 BETA on"), ()),
    ("MutatingAdmissionPolicy", ("1.32 ALPHA off", "1.34 BETA off", "1.36 GA on"), ()),
    ("NodeDeclaredFeatures", ("1.35 ALPHA off", "1.36 BETA on"), ()),
    ("OpportunisticBatching", ("1.35 BETA on",), ()),
    ("PodAndContainerStatsFromCRI", ("1.23 ALPHA off",), ()),
    ("PodLevelResources", ("1.32 ALPHA off", "1.34 BETA on"), ()),
    ("PodTopologyLabelsAdmission", ("1.33 ALPHA off", "1.35 BETA on"), ()),
    ("RemoteRequestHeaderUID", ("1.32 ALPHA off", "1.33 BETA on"), ()),
    ("ResourceHealthStatus", ("1.31 ALPHA off", "1.36 BETA on"), ()),
    ("SchedulerAsyncPreemption", ("1.32 ALPHA off", "1.33 BETA on"), ()),
    ("SchedulerPopFromBackoffQ", ("1.33 BETA on",), ()),
    ("SchedulerPreEnqueuePodStatus", ("1.36 ALPHA off",), ()),
    ("StorageCapacityScoring", ("1.33 ALPHA off",), ()),
    ("TopologyAwareWorkloadScheduling", ("1.36 ALPHA off",), _WORKLOAD),
    ("UnknownVersionInteroperabilityProxy", ("1.28 ALPHA off", "1.36 BETA on"), ("APIServerIdentity",)),
    ("UserNamespacesHostNetworkSupport", ("1.35 ALPHA off",), _USER_NAMESPACES),
    ("UserNamespacesSupport", ("1.30 BETA off", "1.33 BETA on", "1.36 GA on locked"), ()),
    ("WorkloadAwarePreemption", ("1.36 ALPHA off",), ("GangScheduling",)),
    ("WorkloadWithJob", ("1.36 ALPHA off",), _WORKLOAD),
)
NAMES: tuple[str, ...] = tuple(name for name, _, _ in _TABLE)
_STAGES: dict[str, Stage] = {"ALPHA": "ALPHA", "BETA": "BETA", "GA": "GA"}


@lru_cache(maxsize=8)
def gates_of(minor: int = NEWEST) -> MappingProxyType[str, Gate]:
    """The gates that version 1.`minor` has, by name and in its order. ValueError for a version that is not served."""
    check_minor(minor)
    found: dict[str, Gate] = {}
    for name, specifications, requires in _TABLE:
        for text in specifications:
            since, stage, state, *locked = text.split()
            if int(since.partition(".")[2]) <= minor:
                found[name] = Gate(name, _STAGES[stage], state == "on", bool(locked), requires)
    return MappingProxyType(found)


def check_minor(minor: int) -> None:
    """Raise ValueError for a version that the table does not have."""
    if not OLDEST_SERVER <= minor <= NEWEST:
        raise ValueError(f"version 1.{minor} is not between [1.{OLDEST_SERVER}, 1.{NEWEST}.0]")
