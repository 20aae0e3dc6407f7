"""Feature gates: the switches of Kubernetes 1.36 that this code honours, with their stage and default there.

A `FeatureGates` is immutable. What is not overridden has its default; a gate whose requirement is off is off as well,
and turning it on explicitly without the requirement is an error. `AllAlpha` and `AllBeta` stand for a whole stage;
a gate named beside them wins. Source: the feature tables of the KEPs that each gate belongs to.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Stage = Literal["ALPHA", "BETA", "GA"]


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature gate as 1.36 has it."""

    name: str
    stage: Stage
    default: bool
    locked: bool = False
    requires: tuple[str, ...] = ()


_DRA = ("DynamicResourceAllocation",)
_WORKLOAD = ("GenericWorkload",)

_TABLE: tuple[Gate, ...] = (
    Gate("APIServerIdentity", "BETA", True),
    Gate("CRIListStreaming", "ALPHA", False),
    Gate("DRAAdminAccess", "GA", True, locked=True),
    Gate("DRAConsumableCapacity", "BETA", True, requires=_DRA),
    Gate("DRADeviceBindingConditions", "BETA", True, requires=(*_DRA, "DRAResourceClaimDeviceStatus")),
    Gate("DRADeviceTaintRules", "BETA", False, requires=("DRADeviceTaints",)),
    Gate("DRADeviceTaints", "BETA", True, requires=_DRA),
    Gate("DRAExtendedResource", "BETA", True, requires=_DRA),
    Gate("DRAListTypeAttributes", "ALPHA", False, requires=_DRA),
    Gate("DRANodeAllocatableResources", "ALPHA", False, requires=_DRA),
    Gate("DRAPartitionableDevices", "BETA", True, requires=_DRA),
    Gate("DRAPrioritizedList", "GA", True, requires=_DRA),
    Gate("DRAResourceClaimDeviceStatus", "BETA", True, requires=_DRA),
    Gate("DRAResourceClaimGranularStatusAuthorization", "BETA", True, requires=_DRA),
    Gate("DRAResourcePoolStatus", "ALPHA", False, requires=_DRA),
    Gate("DRASchedulerFilterTimeout", "BETA", True, requires=_DRA),
    Gate("DRAWorkloadResourceClaims", "ALPHA", False, requires=(*_DRA, *_WORKLOAD)),
    Gate("DynamicResourceAllocation", "GA", True, locked=True),
    Gate("ExternalServiceAccountTokenSigner", "GA", True, locked=True),
    Gate("GangScheduling", "ALPHA", False, requires=_WORKLOAD),
    Gate("GenericWorkload", "ALPHA", False),
    Gate("KubeletFineGrainedAuthz", "GA", True, locked=True),
    Gate("KubeletPSI", "GA", True, locked=True),
    Gate("KubeletPodResourcesDynamicResources", "GA", True, locked=True),
    Gate("KubeletPodResourcesGet", "GA", True, locked=True),
    Gate("LocalStorageCapacityIsolationFSQuotaMonitoring", "BETA", False, requires=("UserNamespacesSupport",)),
    Gate("MemoryQoS", "ALPHA", False),
    Gate("MutablePodResourcesForSuspendedJobs", "BETA", True),
    Gate("MutableSchedulingDirectivesForSuspendedJobs", "BETA", True),
    Gate("MutatingAdmissionPolicy", "GA", True),
    Gate("NodeDeclaredFeatures", "BETA", True),
    Gate("OpportunisticBatching", "BETA", True),
    Gate("PodAndContainerStatsFromCRI", "ALPHA", False),
    Gate("PodLevelResources", "BETA", True),
    Gate("ResourceHealthStatus", "BETA", True),
    Gate("SchedulerAsyncPreemption", "BETA", True),
    Gate("SchedulerPopFromBackoffQ", "BETA", True),
    Gate("SchedulerPreEnqueuePodStatus", "ALPHA", False),
    Gate("StorageCapacityScoring", "ALPHA", False),
    Gate("TopologyAwareWorkloadScheduling", "ALPHA", False, requires=_WORKLOAD),
    Gate("UnknownVersionInteroperabilityProxy", "BETA", True, requires=("APIServerIdentity",)),
    Gate("UserNamespacesHostNetworkSupport", "ALPHA", False, requires=("UserNamespacesSupport",)),
    Gate("UserNamespacesSupport", "GA", True, locked=True),
    Gate("WorkloadAwarePreemption", "ALPHA", False, requires=("GangScheduling",)),
    Gate("WorkloadWithJob", "ALPHA", False, requires=_WORKLOAD),
)
_GATES: dict[str, Gate] = {gate.name: gate for gate in _TABLE}
_STAGES: dict[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}

# What `haru up` turns on beyond the defaults: everything about accelerators and gangs.
_ACCELERATOR = (
    "DRADeviceTaintRules",
    "DRAListTypeAttributes",
    "DRANodeAllocatableResources",
    "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims",
    "GangScheduling",
    "GenericWorkload",
    "SchedulerPreEnqueuePodStatus",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
    "WorkloadWithJob",
)

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class FeatureGates:
    """Which gates are on. Equal overrides are equal gates."""

    __slots__ = ("_enabled", "_overrides")

    def __init__(self, overrides: Mapping[str, bool] | None = None) -> None:
        self._overrides = dict(overrides or {})
        for name, value in self._overrides.items():
            _check(name, value)
        self._enabled: dict[str, bool] = {}
        for gate in _TABLE:
            self._enabled[gate.name] = self._wanted(gate)
        for gate in _TABLE:
            self._apply_requirements(gate)

    @classmethod
    def parse(cls, text: str) -> FeatureGates:
        """From `A=true,B=false`, the form of `--feature-gates`; ValueError names the gate and the remedy."""
        return cls(parse_overrides(text))

    @classmethod
    def accelerator_defaults(cls, overrides: Mapping[str, bool] | None = None) -> FeatureGates:
        """The gates of `haru up`: those of accelerators and gangs on; what depends on a gate turned off is off too."""
        given = dict(overrides or {})
        preset = {name: True for name in _ACCELERATOR if name not in given}
        off = {name for name, value in given.items() if not value}
        while True:
            lost = {name for name in preset if off & set(_GATES[name].requires)}
            if not lost:
                return cls({**preset, **given})
            off |= lost
            preset = {name: True for name in preset if name not in lost}

    @staticmethod
    def known() -> tuple[Gate, ...]:
        """Every gate, in the order of names."""
        return _TABLE

    @property
    def overrides(self) -> Mapping[str, bool]:
        """What was asked for explicitly."""
        return dict(self._overrides)

    def enabled(self, name: str) -> bool:
        """Whether the gate is on; KeyError for a name that is not in the table."""
        return self._enabled[name]

    def all(self) -> Mapping[str, bool]:
        """Every gate's state, by name."""
        return dict(self._enabled)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureGates) and other._enabled == self._enabled

    def __hash__(self) -> int:
        return hash(tuple(self._enabled.items()))

    def __repr__(self) -> str:
        listed = ",".join(f"{name}={str(value).lower()}" for name, value in sorted(self._overrides.items()))
        return f"FeatureGates({listed})"

    def _wanted(self, gate: Gate) -> bool:
        if gate.name in self._overrides:
            return self._overrides[gate.name]
        for group, stage in _STAGES.items():
            if gate.stage == stage and group in self._overrides:
                return self._overrides[group]
        return gate.default

    def _apply_requirements(self, gate: Gate) -> None:
        """Turn the gate off when something it needs is off; refuse when it was asked for by name."""
        for need in gate.requires:
            self._apply_requirements(_GATES[need])
            if self._enabled[gate.name] and not self._enabled[need]:
                if self._overrides.get(gate.name):
                    raise ValueError(
                        f"feature gate {gate.name} needs {need}, which is off: add {need}=true or drop {gate.name}=true"
                    )
                self._enabled[gate.name] = False


def _check(name: str, value: bool) -> None:
    if name in _STAGES:
        return
    gate = _GATES.get(name)
    if gate is None:
        raise ValueError(f"unrecognized feature gate: {name}{_did_you_mean(name, [*_GATES, *_STAGES])}")
    if gate.locked and value != gate.default:
        locked = str(gate.default).lower()
        raise ValueError(
            f"cannot set feature gate {name} to {str(value).lower()}, feature is locked to {locked}: drop {name} "
            f"from --feature-gates"
        )


def _did_you_mean(name: str, candidates: Iterable[str]) -> str:
    folded = {c.lower(): c for c in candidates}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f" (did you mean {folded[close[0]]}?)" if close else ""


def parse_overrides(text: str) -> dict[str, bool]:
    """`A=true,B=false` as a mapping; the last of equal names wins, blanks and empty items are passed over."""
    overrides: dict[str, bool] = {}
    for item in text.split(","):
        pair = item.strip()
        if not pair:
            continue
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for feature gate {name}: write {name}=true or {name}=false")
        if value not in _TRUE and value not in _FALSE:
            raise ValueError(f"invalid value of {name}={value}: write {name}=true or {name}=false")
        _check(name, value in _TRUE)
        overrides[name] = value in _TRUE
    return overrides
