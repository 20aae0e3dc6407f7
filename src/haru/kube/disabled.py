"""The disabled-field rule: what a switched-off feature gate governs is dropped without a word.

On create the fields of a disabled feature are dropped; on update they stay if the stored object already uses the
feature (anywhere, not just in the same place), so that an object written while the gate was on survives later updates.
Drivers must compare what they read back with what they sent. Source: KEP 4381 and the feature table of each KEP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind
from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True)
class Other:
    """A field, unless it has this value."""

    name: str
    value: str


# A path of field names; `[]` steps into every item of a list, `{}` into every value of a map. The last step is a set
# of names, so that siblings are looked for in one pass, or one name beside a value that needs no gate.
Path = tuple[str | frozenset[str] | Other, ...]


@dataclass(frozen=True, slots=True)
class Feature:
    """Fields that need every one of some gates, or that belong to a feature which was removed: without gates."""

    gates: tuple[str, ...]
    paths: tuple[Path, ...]
    names: tuple[bytes, ...]
    """The last names of the paths as they stand in JSON."""


def _feature(gates: str, *paths: str) -> Feature:
    """`paths` as dotted texts; the last name may be several, with bars between them, or one with `!` and a value."""
    found = tuple(_path(text) for text in paths)
    names = sorted({name for path in found for name in _names(path[-1])})
    return Feature(tuple(gates.split("+")), found, tuple(f'"{name}":'.encode() for name in names))


def _path(text: str) -> Path:
    *steps, last = text.split(".")
    name, _, value = last.partition("!")
    return (*steps, Other(name, value) if value else frozenset(last.split("|")))


def _names(last: str | frozenset[str] | Other) -> Iterable[str]:
    return (last.name,) if isinstance(last, Other) else last


def _removed(*paths: str) -> Feature:
    return replace(_feature("", *paths), gates=())


_BINDING = "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus"


def _slice_features(device: str) -> tuple[Feature, ...]:
    def of(*names: str) -> tuple[str, ...]:
        return tuple(f"spec.devices.[].{device}{name}" for name in names)

    return (
        _feature("DRADeviceTaints", *of("taints")),
        _feature(
            "DRAPartitionableDevices",
            "spec.sharedCounters|perDeviceNodeSelection",
            *of("consumesCounters|nodeName|nodeSelector|allNodes"),
        ),
        _feature(_BINDING, *of("bindsToNode|bindingConditions|bindingFailureConditions")),
        _feature("DRAConsumableCapacity", *of("allowMultipleAllocations", "capacity.{}.requestPolicy")),
        _feature("DRAListTypeAttributes", *of("attributes.{}.ints|bools|strings|versions")),
        _feature("DRANodeAllocatableResources", *of("nodeAllocatableResourceMappings")),
    )


def _claim_features(spec: str, exactly: str) -> tuple[Feature, ...]:
    requests = f"{spec}.devices.requests.[]"
    places = (f"{requests}.{exactly}", f"{requests}.firstAvailable.[].")
    results = "status.allocation.devices.results.[]"
    return (
        _feature("DRAPrioritizedList", f"{requests}.firstAvailable"),
        _feature("DRAAdminAccess", f"{requests}.{exactly}adminAccess", f"{results}.adminAccess"),
        _feature("DRADeviceTaints", *(f"{place}tolerations" for place in places), f"{results}.tolerations"),
        _feature(
            "DRAConsumableCapacity",
            *(f"{place}capacity" for place in places),
            f"{spec}.devices.constraints.[].distinctAttribute",
            f"{results}.shareID|consumedCapacity",
            "status.devices.[].shareID",
        ),
        _feature("DRAResourceClaimDeviceStatus", "status.devices"),
        _feature(
            _BINDING,
            "status.allocation.allocationTimestamp",
            f"{results}.bindingConditions|bindingFailureConditions",
        ),
    )


_GO_EMPTY = frozenset({"lifecycle"})
"""Structs that go with the last of their members."""
_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def _pod_spec_features(spec: str) -> tuple[Feature, ...]:
    containers = ("initContainers", "containers", "ephemeralContainers")
    projected = f"{spec}.volumes.[].projected.sources.[]"
    return (
        _feature("GenericWorkload", f"{spec}.schedulingGroup"),
        _feature("ClusterTrustBundleProjection", f"{projected}.clusterTrustBundle"),
        _feature("PodCertificateRequest", f"{projected}.podCertificate"),
        _feature(
            "ContainerRestartRules",
            f"{spec}.initContainers.[].restartPolicy!Always",
            f"{spec}.initContainers.[].restartPolicyRules",
            *(f"{spec}.{name}.[].restartPolicy|restartPolicyRules" for name in containers[1:]),
        ),
        _feature("ContainerStopSignals", *(f"{spec}.{name}.[].lifecycle.stopSignal" for name in containers)),
    )


_POD_FEATURES = (
    *_pod_spec_features("spec"),
    _feature("DRAExtendedResource", "status.extendedResourceClaimStatus"),
    _feature("DRANodeAllocatableResources", "status.nodeAllocatableResourceClaimStatuses"),
    _feature(
        "ResourceHealthStatus",
        *(f"status.{statuses}.[].allocatedResourcesStatus" for statuses in _STATUSES),
    ),
)


def _group_features(place: str) -> tuple[Feature, ...]:
    return (
        _feature("TopologyAwareWorkloadScheduling", f"{place}schedulingConstraints"),
        _feature("DRAWorkloadResourceClaims", f"{place}resourceClaims", "status.resourceClaimStatuses"),
        _feature("WorkloadAwarePreemption", f"{place}disruptionMode|priorityClassName|priority"),
    )


def _template_feature(place: str) -> tuple[Feature, ...]:
    return _pod_spec_features(f"{place}.spec")


_RESOURCE = "resource.k8s.io"
# By (group, kind), and by (group, version, kind) where a version's shape is its own.
_FEATURES: Mapping[tuple[str, ...], tuple[Feature, ...]] = {
    (_RESOURCE, "ResourceSlice"): _slice_features(""),
    (_RESOURCE, "v1beta1", "ResourceSlice"): _slice_features("basic."),
    (_RESOURCE, "ResourceClaim"): _claim_features("spec", "exactly."),
    (_RESOURCE, "v1beta1", "ResourceClaim"): _claim_features("spec", ""),
    (_RESOURCE, "ResourceClaimTemplate"): _claim_features("spec.spec", "exactly."),
    (_RESOURCE, "v1beta1", "ResourceClaimTemplate"): _claim_features("spec.spec", ""),
    (_RESOURCE, "DeviceClass"): (_feature("DRAExtendedResource", "spec.extendedResourceName"),),
    ("scheduling.k8s.io", "PodGroup"): _group_features("spec."),
    ("scheduling.k8s.io", "Workload"): _group_features("spec.podGroupTemplates.[]."),
    ("", "Pod"): _POD_FEATURES,
    ("", "Node"): (_removed("spec.configSource"), _removed("status.config")),
    ("", "PodTemplate"): _template_feature("template"),
    ("", "ReplicationController"): _template_feature("spec.template"),
    ("apps", "Deployment"): _template_feature("spec.template"),
    ("apps", "ReplicaSet"): _template_feature("spec.template"),
    ("apps", "StatefulSet"): (
        *_template_feature("spec.template"),
        _feature("MaxUnavailableStatefulSet", "spec.updateStrategy.rollingUpdate.maxUnavailable"),
    ),
    ("apps", "DaemonSet"): _template_feature("spec.template"),
    ("batch", "Job"): _template_feature("spec.template"),
    ("autoscaling", "HorizontalPodAutoscaler"): (
        _feature("HPAConfigurableTolerance", "spec.behavior.scaleUp.tolerance", "spec.behavior.scaleDown.tolerance"),
    ),
    ("coordination.k8s.io", "Lease"): (_feature("CoordinatedLeaderElection", "spec.strategy|preferredHolder"),),
    ("storage.k8s.io", "CSIDriver"): (_feature("VolumeLimitScaling", "spec.preventPodSchedulingIfMissing"),),
    ("batch", "CronJob"): _template_feature("spec.jobTemplate.spec.template"),
}


def drop_disabled_fields(obj: Obj, old: Obj | None, kind: Kind, gates: FeatureGates) -> Obj:
    """The object without the fields of disabled features; the object itself where there are none.

    `old` is the stored object on update (in the same version), None on create.
    """
    known = _FEATURES.get((kind.group, kind.version, kind.kind)) or _FEATURES.get((kind.group, kind.kind), ())
    features = [feature for feature in known if not (feature.gates and all(map(gates.enabled, feature.gates)))]
    if not features:
        return obj
    same = {name for name, part in old.items() if obj.get(name) == part} if old is not None else ()
    text = b""
    for feature in features:
        if old is not None and all(path[0] in same or path[0] not in obj for path in feature.paths):
            continue  # it was used as now, or is not used
        text = text or orjson.dumps(obj)
        if not any(name in text for name in feature.names):
            continue
        if old is not None and any(_has(old, path) for path in feature.paths):
            continue
        for path in feature.paths:
            obj = _without(obj, path)
    return obj


def _has(value: Any, path: Path) -> bool:
    """Whether something is set at `path`; empty lists and texts are not."""
    step, rest = path[0], path[1:]
    if isinstance(step, Other):
        return isinstance(value, dict) and value.get(step.name) not in (None, "", step.value)
    if isinstance(step, frozenset):
        return isinstance(value, dict) and any(value.get(name) not in (None, [], "") for name in step)
    return any(_has(child, rest) for child in _children(value, step))


def _children(value: Any, step: str) -> Iterable[Any]:
    if step == "[]":
        return value if isinstance(value, list) else ()
    if not isinstance(value, dict):
        return ()
    return value.values() if step == "{}" else (value.get(step),)


def _without(value: Any, path: Path) -> Any:
    """`value` without what is at `path`; `value` itself where nothing is there."""
    step, rest = path[0], path[1:]
    if step == "[]":
        return _changed_list(value, rest) if isinstance(value, list) else value
    if not isinstance(value, dict):
        return value
    if step == "{}":
        return _changed_values(value, rest)
    if isinstance(step, Other):
        return {name: item for name, item in value.items() if name != step.name} if _has(value, path) else value
    if isinstance(step, frozenset):
        return value if step.isdisjoint(value) else {name: item for name, item in value.items() if name not in step}
    child = value.get(step)
    changed = _without(child, rest)
    if changed is child:
        return value
    if not changed and step in _GO_EMPTY:
        return {name: item for name, item in value.items() if name != step}
    return {**value, step: changed}


def _changed_list(items: list[Any], path: Path) -> list[Any]:
    changed = [_without(item, path) for item in items]
    return items if all(a is b for a, b in zip(items, changed, strict=True)) else changed


def _changed_values(values: Obj, path: Path) -> Obj:
    last = path[0]
    if isinstance(last, frozenset) and all(map(last.isdisjoint, values.values())):
        return values  # by far the most frequent case: thousands of attributes, none of them a list
    return {name: _without(item, path) for name, item in values.items()}
