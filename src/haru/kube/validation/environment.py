"""The environment of a container: variables, and what they are taken from (core/v1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from haru.kube import names
from haru.kube.errors import FieldError, invalid, required
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    each_message,
    indexed,
    items,
    required_label,
    required_subdomain,
    subdomain,
    without_backsteps,
)
from haru.kube.validation.volume_files import field_reference, resource_reference

_FIELDS: Final = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)


def validate_environment(field: str, container: Obj) -> list[FieldError]:
    """Variables by themselves, and whole config maps and secrets."""
    place = f"{field}.envFrom"
    found = indexed(f"{field}.env", items(container, "env"), _variable)
    for index, source in enumerate(items(container, "envFrom")):
        found += _variables_from(f"{place}[{index}]", source)
        present = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        # How many sources there are is told at the list.
        if not present:
            found.append(invalid(place, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(present) > 1:
            found.append(invalid(place, "", "may not have more than one field specified at a time"))
    return found


def _variables_from(field: str, source: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    if source.get("prefix"):
        found += each_message(f"{field}.prefix", source["prefix"], names.is_env_var_name(source["prefix"]))
    for member in ("configMapRef", "secretRef"):
        if source.get(member) is not None:
            found += required_subdomain(f"{field}.{member}.name", source[member].get("name") or "")
    return found


def _variable(field: str, variable: Obj) -> list[FieldError]:
    name = variable.get("name") or ""
    place = f"{field}.name"
    found = each_message(place, name, names.is_env_var_name(name)) if name else [required(place)]
    source = variable.get("valueFrom")
    if source is None:
        return found
    place = f"{field}.valueFrom"
    present = [member for member in _SOURCES if source.get(member) is not None]
    for member in present:
        found += _SOURCES[member](f"{place}.{member}", source[member])
    if not present:
        listed = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        found.append(invalid(place, "", f"must specify one of: {listed}"))
    elif variable.get("value"):
        found.append(invalid(place, "", "may not be specified when `value` is not empty"))
    elif len(present) > 1:
        found.append(invalid(place, "", "may not have more than one field specified at a time"))
    return found


def _pod_field(field: str, reference: Obj) -> list[FieldError]:
    return field_reference(field, reference, _FIELDS)


def _resource(field: str, reference: Obj) -> list[FieldError]:
    return resource_reference(field, reference, of_a_volume=False)


def _key(field: str, reference: Obj) -> list[FieldError]:
    key = reference.get("key") or ""
    found = subdomain(f"{field}.name", reference.get("name") or "")
    place = f"{field}.key"
    return found + (each_message(place, key, names.is_config_map_key(key)) if key else [required(place)])


def _file_key(field: str, reference: Obj) -> list[FieldError]:
    key, path = reference.get("key") or "", reference.get("path") or ""
    place = f"{field}.key"
    found = each_message(place, key, names.is_env_var_name(key)) if key else [required(place)]
    found += required_label(f"{field}.volumeName", reference.get("volumeName") or "")
    place = f"{field}.path"
    return found + (without_backsteps(place, path) if path else [required(place)])


_SOURCES: Mapping[str, Callable[[str, Obj], list[FieldError]]] = {
    "fieldRef": _pod_field,
    "resourceFieldRef": _resource,
    "configMapKeyRef": _key,
    "secretKeyRef": _key,
    "fileKeyRef": _file_key,
}
