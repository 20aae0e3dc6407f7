"""Where a container sees the volumes of its pod: as directories, or as block devices (core/v1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from haru.kube.errors import FieldError, forbidden, invalid, not_found, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import items, local_path, part

_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE: Final = ("Disabled", "Enabled", "IfPossible")
_BLOCK_SOURCES: Final = ("persistentVolumeClaim", "ephemeral")


def validate_mounts(field: str, container: Obj, volumes: Mapping[str, Obj]) -> list[FieldError]:
    """Mounts of volumes that are there; some errors are told at the list, as 1.36 does."""
    devices = {d.get("name") or "": d.get("devicePath") or "" for d in items(container, "volumeDevices")}
    found: list[FieldError] = []
    paths: set[str] = set()
    for index, mount in enumerate(items(container, "volumeMounts")):
        place = f"{field}[{index}]"
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        found += _name(f"{place}.name", name, volumes)
        if not path:
            found.append(required(f"{place}.mountPath"))
        if path in paths:
            found.append(invalid(f"{place}.mountPath", path, "must be unique"))
        paths.add(path)
        if name in devices:
            found.append(invalid(f"{place}.name", name, "must not already exist in volumeDevices"))
        if path in devices.values():
            why = "must not already exist as a path in volumeDevices"
            found.append(invalid(f"{place}.mountPath", path, why))
        found += _sub_paths(field, place, mount) + _propagation(f"{field}.mountPropagation", mount, container)
        found += _recursive(f"{field}.recursiveReadOnly", mount)
    return found


def _name(field: str, name: str, volumes: Mapping[str, Obj]) -> list[FieldError]:
    found = [] if name else [required(field)]
    return found if name in volumes else [*found, not_found(field, name)]


def _sub_paths(field: str, place: str, mount: Obj) -> list[FieldError]:
    path, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    found = local_path(f"{field}.subPath", path)
    if path and expression:
        why = "subPathExpr and subPath are mutually exclusive"
        found.append(invalid(f"{place}.subPathExpr", expression, why))
    return found + local_path(f"{field}.subPathExpr", expression)


def _propagation(field: str, mount: Obj, container: Obj) -> list[FieldError]:
    mode = mount.get("mountPropagation")
    if mode is None:
        return []
    if mode not in _PROPAGATIONS:
        return [not_supported(field, mode, _PROPAGATIONS)]
    if mode == "Bidirectional" and not part(container, "securityContext").get("privileged"):
        return [forbidden(field, "Bidirectional mount propagation is available only to privileged containers")]
    return []


def _recursive(field: str, mount: Obj) -> list[FieldError]:
    mode = mount.get("recursiveReadOnly")
    if mode is None or mode == "Disabled":
        return []
    if mode not in _RECURSIVE:
        return [not_supported(field, mode, _RECURSIVE)]
    found: list[FieldError] = []
    if not mount.get("readOnly"):
        found.append(forbidden(field, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation") not in (None, "None"):
        found.append(forbidden(field, "may only be specified when mountPropagation is None or not specified"))
    return found


def validate_devices(field: str, container: Obj, volumes: Mapping[str, Obj]) -> list[FieldError]:
    """Block devices: of claims alone."""
    mounts = {m.get("name") or "": m.get("mountPath") or "" for m in items(container, "volumeMounts")}
    found: list[FieldError] = []
    taken: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(items(container, "volumeDevices")):
        place = f"{field}[{index}]"
        name, path = device.get("name") or "", device.get("devicePath") or ""
        found += _device_name(f"{place}.name", name, volumes, taken)
        found += _device_path(f"{place}.devicePath", path, paths)
        if name in mounts:
            found.append(invalid(f"{place}.name", name, "must not already exist in volumeMounts"))
        if path in mounts.values():
            why = "must not already exist as a path in volumeMounts"
            found.append(invalid(f"{place}.devicePath", path, why))
        if name:
            taken.add(name)
    return found


def _device_name(field: str, name: str, volumes: Mapping[str, Obj], taken: set[str]) -> list[FieldError]:
    found = [] if name else [required(field)]
    if name in taken:
        found.append(invalid(field, name, "must be unique"))
    volume = volumes.get(name)
    if volume is None:
        found.append(not_found(field, name))
    elif all(volume.get(source) is None for source in _BLOCK_SOURCES):
        why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        found.append(invalid(field, name, why))
    return found


def _device_path(field: str, path: str, taken: set[str]) -> list[FieldError]:
    found = [] if path else [required(field)]
    if path in taken:
        found.append(invalid(field, path, "must be unique"))
    if ".." in path.split("/"):
        found.append(invalid(field, path, "can not contain backsteps ('..')"))
    else:
        taken.add(path)
    return found
