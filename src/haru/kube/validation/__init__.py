"""Whether an object may be stored: the rules of 1.36, with its paths and words.

Objects are judged in the version of the request, after defaulting, with their names generated and their namespaces
set. On update the main resource is judged by `validate_update`, a status write by `validate_status_update`; what was
stored before and did not change is not judged again where upstream grandfathers it.
Sources: dra-api (KEP 4381 and its family), KEP 4671, and the validation of each API group, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from haru.kube.errors import FieldError
from haru.kube.validation import claim_status, claims, classes, generic, scheduling, slices
from haru.kube.validation.metadata import validate_metadata, validate_metadata_update
from haru.kube.validation.types import CheckSelector, Rules, SelectorProblem

if TYPE_CHECKING:
    from haru.kube.gates import FeatureGates
    from haru.kube.kinds import Kind

__all__ = ["CheckSelector", "SelectorProblem", "validate_create", "validate_status_update", "validate_update"]

Obj = dict[str, Any]
Create = Callable[[Obj, "Kind", Rules], list[FieldError]]
Update = Callable[[Obj, Obj, "Kind", Rules], list[FieldError]]
"""Called with the new object, then the old one."""

_RESOURCE = "resource.k8s.io"
_SCHEDULING = "scheduling.k8s.io"

_CREATE: Mapping[tuple[str, str], Create] = {
    (_RESOURCE, "ResourceClaim"): lambda obj, kind, rules: claims.validate_claim(obj, kind.version, rules),
    (_RESOURCE, "ResourceClaimTemplate"): lambda obj, kind, rules: claims.validate_claim_template(
        obj, kind.version, rules
    ),
    (_RESOURCE, "ResourceSlice"): lambda obj, kind, rules: slices.validate_slice(obj, kind.version),
    (_RESOURCE, "DeviceClass"): lambda obj, kind, rules: classes.validate_class(obj, rules),
    (_RESOURCE, "DeviceTaintRule"): lambda obj, kind, rules: classes.validate_taint_rule(obj),
    (_RESOURCE, "ResourcePoolStatusRequest"): lambda obj, kind, rules: classes.validate_pool_status_request(obj),
    (_SCHEDULING, "PriorityClass"): lambda obj, kind, rules: scheduling.validate_priority_class(obj),
    (_SCHEDULING, "Workload"): lambda obj, kind, rules: scheduling.validate_workload(obj, rules),
    (_SCHEDULING, "PodGroup"): lambda obj, kind, rules: scheduling.validate_pod_group(obj, rules),
}

_UPDATE: Mapping[tuple[str, str], Update] = {
    (_RESOURCE, "ResourceClaim"): lambda new, old, kind, rules: claims.validate_claim_update(new, old),
    (_RESOURCE, "ResourceClaimTemplate"): lambda new, old, kind, rules: claims.validate_claim_update(new, old),
    (_RESOURCE, "ResourceSlice"): lambda new, old, kind, rules: slices.validate_slice_update(new, old, kind.version),
    (_RESOURCE, "DeviceClass"): lambda new, old, kind, rules: classes.validate_class_update(new, old, rules),
    (_RESOURCE, "DeviceTaintRule"): lambda new, old, kind, rules: classes.validate_taint_rule(new, old),
    (_RESOURCE, "ResourcePoolStatusRequest"): lambda new, old, kind, rules: classes.validate_pool_status_request_update(
        new, old
    ),
    (_SCHEDULING, "PriorityClass"): lambda new, old, kind, rules: scheduling.validate_priority_class_update(new, old),
    (_SCHEDULING, "Workload"): lambda new, old, kind, rules: scheduling.validate_workload_update(new, old),
    (_SCHEDULING, "PodGroup"): lambda new, old, kind, rules: scheduling.validate_pod_group_update(new, old),
}

_STATUS: Mapping[tuple[str, str], Callable[[Obj, Obj], list[FieldError]]] = {
    (_RESOURCE, "ResourceClaim"): claim_status.validate_claim_status,
    (_RESOURCE, "DeviceTaintRule"): lambda new, old: classes.validate_taint_rule_status(new),
    (_RESOURCE, "ResourcePoolStatusRequest"): classes.validate_pool_status,
    (_SCHEDULING, "PodGroup"): lambda new, old: scheduling.validate_pod_group_status(new),
}


def validate_create(obj: Obj, kind: Kind, gates: FeatureGates, check_selector: CheckSelector) -> list[FieldError]:
    """What is wrong with an object that is to be created; empty when it may be stored."""
    found = validate_metadata(obj.get("metadata") or {}, kind)
    check = _CREATE.get((kind.group, kind.kind))
    if check is None:
        return found + generic.validate_by_schema(obj, kind)
    return found + check(obj, kind, Rules(gates, check_selector))


def validate_update(
    new: Obj, old: Obj, kind: Kind, gates: FeatureGates, check_selector: CheckSelector
) -> list[FieldError]:
    """What is wrong with replacing `old` by `new` (both in the version of the request)."""
    found = validate_metadata_update(new.get("metadata") or {}, old.get("metadata") or {})
    check = _UPDATE.get((kind.group, kind.kind))
    if check is None:
        return found + generic.validate_by_schema(new, kind)
    return found + check(new, old, kind, Rules(gates, check_selector))


def validate_status_update(new: Obj, old: Obj, kind: Kind, gates: FeatureGates) -> list[FieldError]:
    """What is wrong with a write to `/status` (spec and most metadata were restored from `old` by then)."""
    found = validate_metadata_update(new.get("metadata") or {}, old.get("metadata") or {})
    check = _STATUS.get((kind.group, kind.kind))
    return found + check(new, old) if check is not None else found
