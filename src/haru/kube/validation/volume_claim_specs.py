"""What a PersistentVolumeClaim asks for: alone, for an ephemeral volume, in a StatefulSet's template (core/v1)."""

from __future__ import annotations

from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity
from haru.kube.validation.common import items, label_name, only_forbidden, part, subdomain
from haru.kube.validation.metadata import validate_template_metadata
from haru.kube.validation.resources import quantity
from haru.kube.validation.selectors import validate_label_selector

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
_NOT_IN_TEMPLATES = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields"),
)


def validate_volume_claim_template(field: str, template: Obj) -> list[FieldError]:
    """The template of an ephemeral volume's claim: labels, annotations and a spec."""
    metadata = part(template, "metadata")
    found = validate_template_metadata(metadata, f"{field}.metadata")
    found += only_forbidden(f"{field}.metadata", metadata, _NOT_IN_TEMPLATES, "cannot be set")
    return found + validate_volume_claim_spec(f"{field}.spec", part(template, "spec"))


def validate_volume_claim_spec(field: str, spec: Obj, *, old_groups: bool = False) -> list[FieldError]:
    """A claim's spec; `old_groups`: the stored claim names an API group, which nothing checked once."""
    found = validate_label_selector(f"{field}.selector", spec.get("selector"))
    found += access_modes(f"{field}.accessModes", items(spec, "accessModes"))
    found += _storage(f"{field}.resources[storage]", part(part(spec, "resources"), "requests"))
    for name in ("storageClassName", "volumeAttributesClassName"):
        found += subdomain(f"{field}.{name}", spec[name]) if spec.get(name) else []
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        found.append(not_supported(f"{field}.volumeMode", mode, VOLUME_MODES))
    return found + _sources(field, spec, old_groups)


def access_modes(field: str, modes: list[str]) -> list[FieldError]:
    """At least one mode; a volume for a single pod can be had in no other way besides."""
    found = [] if modes else [required(field, "at least 1 access mode is required")]
    found += [not_supported(field, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    others = set(modes) & set(ACCESS_MODES) - {"ReadWriteOncePod"}
    if "ReadWriteOncePod" in modes and others:
        found.append(forbidden(field, "may not use ReadWriteOncePod with other access modes"))
    return found


def _storage(field: str, requests: Obj) -> list[FieldError]:
    if "storage" not in requests:
        return [required(field)]
    amount, problem = quantity(field, "storage", requests["storage"])
    if amount is not None and amount <= Quantity(0):
        return [invalid(field, str(amount), "must be greater than zero")]
    return problem


def _sources(field: str, spec: Obj, old_groups: bool) -> list[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    found: list[FieldError] = []
    for name, given in (("dataSource", source), ("dataSourceRef", reference)):
        found += _source(f"{field}.{name}", given, old_groups) if given is not None else []
    namespace = part(spec, "dataSourceRef").get("namespace")
    if namespace:
        found += label_name(f"{field}.dataSourceRef.namespace", namespace)
        if source is not None:
            why = "may not be specified when dataSourceRef.namespace is specified"
            found.append(invalid(field, f"{field}.dataSource", why))
    elif source is not None and reference is not None and _differ(source, reference):
        found.append(invalid(field, f"{field}.dataSource", "must match dataSourceRef"))
    return found


def _differ(source: Obj, reference: Obj) -> bool:
    return any(source.get(name) != reference.get(name) for name in ("apiGroup", "kind", "name"))


def _source(field: str, source: Obj, old_groups: bool) -> list[FieldError]:
    found = [required(f"{field}.{name}") for name in ("name", "kind") if not source.get(name)]
    group = source.get("apiGroup") or ""
    if group:
        return found + ([] if old_groups else subdomain(f"{field}.apiGroup", group))
    if source.get("kind") != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        found.append(invalid(field, source.get("kind") or "", why))
    return found
