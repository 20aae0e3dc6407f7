"""Pods: what may be created, what an update may change (core/v1)."""

from __future__ import annotations

from collections.abc import Sequence

from haru.kube.equality import same_members, same_objects
from haru.kube.errors import FieldError, forbidden, invalid
from haru.kube.meta import Obj
from haru.kube.validation.affinity import validate_tolerations
from haru.kube.validation.common import items, part, same
from haru.kube.validation.containers import trimmed_image
from haru.kube.validation.pod_annotations import (
    validate_annotations_update,
    validate_matching_annotations,
    validate_pod_annotations,
)
from haru.kube.validation.pod_specs import validate_pod_spec
from haru.kube.validation.types import Rules

_SPEC = "core.v1.PodSpec"
_MAX_INT32 = 2**31 - 1
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: Obj, rules: Rules) -> list[FieldError]:
    """A Pod when it is created."""
    spec = part(pod, "spec")
    found = validate_annotations_and_spec(pod, rules)
    if items(spec, "ephemeralContainers"):
        found.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and items(spec, "schedulingGates"):
        found.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found + validate_matching_annotations("spec", _annotations(pod), spec)


def validate_annotations_and_spec(pod: Obj, rules: Rules) -> list[FieldError]:
    """What holds for a Pod at every write of it."""
    metadata, spec = part(pod, "metadata"), part(pod, "spec")
    found = validate_pod_annotations("metadata.annotations", _annotations(pod), spec)
    found += validate_pod_spec("spec", spec, rules, metadata)
    if not spec.get("serviceAccountName"):
        why = "must not be specified when serviceAccountName is not set"
        for index, volume in enumerate(items(spec, "volumes")):
            for number, source in enumerate(items(volume.get("projected"), "sources")):
                if source.get("serviceAccountToken") is not None:
                    place = f"spec.volumes[{index}].projected.sources[{number}].serviceAccountToken"
                    found.append(forbidden(place, why))
    for member in ("containers", "initContainers"):
        for index, container in enumerate(items(spec, member)):
            found += trimmed_image(f"spec.{member}[{index}]", container)
    return found


def validate_annotations_change(new: Obj, old: Obj) -> list[FieldError]:
    """What the annotations of a stored Pod say, and which of them stay."""
    field = "metadata.annotations"
    found = validate_annotations_update(field, _annotations(new), _annotations(old))
    return found + validate_pod_annotations(field, _annotations(new), part(new, "spec"))


def _annotations(pod: Obj) -> Obj:
    return part(part(pod, "metadata"), "annotations")


def validate_pod_update(new: Obj, old: Obj, rules: Rules) -> list[FieldError]:
    """A Pod when it replaces a stored one: images, deadline, tolerations and scheduling gates may change."""
    spec, before = part(new, "spec"), part(old, "spec")
    found = validate_annotations_and_spec(new, rules) + validate_annotations_change(new, old)
    for name in ("containers", "initContainers"):
        if len(items(spec, name)) != len(items(before, name)):
            return [*found, forbidden(f"spec.{name}", "pod updates may not add or remove containers")]
    deadline = _deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    found += deadline
    if deadline and spec.get("activeDeadlineSeconds") is not None:
        return found
    found += _only_added_tolerations(items(spec, "tolerations"), items(before, "tolerations"))
    found += _only_removed_gates(items(spec, "schedulingGates"), items(before, "schedulingGates"))
    if same_objects(spec, before, _SPEC):
        return found
    rest = _without_updatable(spec, before)
    if items(before, "schedulingGates"):
        errors, rest = _gated(rest, before)
        found += errors
    changed = sorted(name for name in rest.keys() | before.keys() if not same_members(rest, before, name, _SPEC))
    if changed:
        listed = ", ".join(f"spec.{name}" for name in changed)
        why = f"pod updates may not change fields other than {_UPDATABLE}\n changed: {listed}"
        found.append(forbidden("spec", why))
    return found


def _deadline(new: int | None, old: int | None) -> list[FieldError]:
    field = "spec.activeDeadlineSeconds"
    if new is None:
        if old is None:
            return []
        return [invalid(field, None, "must not update from a positive integer to nil value")]
    if not 0 <= new <= _MAX_INT32:
        return [invalid(field, new, f"must be between 0 and {_MAX_INT32}, inclusive")]
    if old is not None and old < new:
        return [invalid(field, new, "must be less than or equal to previous value")]
    return []


def _only_added_tolerations(new: Sequence[Obj], old: Sequence[Obj]) -> list[FieldError]:
    def key(toleration: Obj) -> Obj:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}

    kept = [key(toleration) for toleration in new]
    if any(key(toleration) not in kept for toleration in old):
        why = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden("spec.tolerations", why)]
    return validate_tolerations("spec.tolerations", new)


def _only_removed_gates(new: Sequence[Obj], old: Sequence[Obj]) -> list[FieldError]:
    known = {gate.get("name") for gate in old}
    return [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for index, gate in enumerate(new)
        if gate.get("name") not in known
    ]


def _without_updatable(spec: Obj, before: Obj) -> Obj:
    """The new spec with the old values of everything that may change."""
    rest = {**spec}
    for name in ("containers", "initContainers"):
        if name in spec:
            pairs = zip(items(spec, name), items(before, name), strict=True)
            rest[name] = [{**container, "image": previous.get("image")} for container, previous in pairs]
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        rest[name] = before.get(name)
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and rest.get("terminationGracePeriodSeconds") == 1:
        rest["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    return rest


def _gated(rest: Obj, before: Obj) -> tuple[list[FieldError], Obj]:
    """While a pod is gated its node selector and node affinity may become narrower."""
    found: list[FieldError] = []
    selector, previous = part(rest, "nodeSelector"), part(before, "nodeSelector")
    if any(selector.get(key) != value for key, value in previous.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        found.append(invalid("spec.nodeSelector", selector, why))
    rest = {**rest, "nodeSelector": before.get("nodeSelector")}
    new_affinity, old_affinity = part(rest, "affinity"), part(before, "affinity")
    new_node, old_node = part(new_affinity, "nodeAffinity"), part(old_affinity, "nodeAffinity")
    if not same(new_node, old_node):
        found += _narrower("spec.affinity.nodeAffinity", new_node, old_node)
        rest["affinity"] = {**new_affinity, "nodeAffinity": old_affinity.get("nodeAffinity")}
        if not old_affinity and not any(rest["affinity"].values()):
            rest["affinity"] = before.get("affinity")
    return found, rest


def _narrower(field: str, new: Obj, old: Obj) -> list[FieldError]:
    member = "requiredDuringSchedulingIgnoredDuringExecution"
    terms, previous = items(part(new, member), "nodeSelectorTerms"), items(part(old, member), "nodeSelectorTerms")
    if not previous:
        return []
    place = f"{field}.{member}.nodeSelectorTerms"
    if len(terms) != len(previous):
        return [invalid(place, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")]
    for index, (term, before) in enumerate(zip(terms, previous, strict=True)):
        for name in ("matchExpressions", "matchFields"):
            if items(term, name)[: len(items(before, name))] != items(before, name):
                return [invalid(f"{place}[{index}]", term, "only additions are allowed (no mutations or deletions)")]
    return []
