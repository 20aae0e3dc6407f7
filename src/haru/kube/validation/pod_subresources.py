"""Pods as their subresources write them: ephemeral containers are added, resources are resized in place.

Both judge the whole spec, as every later update of the pod will: what passes here must not freeze the pod.
Source: validation of core/v1, as behaviour; KEP 277, 1287, 5419.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from haru.kube.errors import FieldError, forbidden, invalid
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.strategy import qos_class
from haru.kube.validation.common import items, not_negative, part, same
from haru.kube.validation.pod_annotations import MIRROR
from haru.kube.validation.pods import validate_annotations_and_spec, validate_annotations_change
from haru.kube.validation.types import Rules

_RESIZABLE: Final = ("cpu", "memory")
_SIDES: Final = ("limits", "requests")
_ONLY_RESIZABLE: Final = "only cpu and memory resources are mutable"


def is_mirror_pod(pod: Obj) -> bool:
    """Whether a pod shows one that a kubelet was given as a file."""
    return MIRROR in part(part(pod, "metadata"), "annotations")


def validate_ephemeral_containers_update(new: Obj, old: Obj, rules: Rules) -> list[FieldError]:
    """A Pod whose ephemeral containers were written: they may be added, never changed or removed."""
    if is_mirror_pod(old):
        return [forbidden("[]", "static pods do not support ephemeral containers")]
    found = validate_annotations_and_spec(new, rules) + validate_annotations_change(new, old)
    named = {container.get("name"): container for container in items(part(new, "spec"), "ephemeralContainers")}
    for container in items(part(old, "spec"), "ephemeralContainers"):
        name = container["name"]
        if name not in named:
            why = f'existing ephemeral containers "{name}" may not be removed\n'
            found.append(forbidden("spec.ephemeralContainers", why))
        elif not same(named[name], container):
            why = f'existing ephemeral containers "{name}" may not be changed'
            found.append(forbidden("spec.ephemeralContainers", why))
    return found


def validate_resize(new: Obj, old: Obj, rules: Rules) -> list[FieldError]:
    """A Pod whose resources were written: only cpu and memory change, none goes, and its QoS class stays."""
    spec, before = part(new, "spec"), part(old, "spec")
    if is_mirror_pod(old):
        return [forbidden("[]", "static pods cannot be resized")]
    if part(before, "os").get("name") == "windows":
        return [forbidden("[]", "windows pods cannot be resized")]
    found = validate_annotations_and_spec(new, rules)
    quality = part(old, "status").get("qosClass") or qos_class(before)
    if qos_class(spec) != quality:
        found.append(invalid("spec", quality, "Pod QOS Class may not change as a result of resizing"))
    if not _node_can_resize(old):
        found.append(forbidden("spec", "Pod running on node without support for resize"))
    if part(old, "status").get("nodeAllocatableResourceClaimStatuses"):
        found.append(forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    found += _pod_level(spec.get("resources"), before.get("resources"))
    moved = _containers_in_place(spec, before)
    if moved:
        return found + moved
    for name in ("initContainers", "containers"):
        for index, (container, previous) in enumerate(zip(items(spec, name), items(before, name), strict=True)):
            found += _container(f"spec.{name}", index, container, previous)
    return found


def _node_can_resize(pod: Obj) -> bool:
    """Kubelets that resize tell what running containers have; of the others the first one tells nothing."""
    for status in items(part(pod, "status"), "containerStatuses"):
        if part(status, "state").get("running") is not None:
            return status.get("resources") is not None
    return True


def _pod_level(resources: Obj | None, before: Obj | None) -> list[FieldError]:
    if before and resources is None:
        return [forbidden("spec.resources", "pod-level resources cannot be removed")]
    found = _removed("spec.resources", resources or {}, before or {}, "pod-level resource")
    if not _same_but_resized(resources or {}, before or {}):
        found.append(forbidden("spec", f"{_ONLY_RESIZABLE} at pod-level"))
    return found


def _containers_in_place(spec: Obj, before: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("containers", "initContainers"):
        now, then = items(spec, name), items(before, name)
        if len(now) != len(then):
            found.append(forbidden(f"spec.{name}", f"{name} may not be added or removed on resize"))
            continue
        why = f"{name} may not be renamed or reordered on resize"
        for index, (container, previous) in enumerate(zip(now, then, strict=True)):
            if container.get("name") != previous.get("name"):
                found.append(forbidden(f"spec.{name}[{index}].name", why))
    return found


def _container(place: str, index: int, container: Obj, previous: Obj) -> list[FieldError]:
    field = f"{place}[{index}]"
    now, then = part(container, "resources"), part(previous, "resources")
    found = _removed(f"{field}.resources", now, then, "resource")
    rest = {name: value for name, value in container.items() if name != "resources"}
    others = {name: value for name, value in previous.items() if name != "resources"}
    init = place.endswith("initContainers")
    if not same(rest, others) or not _same_but_resized(now, then):
        why = "only cpu and memory resources for init or sidecar containers are mutable" if init else _ONLY_RESIZABLE
        found.append(forbidden(field if init else "spec", why))
    if init and container.get("restartPolicy") != "Always" and not same(container, previous):
        # No pod that is created today can have such a policy; older ones may.
        why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        policies = items(container, "resizePolicy")
        found += [forbidden(field, why) for policy in policies if policy.get("restartPolicy") == "RestartContainer"]
    return found


def _removed(field: str, now: Obj, then: Obj, what: str) -> list[FieldError]:
    return [
        forbidden(f"{field}.{side}", f"{what} {side} cannot be removed")
        for side in reversed(_SIDES)
        if part(then, side).keys() - part(now, side).keys()
    ]


def _same_but_resized(now: Obj, then: Obj) -> bool:
    """Whether requirements differ in cpu and memory at most; amounts are compared as amounts."""
    if not same(now.get("claims"), then.get("claims")):
        return False
    return all(_unsizable(part(now, side)) == _unsizable(part(then, side)) for side in _SIDES)


def _unsizable(amounts: Mapping[str, Any]) -> dict[str, Quantity | str]:
    return {name: _amount(value) for name, value in amounts.items() if name not in _RESIZABLE}


def _amount(value: Any) -> Quantity | str:
    try:
        return parse_quantity(value)
    except ValueError:  # told by the validation of the spec
        return str(value)


# --- logs


def validate_log_options(numbers: Mapping[str, int], *, since_time: bool = False) -> list[FieldError]:
    """Validate how much of a log is asked for; `since_time`: it is asked for by a time, too."""
    found = not_negative("tailLines", numbers.get("tailLines"))
    if numbers.get("limitBytes", 1) < 1:
        found.append(invalid("limitBytes", numbers["limitBytes"], "must be greater than 0"))
    if since_time and "sinceSeconds" in numbers:
        found.append(forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif numbers.get("sinceSeconds", 1) < 1:
        found.append(invalid("sinceSeconds", numbers["sinceSeconds"], "must be greater than 0"))
    return found
