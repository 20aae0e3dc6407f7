"""Rules for the kinds that ask what somebody may do.

Source: authorization.k8s.io/v1 validation, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, required
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.validation.common import each_message

_RESOURCE = "spec.resourceAttributes"
_PATH = "spec.nonResourceAttributes"


def validate_access_review(obj: Obj, kind: Kind) -> list[FieldError]:
    """Validate a review of what a user, or the caller, may do; the namespace of a local one is set."""
    spec = obj.get("spec") or {}
    found = list(_attributes(spec))
    if kind.kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        found.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    for name, selector in _selectors(spec):
        found += _selector(selector, f"{_RESOURCE}.{name}")
    return found + list(_metadata(obj, kind)) + (list(_local(obj)) if kind.namespaced else [])


def _attributes(spec: Obj) -> Iterator[FieldError]:
    if _has(spec, "resourceAttributes") and _has(spec, "nonResourceAttributes"):
        why = "cannot be specified in combination with resourceAttributes"
        yield invalid(_PATH, spec["nonResourceAttributes"], why)
    elif not _has(spec, "resourceAttributes") and not _has(spec, "nonResourceAttributes"):
        yield invalid(_RESOURCE, None, "exactly one of nonResourceAttributes or resourceAttributes must be specified")


def _has(spec: Obj, name: str) -> bool:
    return spec.get(name) is not None


def _metadata(obj: Obj, kind: Kind) -> Iterator[FieldError]:
    given = {name: value for name, value in (obj.get("metadata") or {}).items() if value}
    if set(given) - {"managedFields", *(("namespace",) if kind.namespaced else ())}:
        yield invalid("metadata", given, "must be empty" + (" except for namespace" if kind.namespaced else ""))


def _local(obj: Obj) -> Iterator[FieldError]:
    spec = obj.get("spec") or {}
    namespace = (spec.get("resourceAttributes") or {}).get("namespace") or ""
    if _has(spec, "resourceAttributes") and namespace != obj["metadata"]["namespace"]:
        yield invalid(f"{_RESOURCE}.namespace", namespace, "must match metadata.namespace")
    if _has(spec, "nonResourceAttributes"):
        yield invalid(_PATH, spec["nonResourceAttributes"], "disallowed on this kind of request")


def _selectors(spec: Obj) -> Iterator[tuple[str, Obj]]:
    for name in ("fieldSelector", "labelSelector"):
        selector = (spec.get("resourceAttributes") or {}).get(name)
        if selector is not None:
            yield name, selector


def _selector(selector: Obj, path: str) -> Iterator[FieldError]:
    raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or []
    if raw and requirements:
        yield invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
    if not raw and not requirements:
        yield required(f"{path}.requirements", f"when {path} is specified, requirements or rawSelector is required")
    for index, requirement in enumerate(requirements):
        where = f"{path}.requirements[{index}]"
        operator, values = requirement.get("operator"), requirement.get("values") or []
        key, is_label = requirement.get("key") or "", path.endswith(".labelSelector")
        if not key and not is_label:
            yield required(f"{where}.key", "must be specified")
        if operator in ("In", "NotIn") and not values:
            yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            yield forbidden(f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        if is_label:
            yield from each_message(f"{where}.key", key, names.is_qualified_name(key))
            for number, value in enumerate(values):
                yield from each_message(f"{where}.values[{number}]", value, names.is_label_value(value))
