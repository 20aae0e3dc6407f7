"""Whether an object may be stored: the rules of 1.36, with its paths and words.

Objects are judged in the version of the request (those of resource.k8s.io in the shape of v1, which is also that of
the paths of errors), after defaulting, with their names generated and their namespaces set. On update the main resource
is judged by `validate_update`, a status write by `validate_status_update`; what was stored before and did not change is
not judged again where upstream grandfathers it.
Sources: dra-api (KEP 4381 and its family), KEP 4671, and the validation of each API group, as behaviour.
"""

from __future__ import annotations

from haru.kube.conversion import to_hub
from haru.kube.errors import FieldError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.validation import custom_resources, dispatch, generic, jobs
from haru.kube.validation.metadata import (
    validate_kind_finalizers,
    validate_metadata,
    validate_metadata_again,
    validate_metadata_update,
)
from haru.kube.validation.types import CheckSelector, Rules, SelectorProblem

__all__ = ["CheckSelector", "SelectorProblem", "validate_create", "validate_status_update", "validate_update"]


def validate_create(obj: Obj, kind: Kind, gates: FeatureGates, check_selector: CheckSelector) -> list[FieldError]:
    """Validate an object that is to be created; empty when it may be stored."""
    metadata = obj.get("metadata") or {}
    if (kind.group, kind.kind) == ("batch", "Job") and metadata.get("labels") == jobs.pod_labels(obj):
        metadata = {**metadata, "labels": jobs.own_labels(obj)}
    found = validate_metadata(metadata, kind) + validate_kind_finalizers(metadata, kind)
    if kind.custom is not None:
        return found + custom_resources.validate_custom(obj, kind.custom)
    check = dispatch.CREATE.get((kind.group, kind.kind))
    if check is None:
        return found + generic.validate_by_schema(obj, kind)
    own = check(_judged(obj, kind), kind, Rules(gates, check_selector))
    return own or found if (kind.group, kind.kind) in _METADATA_LAST else found + own


_METADATA_LAST = {("", "Event"), ("policy", "PodDisruptionBudget")}
"""Kinds whose metadata no rule of their own is about: a new object's are looked at when all else is well."""


def validate_update(
    new: Obj, old: Obj, kind: Kind, gates: FeatureGates, check_selector: CheckSelector
) -> list[FieldError]:
    """Validate the replacement of `old` by `new` (both in the version of the request)."""
    found = _metadata_update(new, old, kind)
    if kind.custom is not None:
        return found + custom_resources.validate_custom(new, kind.custom, old)
    check = dispatch.UPDATE.get((kind.group, kind.kind))
    if check is None:
        return found + generic.validate_by_schema(new, kind)
    return found + check(_judged(new, kind), _judged(old, kind), kind, Rules(gates, check_selector, old))


def validate_status_update(new: Obj, old: Obj, kind: Kind, gates: FeatureGates) -> list[FieldError]:
    """Validate a write to `/status` (spec and most metadata were restored from `old`)."""
    found = _metadata_update(new, old, kind)
    if kind.custom is not None:
        return found + custom_resources.validate_custom_status(new, old, kind.custom)
    check = dispatch.STATUS.get((kind.group, kind.kind))
    return found + check(_judged(new, kind), _judged(old, kind)) if check is not None else found


def _metadata_update(new: Obj, old: Obj, kind: Kind) -> list[FieldError]:
    metadata, before = new.get("metadata") or {}, old.get("metadata") or {}
    found = validate_metadata_update(metadata, before)
    if metadata.get("finalizers") == before.get("finalizers"):
        metadata = {name: value for name, value in metadata.items() if name != "finalizers"}
    return found + validate_metadata_again(metadata, kind) + validate_kind_finalizers(metadata, kind)


def _judged(obj: Obj, kind: Kind) -> Obj:
    return to_hub(obj, kind) if kind.group == dispatch.RESOURCE else obj
