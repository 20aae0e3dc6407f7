"""Annotations of pods that mean something: seccomp and AppArmor of before there were fields, deletion cost, mirrors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from haru.kube.errors import FieldError, forbidden, invalid
from haru.kube.meta import Obj
from haru.kube.validation.affinity import validate_tolerations
from haru.kube.validation.common import local_path, part
from haru.kube.validation.windows import containers_with_places

MIRROR: Final = "kubernetes.io/config.mirror"
_TOLERATIONS: Final = "scheduler.alpha.kubernetes.io/tolerations"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_COST: Final = re.compile("0|-?[1-9][0-9]*")
_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP_DEFAULTS: Final = ("runtime/default", "docker/default")
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST: Final = "localhost/"


def validate_pod_annotations(field: str, annotations: Mapping[str, str], spec: Obj) -> list[FieldError]:
    """Validate the annotations that a pod's spec gives a meaning to."""
    found: list[FieldError] = []
    if MIRROR in annotations and not spec.get("nodeName"):
        why = "must set spec.nodeName if mirror pod annotation is set"
        found.append(invalid(f"{field}[{MIRROR}]", annotations[MIRROR], why))
    if annotations.get(_TOLERATIONS):
        found += _tolerations(field, annotations[_TOLERATIONS])
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not (_COST.fullmatch(cost) and -(2**31) <= int(cost) < 2**31):
        found.append(invalid(f"{field}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    known = {container.get("name") for _, container in containers_with_places("", spec)}
    for key, value in annotations.items():
        if key == _SECCOMP_POD or key.startswith(_SECCOMP):
            found += _seccomp(f"{field}.{key}", value)
        if key.startswith(_APP_ARMOR):
            found += _app_armor(f"{field}[{key}]", key.removeprefix(_APP_ARMOR), value, known)
    return found


def validate_annotations_update(field: str, new: Mapping[str, str], old: Mapping[str, str]) -> list[FieldError]:
    """Annotations that stay as they were when the pod was created."""
    found: list[FieldError] = []
    for key in {**old, **new}:
        if new.get(key) == old.get(key):
            continue
        done = "add" if key not in old else "remove or update"
        if key.startswith(_APP_ARMOR):
            found.append(forbidden(f"{field}[{key}]", f"may not {done} AppArmor annotations"))
        if key == MIRROR:
            found.append(forbidden(f"{field}[{key}]", f"may not {done} mirror pod annotation"))
    return found


def _tolerations(field: str, text: str) -> list[FieldError]:
    try:
        tolerations = json.loads(text)
        if not isinstance(tolerations, list) or not all(isinstance(one, dict) for one in tolerations):
            raise ValueError("no list of tolerations")
    except ValueError as problem:
        return [invalid(field, _TOLERATIONS, str(problem))]
    return validate_tolerations(f"{field}.{_TOLERATIONS}", tolerations)


def _seccomp(field: str, profile: str) -> list[FieldError]:
    if profile in (*_SECCOMP_DEFAULTS, "unconfined"):
        return []
    if profile.startswith(_LOCALHOST):
        return local_path(field, profile.removeprefix(_LOCALHOST))
    return [invalid(field, profile, "must be a valid seccomp profile")]


def _app_armor(field: str, container: str, profile: str, known: set[str | None]) -> list[FieldError]:
    found = [] if container in known else [invalid(field, container, "container not found")]
    if profile not in ("", "runtime/default", "unconfined") and not profile.startswith(_LOCALHOST):
        found.append(invalid(field, profile, f'invalid AppArmor profile name: "{profile}"'))
    return found


def validate_matching_annotations(field: str, annotations: Mapping[str, str], spec: Obj) -> list[FieldError]:
    """Fields and annotations that say the same thing must not contradict each other."""
    whole = part(spec, "securityContext")
    place = f"{field}.securityContext"
    defaults = _SECCOMP_DEFAULTS
    found = _match(f"{place}.seccompProfile", whole.get("seccompProfile"), annotations.get(_SECCOMP_POD), defaults)
    on_windows = part(spec, "os").get("name") == "windows"
    for place, container in containers_with_places(field, spec):
        context, name = part(container, "securityContext"), container.get("name") or ""
        here = f"{place}.securityContext"
        text = annotations.get(f"{_SECCOMP}{name}")
        found += _match(f"{here}.seccompProfile", context.get("seccompProfile"), text, defaults)
        profile = context.get("appArmorProfile") or whole.get("appArmorProfile")
        text = None if on_windows else annotations.get(f"{_APP_ARMOR}{name}")
        found += _match(f"{here}.appArmorProfile", profile, text, ("runtime/default",))
    return found


def _match(field: str, profile: Obj | None, text: str | None, defaults: tuple[str, ...]) -> list[FieldError]:
    if profile is None or text is None:
        return []
    kind = profile.get("type")
    if kind == "Localhost" and text.startswith(_LOCALHOST):
        if text.removeprefix(_LOCALHOST) == profile.get("localhostProfile"):
            return []
        return [forbidden(f"{field}.localhostProfile", "profile in annotation and field must match")]
    agrees = {"Unconfined": text == "unconfined", "RuntimeDefault": text in defaults, "Localhost": False}
    return (
        [] if agrees.get(kind or "", True) else [forbidden(f"{field}.type", "type in annotation and field must match")]
    )
