"""Kinds of storage.k8s.io/v1: classes, drivers, what nodes have of them, capacities and attachments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from haru.kube.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    driver_name,
    immutable,
    immutable_member,
    items,
    label_key,
    not_negative,
    part,
    subdomain,
)
from haru.kube.validation.persistent_volumes import validate_inline_volume
from haru.kube.validation.resources import quantity
from haru.kube.validation.selectors import validate_label_selector

_MAX_PARAMETERS = 512
_MAX_PARAMETER_BYTES = 256 * 1024
_MAX_NODE_ID = 256
_RECLAIM_POLICIES = ("Delete", "Retain")
_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_FS_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLES = ("Persistent", "Ephemeral")
_SHORTEST_TOKEN, _LONGEST_TOKEN = 600, 1 << 32


def validate_storage_class(storage_class: Obj) -> list[FieldError]:
    """A StorageClass when it is created."""
    found = _driver("provisioner", storage_class.get("provisioner") or "")
    found += _parameters(part(storage_class, "parameters"))
    policy, mode = storage_class.get("reclaimPolicy"), storage_class.get("volumeBindingMode")
    if policy and policy not in _RECLAIM_POLICIES:
        found.append(not_supported("reclaimPolicy", policy, _RECLAIM_POLICIES))
    if mode is None:
        found.append(required("volumeBindingMode"))
    elif mode not in _BINDING_MODES:
        found.append(not_supported("volumeBindingMode", mode, _BINDING_MODES))
    return found + _topologies(items(storage_class, "allowedTopologies"))


def validate_storage_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """A StorageClass stays what it is, but for its mount options, topologies and growth."""
    fixed = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
    found = validate_storage_class(new)
    return found + [error for name in fixed for error in immutable(name, new.get(name), old.get(name))]


def _driver(field: str, name: str) -> list[FieldError]:
    return label_key(field, name.lower()) if name else [required(field)]


def _parameters(parameters: Obj, *, needed: bool = False) -> list[FieldError]:
    if len(parameters) > _MAX_PARAMETERS:
        return [too_long("parameters", _MAX_PARAMETERS)]
    found = [invalid("parameters", key, "field can not be empty.") for key in parameters if not key]
    if sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items()) > _MAX_PARAMETER_BYTES:
        found.append(too_long("parameters", _MAX_PARAMETER_BYTES))
    if needed and not parameters:
        found.append(required("parameters", "must contain at least one key/value pair"))
    return found


def _topologies(terms: Sequence[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    # The list that 1.36 compares with begins with an empty term for each that there is.
    known: list[dict[str, frozenset[str]] | None] = [None] * len(terms)
    for index, term in enumerate(terms):
        place = f"allowedTopologies[{index}].matchLabelExpressions"
        given: dict[str, frozenset[str]] = {}
        for number, expression in enumerate(items(term, "matchLabelExpressions")):
            field, key, values = f"{place}[{number}]", expression.get("key") or "", items(expression, "values")
            found += [] if values else [required(f"{field}.values")]
            found += [
                duplicate(f"{field}.values[{position}]", value)
                for position, value in enumerate(values)
                if value in values[:position]
            ]
            found += label_key(f"{field}.key", key)
            if key in given:
                found.append(duplicate(f"{field}.key", key))
            given[key] = frozenset(values)
        found += [duplicate(place, "") for other in known if (other or {}) == given]
        known.append(given)
    return found


def validate_attributes_class(attributes: Obj) -> list[FieldError]:
    """A VolumeAttributesClass."""
    found = _driver("driverName", attributes.get("driverName") or "")
    return found + _parameters(part(attributes, "parameters"), needed=True)


def validate_attributes_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """A VolumeAttributesClass stays what it is."""
    found = [
        forbidden(name, f"updates to {name} are forbidden.")
        for name in ("driverName", "parameters")
        if immutable(name, new.get(name), old.get(name))
    ]
    return found + validate_attributes_class(new)


# --- drivers, and nodes that have them


def validate_csi_driver(driver: Obj) -> list[FieldError]:
    """A CSIDriver when it is created."""
    spec = part(driver, "spec")
    found: list[FieldError] = []
    for name, place in (
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ):
        found += [required(f"spec.{place}")] if spec.get(name) is None else []
    policy = spec.get("fsGroupPolicy")
    if policy is not None and policy not in _FS_GROUP_POLICIES:
        found.append(not_supported("spec.fsGroupPolicy", policy, _FS_GROUP_POLICIES))
    tokens = items(spec, "tokenRequests")
    found += _tokens(tokens)
    for mode in items(spec, "volumeLifecycleModes"):
        if mode not in _LIFECYCLES:
            found.append(not_supported("spec.volumeLifecycleModes", mode, _LIFECYCLES))
    found += [required("spec.seLinuxMount")] if spec.get("seLinuxMount") is None else []
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        why = "must be greater than or equal to 10 seconds"
        found.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, why))
    told = spec.get("serviceAccountTokenInSecrets")
    if told is not None and not tokens:
        why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        found.append(invalid("spec.serviceAccountTokenInSecrets", told, why))
    return found


def _tokens(requests: Sequence[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, request in enumerate(requests):
        field, audience, seconds = f"spec.tokenRequests[{index}]", request.get("audience") or "", None
        if audience in seen:
            found.append(duplicate(f"{field}.audience", audience))
            continue
        seen.add(audience)
        seconds = request.get("expirationSeconds")
        if seconds is not None and seconds < _SHORTEST_TOKEN:
            why = "may not specify a duration less than 10 minutes"
            found.append(invalid(f"{field}.expirationSeconds", seconds, why))
        if seconds is not None and seconds > _LONGEST_TOKEN:
            why = "may not specify a duration larger than 2^32 seconds"
            found.append(invalid(f"{field}.expirationSeconds", seconds, why))
    return found


def validate_csi_driver_update(new: Obj, old: Obj) -> list[FieldError]:
    """A driver keeps whether it attaches, and the lives of its volumes."""
    spec, before = part(new, "spec"), part(old, "spec")
    found = validate_csi_driver(new)
    found += immutable("spec.attachedRequired", spec.get("attachRequired"), before.get("attachRequired"))
    name = "volumeLifecycleModes"
    return found + immutable(f"spec.{name}", spec.get(name), before.get(name))


def validate_csi_node(node: Obj) -> list[FieldError]:
    """A CSINode: the drivers of a node."""
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, driver in enumerate(items(part(node, "spec"), "drivers")):
        field, name, node_id = f"spec.drivers[{index}]", driver.get("name") or "", driver.get("nodeID") or ""
        found += driver_name(f"{field}.name", name)
        found += [] if node_id else [required(f"{field}.nodeID")]
        if len(node_id) > _MAX_NODE_ID:
            found.append(invalid(f"{field}.nodeID", node_id, f"must be {_MAX_NODE_ID} characters or less"))
        found += not_negative(f"{field}.allocatable.count", part(driver, "allocatable").get("count"))
        if name in seen:
            found.append(duplicate(f"{field}.name", name))
        seen.add(name)
        found += _topology_keys(field, items(driver, "topologyKeys"))
    return found


def _topology_keys(field: str, keys: Sequence[str]) -> list[FieldError]:
    found: list[FieldError] = []
    for index, key in enumerate(keys):
        found += [] if key else [required(field, key)]
        found += [duplicate(field, key)] if key in keys[:index] else []
        found += label_key(field, key)
    return found


def validate_csi_node_update(new: Obj, old: Obj) -> list[FieldError]:
    """A driver that a node has stays as it is there, but for how much of it there is."""

    def fixed(driver: Obj) -> Obj:
        return {name: value for name, value in driver.items() if name != "allocatable"}

    before = {driver.get("name"): driver for driver in items(part(old, "spec"), "drivers")}
    found = validate_csi_node(new)
    for driver in items(part(new, "spec"), "drivers"):
        if driver.get("name") in before:
            found += immutable("spec.drivers", fixed(driver), fixed(before[driver.get("name")]))
    return found


def validate_storage_capacity(capacity: Obj) -> list[FieldError]:
    """A CSIStorageCapacity when it is created."""
    found = validate_label_selector("nodeTopology", capacity.get("nodeTopology"))
    found += subdomain("storageClassName", capacity.get("storageClassName") or "")
    amount = capacity.get("capacity")
    return found + (quantity("capacity", "storage", amount)[1] if amount is not None else [])


def validate_storage_capacity_update(new: Obj, old: Obj) -> list[FieldError]:
    """A capacity stays that of its class and its nodes."""
    return validate_storage_capacity(new) + [
        invalid(name, new.get(name), "field is immutable")
        for name in ("nodeTopology", "storageClassName")
        if immutable(name, new.get(name), old.get(name))
    ]


# --- attachments


def validate_attachment(attachment: Obj) -> list[FieldError]:
    """A VolumeAttachment."""
    spec, field = part(attachment, "spec"), "spec.source"
    source = part(spec, "source")
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    found = driver_name("spec.attacher", spec.get("attacher") or "")
    why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if name is None and inline is None:
        found.append(required(field, why))
    elif name is not None and inline is not None:
        found.append(forbidden(field, why))
    elif inline is not None:
        found += validate_inline_volume(f"{field}.inlineVolumeSpec", inline)
    elif not name:
        found.append(required(f"{field}.persistentVolumeName", "must specify non empty persistentVolumeName"))
    found += subdomain("spec.nodeName", spec.get("nodeName") or "")
    found += _attachment_status(part(attachment, "status"))
    if name is not None:
        found += subdomain(f"{field}.persistentVolumeName", name)
    return found


def _attachment_status(status: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    facts = part(status, "attachmentMetadata")
    if sum(len(key.encode()) + len(value.encode()) for key, value in facts.items()) > _MAX_PARAMETER_BYTES:
        found.append(too_long("status.attachmentMetadata", _MAX_PARAMETER_BYTES))
    for member in ("attachError", "detachError"):
        problem = part(status, member)
        if len((problem.get("message") or "").encode()) > _MAX_PARAMETER_BYTES:
            found.append(too_long(f"status.{member}.message", _MAX_PARAMETER_BYTES))
        code: Any = problem.get("errorCode")
        if code is not None and code < 0:
            why = "must be between 0 and 2147483647, inclusive"
            found.append(invalid(f"status.{member}.errorCode", code, why))
    return found


def validate_attachment_update(new: Obj, old: Obj) -> list[FieldError]:
    """An attachment stays what it is."""
    return validate_attachment(new) + immutable_member("", "spec", new, old, "storage.v1.VolumeAttachment")
