"""PersistentVolumeClaims: a claim stays what it is, but for its volume, its size and its attributes class.

Source: the validation of core/v1, as behaviour; KEP 1790 (recovery from expansion), 3751 (attributes classes).
"""

from __future__ import annotations

from haru.kube import names
from haru.kube.equality import same_members, same_objects
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.validation.common import each_message, immutable, items, part
from haru.kube.validation.volume_claim_specs import validate_volume_claim_spec

_SPEC = "core.v1.PersistentVolumeClaimSpec"
_CLASS = "volume.beta.kubernetes.io/storage-class"
_RESIZES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)


def validate_volume_claim(claim: Obj) -> list[FieldError]:
    """A PersistentVolumeClaim when it is created."""
    return validate_volume_claim_spec("spec", part(claim, "spec"))


def validate_volume_claim_update(new: Obj, old: Obj) -> list[FieldError]:
    """A claim when it replaces a stored one."""
    spec, before = part(new, "spec"), part(old, "spec")
    found = validate_volume_claim(new) + _class_annotation(new, old)
    if not same_objects(_comparable(new, old), before, _SPEC):
        free = "resources.requests and volumeAttributesClassName for bound claims"
        found.append(forbidden("spec", f"spec is immutable after creation except {free}"))
    size = _storage(spec)
    if size < _storage(before) and size <= _amount(part(part(old, "status"), "capacity").get("storage")):
        found.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
    found += immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    return found + _attributes_class(spec, before, part(old, "status"))


def _comparable(new: Obj, old: Obj) -> Obj:
    """The new spec with the old values of what may change."""
    spec, before = dict(part(new, "spec")), part(old, "spec")
    if not before.get("volumeName"):
        spec["volumeName"] = before.get("volumeName")
    given, known = spec.get("storageClassName"), before.get("storageClassName")
    annotation = _annotations(old).get(_CLASS)
    if given is not None and known is None and annotation in (None, given):
        spec["storageClassName"] = None
    if part(new, "status").get("phase") == "Bound":
        resources, kept = part(spec, "resources"), part(part(before, "resources"), "requests").get("storage")
        if resources.get("requests") is not None and kept is not None:
            spec["resources"] = {**resources, "requests": {**resources["requests"], "storage": kept}}
        spec["volumeAttributesClassName"] = before.get("volumeAttributesClassName")
    return spec


def _annotations(claim: Obj) -> Obj:
    return part(part(claim, "metadata"), "annotations")


def _class_annotation(new: Obj, old: Obj) -> list[FieldError]:
    """The annotation that named a class before the field did goes only when the field takes its place."""
    now, then = _annotations(new).get(_CLASS), _annotations(old).get(_CLASS)
    given, known = part(new, "spec").get("storageClassName"), part(old, "spec").get("storageClassName")
    if then is not None and known is None and given == then and now in (None, then):
        return []
    return immutable(f"metadata.annotations.{_CLASS}", now or "", then or "")


def _storage(spec: Obj) -> Quantity:
    return _amount(part(part(spec, "resources"), "requests").get("storage"))


def _amount(text: str | None) -> Quantity:
    return parse_quantity(text or "0")


def _attributes_class(spec: Obj, before: Obj, status: Obj) -> list[FieldError]:
    """Once a class has been applied, another one can be wanted, but none no more."""
    name = "volumeAttributesClassName"
    if same_members(spec, before, name, _SPEC) or status.get("currentVolumeAttributesClassName") is None:
        return []
    if spec.get(name):
        return []
    what = "nil" if spec.get(name) is None else "empty string"
    why = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
    return [forbidden(f"spec.{name}", why)]


def validate_volume_claim_status(new: Obj, old: Obj) -> list[FieldError]:
    """The status of a claim: amounts are amounts, and the states of a growth are known ones."""
    status = part(new, "status")
    found = [] if items(part(new, "spec"), "accessModes") else [required("Spec.accessModes")]
    for name, amount in part(status, "capacity").items():
        found += _not_negative(f"status.capacity[{name}]", amount)
    place = "status.allocatedResourceStatuses"
    for name, state in part(status, "allocatedResourceStatuses").items():
        found += _resource(place, name)
        if state not in _RESIZES:
            found.append(not_supported(place, name, _RESIZES))
    place = "status.allocatedResources"
    for name, amount in part(status, "allocatedResources").items():
        found += _resource(place, name) or _not_negative(f"{place}[{name}]", amount)
    return found


def _resource(field: str, name: str) -> list[FieldError]:
    found = each_message(field, name, names.is_qualified_name(name))
    if not found and names.is_native_resource(name) and name != "storage":
        found.append(not_supported(field, name, ["storage"]))
    return found


def _not_negative(field: str, amount: str) -> list[FieldError]:
    value = _amount(amount).value()
    return [invalid(field, value, "must be a valid resource quantity")] if value < 0 else []
