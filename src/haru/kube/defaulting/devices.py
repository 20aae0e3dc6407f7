"""Defaults of resource.k8s.io (KEP 4381, 4816, 5055): requests, tolerations, taints.

Slices are many and large, so here nothing is copied but what changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from haru.kube.meta import Obj

GROUP = "resource.k8s.io"


def fill(obj: Obj, kind: str, version: str, now: str) -> Obj:
    """The object with defaults; the same object where nothing was missing."""
    # In Go these are no pointers: an object always has them.
    obj = _with_object(obj, "spec")
    if kind == "ResourceClaimTemplate":
        obj = _inside(obj, ("spec",), lambda spec: _with_object(spec, "spec"))
    if kind == "ResourceSlice":
        return _inside(obj, ("spec",), lambda spec: _slice_spec(spec, version, now))
    if kind == "ResourceClaim":
        filled = _inside(obj, ("spec",), lambda spec: _claim_spec(spec, version))
        return _inside(filled, ("status", "allocation", "devices"), _allocation)
    if kind == "ResourceClaimTemplate":
        return _inside(obj, ("spec", "spec"), lambda spec: _claim_spec(spec, version))
    if kind == "DeviceTaintRule":
        return _inside(obj, ("spec", "taint"), lambda taint: _taint(taint, now))
    if kind == "ResourcePoolStatusRequest":
        return _inside(obj, ("spec",), lambda spec: _with_missing(spec, {"limit": 100}))
    return obj


def _inside(obj: Obj, path: tuple[str, ...], change: Callable[[Obj], Obj]) -> Obj:
    """`obj` with `change` applied to the object at `path`, if there is one there."""
    if not path:
        return change(obj)
    child = obj.get(path[0])
    if not isinstance(child, dict):
        return obj
    changed = _inside(child, path[1:], change)
    return obj if changed is child else {**obj, path[0]: changed}


def _with_object(obj: Obj, name: str) -> Obj:
    return {**obj, name: {}} if obj.get(name) is None else obj


def _with_missing(obj: Obj, values: Mapping[str, Any]) -> Obj:
    missing = {name: value for name, value in values.items() if obj.get(name) in (None, "")}
    return {**obj, **missing} if missing else obj


def _each(obj: Obj, name: str, change: Callable[[Obj], Obj]) -> Obj:
    """`obj` with `change` applied to the items of the list `name`."""
    items = obj.get(name)
    if not items:
        return obj
    changed = [change(item) for item in items]
    return obj if all(a is b for a, b in zip(items, changed, strict=True)) else {**obj, name: changed}


def _slice_spec(spec: Obj, version: str, now: str) -> Obj:
    basic = version == "v1beta1"
    devices = spec.get("devices")
    if not devices or not any(_has_gaps(d.get("basic") or {} if basic else d) for d in devices):
        return spec

    def change(device: Obj) -> Obj:
        return _inside(device, ("basic",) if basic else (), lambda d: _device(d, now))

    return _each(spec, "devices", change)


def _has_gaps(device: Obj) -> bool:
    return "taints" in device or "nodeAllocatableResourceMappings" in device


def _device(device: Obj, now: str) -> Obj:
    device = _each(device, "taints", lambda taint: _taint(taint, now))
    mappings = device.get("nodeAllocatableResourceMappings")
    if not mappings:
        return device
    filled = {name: _with_missing(mapping, {"allocationMultiplier": "1"}) for name, mapping in mappings.items()}
    return device if filled == mappings else {**device, "nodeAllocatableResourceMappings": filled}


def _taint(taint: Obj, now: str) -> Obj:
    return _with_missing(taint, {"timeAdded": now}) if now else taint


def _claim_spec(spec: Obj, version: str) -> Obj:
    request = _request_v1beta1 if version == "v1beta1" else _request
    return _inside(spec, ("devices",), lambda devices: _each(devices, "requests", request))


def _request(request: Obj) -> Obj:
    request = _inside(request, ("exactly",), _exact)
    return _each(request, "firstAvailable", _exact)


def _request_v1beta1(request: Obj) -> Obj:
    # Without a class it is a choice between subrequests, or nothing: its own fields stay as they are.
    request = _exact(request) if request.get("deviceClassName") else _tolerations(request)
    return _each(request, "firstAvailable", _exact)


def _exact(request: Obj) -> Obj:
    request = _tolerations(request)
    mode = request.get("allocationMode") or "ExactCount"
    if mode == "ExactCount" and not request.get("count"):
        return {**request, "allocationMode": mode, "count": 1}
    return _with_missing(request, {"allocationMode": mode})


def _tolerations(holder: Obj) -> Obj:
    return _each(holder, "tolerations", lambda t: _with_missing(t, {"operator": "Equal"}))


def _allocation(devices: Obj) -> Obj:
    return _each(devices, "results", _tolerations)
