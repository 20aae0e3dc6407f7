"""Conversion between the served versions of a kind.

One version is the hub: v1 for resource.k8s.io, events.k8s.io/v1's shape for events is reached from core/v1, v2 for
autoscalers, v1alpha2 for PodGroups and Workloads (1.37 serves them as v1beta1). Everything else has equal shapes and
only changes its apiVersion. Objects are shared, not copied: what a conversion does not touch is the same dict in both.
Source: KEP 4381 (v1beta1 to v1), KEP 4671, the conversion functions of the API groups, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from haru.kube.autoscaling import autoscaler_to_v1, autoscaler_to_v2
from haru.kube.errors import internal_error
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

Step = Callable[[Obj], Obj]

_RESOURCE = "resource.k8s.io"


def convert(obj: Obj, to: Kind) -> Obj:
    """The object in the version of `to`; the object itself where it is in that version.

    Raises StatusError for a custom resource that a webhook converts: whoever needs that has to ask there.
    """
    api_version = str(obj.get("apiVersion") or "")
    if api_version == to.api_version:
        return obj
    if to.custom is not None and to.custom.converter is not None:
        raise internal_error(f"{to} is converted by a webhook, which was not asked")
    group, _, version = api_version.rpartition("/")
    return {**convert_part(obj, group, version, to), "apiVersion": to.api_version}


def convert_part(part: Obj, group: str, version: str, to: Kind) -> Obj:
    """Convert an object or a part of one (a merge patch) without touching its apiVersion."""
    converted = part
    leave = _TO_HUB.get((group, version, to.kind))
    if leave is not None:
        converted = leave(converted)
    enter = _FROM_HUB.get((to.group, to.version, to.kind))
    if enter is not None:
        converted = enter(converted)
    return converted


def to_hub(obj: Obj, kind: Kind) -> Obj:
    """The object in the shape of its group's hub version, with its own apiVersion."""
    leave = _TO_HUB.get((kind.group, kind.version, kind.kind))
    return obj if leave is None else leave(obj)


# --- resource.k8s.io -----------------------------------------------------------------------------------------------


_INLINE_REQUEST = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")


def _map_spec(obj: Obj, change: Step) -> Obj:
    spec = obj.get("spec")
    return {**obj, "spec": change(spec)} if isinstance(spec, dict) else obj


def _map_requests(claim_spec: Obj, change: Step) -> Obj:
    devices = claim_spec.get("devices") or {}
    requests = devices.get("requests")
    if not requests:
        return claim_spec
    return {**claim_spec, "devices": {**devices, "requests": [change(request) for request in requests]}}


def _wrap_request(request: Obj) -> Obj:
    """v1beta1 to v1: the inline fields move under `exactly`, if any of them says something."""
    exactly = {name: request[name] for name in _INLINE_REQUEST if name in request}
    rest = {name: value for name, value in request.items() if name not in _INLINE_REQUEST}
    if any(_says_something(name, value) for name, value in exactly.items()):
        rest["exactly"] = exactly
    return rest


def _says_something(name: str, value: Any) -> bool:
    """Texts and numbers of v1beta1 are unset when zero; lists, `adminAccess` and `capacity` when absent."""
    return value not in ("", 0) if name in ("deviceClassName", "allocationMode", "count") else value is not None


def _unwrap_request(request: Obj) -> Obj:
    if "exactly" not in request:
        return request
    flat = {name: value for name, value in request.items() if name != "exactly"}
    return {**flat, **(request["exactly"] or {})}


def _hoist_device(device: Obj) -> Obj:
    """v1beta1 to v1: what `basic` holds moves up to the device."""
    if "basic" not in device:
        return device
    return {"name": device.get("name", ""), **(device["basic"] or {})}


def _nest_device(device: Obj) -> Obj:
    return {"name": device.get("name", ""), "basic": {key: value for key, value in device.items() if key != "name"}}


def _slice_spec_to_v1(spec: Obj) -> Obj:
    out = {key: value for key, value in spec.items() if (key, value) not in (("nodeName", ""), ("allNodes", False))}
    if spec.get("devices") is not None:
        out["devices"] = [_hoist_device(device) for device in spec["devices"]]
    return out


def _slice_spec_to_v1beta1(spec: Obj) -> Obj:
    if spec.get("devices") is None:
        return spec
    return {**spec, "devices": [_nest_device(device) for device in spec["devices"]]}


def _claim_to_v1(claim: Obj) -> Obj:
    return _map_spec(claim, lambda spec: _map_requests(spec, _wrap_request))


def _claim_to_v1beta1(claim: Obj) -> Obj:
    return _map_spec(claim, lambda spec: _map_requests(spec, _unwrap_request))


def _template_to_v1(template: Obj) -> Obj:
    return _map_spec(template, _claim_to_v1)


def _template_to_v1beta1(template: Obj) -> Obj:
    return _map_spec(template, _claim_to_v1beta1)


def _slice_to_v1(resource_slice: Obj) -> Obj:
    return _map_spec(resource_slice, _slice_spec_to_v1)


def _slice_to_v1beta1(resource_slice: Obj) -> Obj:
    return _map_spec(resource_slice, _slice_spec_to_v1beta1)


# --- scheduling.k8s.io ---------------------------------------------------------------------------------------------

_SCHEDULING = "scheduling.k8s.io"
_CONDITION_TYPES = {"PodGroupInitiallyScheduled": "PodGroupScheduled"}
_NEWER_CONDITION_TYPES = {old: new for new, old in _CONDITION_TYPES.items()}
_DISRUPTION_MODES = {"single": "Pod", "all": "PodGroup"}


def _group_to_v1alpha2(group: Obj) -> Obj:
    out = _map_spec(group, _group_spec_to_v1alpha2)
    return _with_condition_types(out, _CONDITION_TYPES)


def _group_to_v1beta1(group: Obj) -> Obj:
    out = _map_spec(group, _group_spec_to_v1beta1)
    return _with_condition_types(out, _NEWER_CONDITION_TYPES)


def _group_spec_to_v1alpha2(spec: Obj) -> Obj:
    out = _disruption_to_v1alpha2({key: value for key, value in spec.items() if key != "workloadRef"})
    if reference := spec.get("workloadRef"):
        workload = {
            "workloadName": reference.get("workloadName"),
            "podGroupTemplateName": reference.get("templateName"),
        }
        out["podGroupTemplateRef"] = {"workload": workload}
    return out


def _group_spec_to_v1beta1(spec: Obj) -> Obj:
    out = _disruption_to_v1beta1({key: value for key, value in spec.items() if key != "podGroupTemplateRef"})
    if workload := (spec.get("podGroupTemplateRef") or {}).get("workload"):
        out["workloadRef"] = {
            "workloadName": workload.get("workloadName"),
            "templateName": workload.get("podGroupTemplateName"),
        }
    return out


def _disruption_to_v1alpha2(spec: Obj) -> Obj:
    mode = spec.get("disruptionMode")
    if not isinstance(mode, dict):
        return spec
    return {**spec, "disruptionMode": next((_DISRUPTION_MODES[key] for key in _DISRUPTION_MODES if key in mode), "Pod")}


def _disruption_to_v1beta1(spec: Obj) -> Obj:
    mode = spec.get("disruptionMode")
    if not isinstance(mode, str):
        return spec
    return {**spec, "disruptionMode": {"all" if mode == "PodGroup" else "single": {}}}


def _with_condition_types(group: Obj, names: Mapping[str, str]) -> Obj:
    status = group.get("status")
    if not isinstance(status, dict) or not status.get("conditions"):
        return group
    conditions = [{**entry, "type": names.get(entry.get("type"), entry.get("type"))} for entry in status["conditions"]]
    return {**group, "status": {**status, "conditions": conditions}}


def _map_templates(workload: Obj, change: Step) -> Obj:
    def changed(spec: Obj) -> Obj:
        templates = spec.get("podGroupTemplates")
        return {**spec, "podGroupTemplates": [change(template) for template in templates]} if templates else spec

    return _map_spec(workload, changed)


def _workload_to_v1alpha2(workload: Obj) -> Obj:
    return _map_templates(workload, _disruption_to_v1alpha2)


def _workload_to_v1beta1(workload: Obj) -> Obj:
    return _map_templates(workload, _disruption_to_v1beta1)


# --- events --------------------------------------------------------------------------------------------------------

_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_EVENT_NAMES = {new: old for old, new in _EVENT_NAMES.items()}


def _event_to_events(event: Obj) -> Obj:
    return {_EVENT_NAMES.get(name, name): value for name, value in event.items()}


def _event_to_core(event: Obj) -> Obj:
    return {_CORE_EVENT_NAMES.get(name, name): value for name, value in event.items()}


_TO_HUB: Mapping[tuple[str, str, str], Step] = {
    (_RESOURCE, "v1beta1", "ResourceClaim"): _claim_to_v1,
    (_RESOURCE, "v1beta1", "ResourceClaimTemplate"): _template_to_v1,
    (_RESOURCE, "v1beta1", "ResourceSlice"): _slice_to_v1,
    (_SCHEDULING, "v1beta1", "PodGroup"): _group_to_v1alpha2,
    (_SCHEDULING, "v1beta1", "Workload"): _workload_to_v1alpha2,
    ("", "v1", "Event"): _event_to_events,
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): autoscaler_to_v2,
}
_FROM_HUB: Mapping[tuple[str, str, str], Step] = {
    (_RESOURCE, "v1beta1", "ResourceClaim"): _claim_to_v1beta1,
    (_RESOURCE, "v1beta1", "ResourceClaimTemplate"): _template_to_v1beta1,
    (_RESOURCE, "v1beta1", "ResourceSlice"): _slice_to_v1beta1,
    (_SCHEDULING, "v1beta1", "PodGroup"): _group_to_v1beta1,
    (_SCHEDULING, "v1beta1", "Workload"): _workload_to_v1beta1,
    ("", "v1", "Event"): _event_to_core,
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): autoscaler_to_v1,
}
