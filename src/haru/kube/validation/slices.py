"""ResourceSlice: pool, node selection, devices, counters (KEP 4381, 4815, 5055, 5075, 5491).

Slices come by the thousands and their devices are mostly alike, so every device first goes through the quick test of
`device_quick`, which knows nothing but yes and "look closer". Only slices with a device that fails it are
walked with the paths that messages need.
"""

from __future__ import annotations

from haru.kube import names
from haru.kube.errors import FieldError, invalid, required
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    bounded_set,
    driver_name,
    each_message,
    immutable,
    items,
    label_name,
    part,
    required_label,
    same,
)
from haru.kube.validation.device_parts import (
    MAX_ATTRIBUTE_VALUES,
    MAX_ATTRIBUTES_AND_CAPACITIES,
    attribute_values,
    validate_attributes,
    validate_capacities,
    validate_consumption,
    validate_counters,
    validate_mappings,
)
from haru.kube.validation.device_quick import all_plainly_valid
from haru.kube.validation.devices import binding_conditions, device_taint, pool_name, too_many_taints
from haru.kube.validation.selectors import validate_node_selector

MAX_DEVICES = 128
MAX_DEVICES_WITH_ADVANCED_FEATURES = 64
MAX_COUNTER_SETS = 8
MAX_CONSUMPTIONS = 2
_LISTS = frozenset({"ints", "bools", "strings", "versions"})
_SELECTION = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_DEVICE_SELECTION = ("nodeName", "nodeSelector", "allNodes")


def validate_slice(resource_slice: Obj) -> list[FieldError]:
    """A ResourceSlice when it is created."""
    return _spec(part(resource_slice, "spec"), None)


def validate_slice_update(new: Obj, old: Obj) -> list[FieldError]:
    """A slice when it replaces a stored one."""
    return _spec(part(new, "spec"), part(old, "spec"))


def _spec(spec: Obj, old: Obj | None) -> list[FieldError]:
    found = driver_name("spec.driver", spec.get("driver") or "")
    pool = part(spec, "pool")
    found += _pool("spec.pool", pool)
    if old is not None:
        found += immutable("spec.pool.name", pool.get("name"), part(old, "pool").get("name"))
        found += immutable("spec.driver", spec.get("driver"), old.get("driver"))
        found += immutable("spec.nodeName", spec.get("nodeName") or None, old.get("nodeName") or None)
    found += _node_selection(spec)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        found.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    found += _devices(spec, old)
    counters = items(spec, "sharedCounters")
    return found + bounded_set(
        "spec.sharedCounters", counters, MAX_COUNTER_SETS, _counter_set, lambda c: c.get("name") or ""
    )


def _pool(field: str, pool: Obj) -> list[FieldError]:
    found = pool_name(f"{field}.name", pool.get("name") or "")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        found.append(invalid(f"{field}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        found.append(invalid(f"{field}.generation", generation, "must be greater than or equal to zero"))
    return found


def _node_selection(spec: Obj) -> list[FieldError]:
    """Exactly one of the four ways to say which nodes reach the devices."""
    found: list[FieldError] = []
    chosen: list[str] = []
    name = spec.get("nodeName")
    if name:
        chosen.append("nodeName")
        found += node_name("spec.nodeName", name)
    elif name is not None:
        found.append(invalid("spec.nodeName", name, "must be either unset or set to a non-empty string"))
    selector = spec.get("nodeSelector")
    if selector is not None:
        chosen.append("nodeSelector")
        found += validate_node_selector("spec.nodeSelector", selector)
        terms = items(selector, "nodeSelectorTerms")
        if len(terms) != 1:
            path = "spec.nodeSelector.nodeSelectorTerms"
            found.append(invalid(path, terms, "must have exactly one node selector term"))
    for flag in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(flag):
            chosen.append(flag)
        elif spec.get(flag) is not None:
            found.append(invalid(f"spec.{flag}", False, "must be either unset or set to true"))
    listed = ", ".join(f"`{flag}`" for flag in _SELECTION)
    if not chosen:
        found.append(required("spec", f"exactly one of {listed} is required"))
    elif len(chosen) > 1:
        value = "{" + ", ".join(f"`{flag}`" for flag in chosen) + "}"
        found.append(invalid("spec", value, f"exactly one of {listed} is required, but multiple fields are set"))
    return found


def node_name(field: str, value: str) -> list[FieldError]:
    """A node's name."""
    return each_message(field, value, names.is_dns1123_subdomain(value))


# --- devices -------------------------------------------------------------------------------------------------------


def _devices(spec: Obj, old: Obj | None) -> list[FieldError]:
    devices = items(spec, "devices")
    if not devices:
        return []
    maximum = MAX_DEVICES
    if len(devices) > MAX_DEVICES_WITH_ADVANCED_FEATURES and any(map(_is_advanced, devices)):
        maximum = MAX_DEVICES_WITH_ADVANCED_FEATURES
    per_device = bool(spec.get("perDeviceNodeSelection"))
    if len(devices) <= maximum and not per_device and all_plainly_valid(devices):
        return []
    stored = {device.get("name"): device for device in items(old, "devices")}

    def one(field: str, device: Obj) -> list[FieldError]:
        name = device.get("name") or ""
        return label_name(f"{field}.name", name) + _device(field, device, stored.get(name), per_device)

    return bounded_set("spec.devices", devices, maximum, one, lambda d: d.get("name") or "")


def _is_advanced(device: Obj) -> bool:
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(not _LISTS.isdisjoint(attribute) for attribute in part(device, "attributes").values())


def _device(field: str, device: Obj, old: Obj | None, per_device: bool) -> list[FieldError]:
    found: list[FieldError] = []
    attributes, capacity = part(device, "attributes"), part(device, "capacity")
    entries, values = len(attributes) + len(capacity), attribute_values(attributes)
    if entries > MAX_ATTRIBUTES_AND_CAPACITIES:
        why = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}"
        found.append(invalid(field, entries, why))
    if values > MAX_ATTRIBUTE_VALUES:
        why = f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}"
        found.append(invalid(field, values, why))
    found += validate_attributes(f"{field}.attributes", attributes)
    shared = bool(device.get("allowMultipleAllocations"))
    found += validate_capacities(f"{field}.capacity", capacity, shared)
    taints = items(device, "taints")
    if old is None or not same(taints, items(old, "taints")):
        found += too_many_taints(f"{field}.taints", taints) or [
            error for index, taint in enumerate(taints) for error in device_taint(f"{field}.taints[{index}]", taint)
        ]
    consumed = items(device, "consumesCounters")
    found += bounded_set(
        f"{field}.consumesCounters",
        consumed,
        MAX_CONSUMPTIONS,
        validate_consumption,
        lambda c: c.get("counterSet") or "",
    )
    found += _device_selection(field, device, per_device)
    found += binding_conditions(field, device)
    mappings = part(device, "nodeAllocatableResourceMappings")
    return found + validate_mappings(f"{field}.nodeAllocatableResourceMappings", mappings, capacity)


def _device_selection(field: str, device: Obj, per_device: bool) -> list[FieldError]:
    flag = "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    if not per_device:
        if all(device.get(name) is None for name in _DEVICE_SELECTION):
            return []
        return [invalid(field, None, f"`nodeName`, `nodeSelector` and `allNodes` can only be set if {flag}")]
    found: list[FieldError] = []
    chosen: list[str] = []
    name = device.get("nodeName")
    if name:
        chosen.append("`nodeName`")
        found += node_name(f"{field}.nodeName", name)
    elif name is not None:
        found.append(invalid(f"{field}.nodeName", name, "must not be empty"))
    if device.get("nodeSelector") is not None:
        chosen.append("`nodeSelector`")
        found += validate_node_selector(f"{field}.nodeSelector", device["nodeSelector"])
    if device.get("allNodes"):
        chosen.append("`allNodes`")
    elif device.get("allNodes") is not None:
        found.append(invalid(f"{field}.allNodes", False, "must be either unset or set to true"))
    why = f"exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when {flag}"
    if not chosen:
        found.append(required(field, why))
    elif len(chosen) > 1:
        found.append(invalid(field, "{" + ", ".join(chosen) + "}", why))
    return found


def _counter_set(field: str, counter_set: Obj) -> list[FieldError]:
    found = required_label(f"{field}.name", counter_set.get("name") or "")
    return found + validate_counters(f"{field}.counters", part(counter_set, "counters"))
