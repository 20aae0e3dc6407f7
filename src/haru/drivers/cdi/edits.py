"""CDI specifications: devices, and what each adds to a container. Pure.

Source: the CDI specification (`cdiVersion`, `kind`, `devices`, `containerEdits`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from haru.errors import InputError
from haru.kube.meta import Obj

VERSIONS: Final = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_VENDOR: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
_CLASS: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?\Z")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?\Z")
_DEVICE_TYPES: Final = ("", "b", "c", "u", "p")


class CdiError(InputError):
    """A CDI file or id makes no sense, or cannot be had; the text names it and what is wrong."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device file of the container; what is None is as on the host."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class Edits:
    """What is added to a container. `hooks` counts those that a specification demands, which Haru runs none of."""

    env: tuple[str, ...] = ()
    """`NAME=value`; a later one of a name wins."""
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    additional_gids: tuple[int, ...] = ()
    hooks: int = 0
    others: tuple[str, ...] = ()
    """Names of edits that only a runtime can make."""

    def __add__(self, other: Edits) -> Edits:
        return Edits(
            _last_by(lambda entry: entry.partition("=")[0], (*self.env, *other.env)),
            _last_by(lambda mount: mount.container_path, (*self.mounts, *other.mounts)),
            _last_by(lambda node: node.path, (*self.device_nodes, *other.device_nodes)),
            tuple(dict.fromkeys((*self.additional_gids, *other.additional_gids))),
            self.hooks + other.hooks,
            tuple(dict.fromkeys((*self.others, *other.others))),
        )

    def as_spec(self) -> Obj:
        """As a CDI file has it."""
        spec: Obj = {"env": list(self.env), "mounts": [_mount(m) for m in self.mounts]}
        spec["deviceNodes"] = [_node(node) for node in self.device_nodes]
        spec["additionalGids"] = list(self.additional_gids)
        return {key: value for key, value in spec.items() if value}


@dataclass(frozen=True, slots=True)
class Spec:
    """One CDI file: devices of one kind (`vendor/class`), and what is added for any of them."""

    kind: str
    devices: Mapping[str, Edits]
    edits: Edits = field(default_factory=Edits)

    def as_file(self, version: str = "0.5.0") -> Obj:
        """The file's content."""
        devices = [{"name": name, "containerEdits": edits.as_spec()} for name, edits in self.devices.items()]
        content: Obj = {"cdiVersion": version, "kind": self.kind, "devices": devices}
        if common := self.edits.as_spec():
            content["containerEdits"] = common
        return content


def split_id(id_: str) -> tuple[str, str]:
    """(kind, device name) of `vendor/class=name`. Raises `CdiError`."""
    kind, equals, name = id_.partition("=")
    if not equals or not is_kind(kind) or not _NAME.match(name):
        raise CdiError(f'"{id_}": no CDI device id: write vendor/class=name')
    return kind, name


def is_kind(kind: str) -> bool:
    """Whether this is `vendor/class`."""
    vendor, slash, of_class = kind.partition("/")
    return bool(slash and _VENDOR.match(vendor) and _CLASS.match(of_class))


def read_spec(content: Any, where: str) -> Spec:
    """A specification from a file's content. Raises `CdiError`, which names the place in it."""
    if not isinstance(content, dict):
        raise CdiError(f"{where}: not an object")
    if content.get("cdiVersion") not in VERSIONS:
        raise CdiError(f'{where}: cdiVersion: "{content.get("cdiVersion")}": write one of {", ".join(VERSIONS)}')
    kind = content.get("kind")
    if not isinstance(kind, str) or not is_kind(kind):
        raise CdiError(f'{where}: kind: "{kind}": write vendor/class')
    devices: dict[str, Edits] = {}
    for position, device in enumerate(_list(content, "devices", where)):
        place = f"{where}: devices[{position}]"
        name = device.get("name") if isinstance(device, dict) else None
        if not isinstance(name, str) or not _NAME.match(name):
            raise CdiError(f'{place}.name: "{name}": write letters, digits and _.:- between them')
        if name in devices:
            raise CdiError(f'{place}.name: "{name}": stands there twice')
        devices[name] = _edits(device.get("containerEdits"), f"{place}.containerEdits")
    return Spec(kind, devices, _edits(content.get("containerEdits"), f"{where}: containerEdits"))


def _edits(found: Any, where: str) -> Edits:
    if found is None:
        return Edits()
    if not isinstance(found, dict):
        raise CdiError(f"{where}: not an object")
    env = _list(found, "env", where)
    for position, entry in enumerate(env):
        if not isinstance(entry, str) or not entry.partition("=")[1] or entry.startswith("="):
            raise CdiError(f'{where}.env[{position}]: "{entry}": write NAME=value')
    return Edits(
        tuple(env),
        tuple(_read_mount(m, f"{where}.mounts[{n}]") for n, m in enumerate(_list(found, "mounts", where))),
        tuple(_read_node(m, f"{where}.deviceNodes[{n}]") for n, m in enumerate(_list(found, "deviceNodes", where))),
        tuple(
            _integer(gid, f"{where}.additionalGids[{n}]") for n, gid in enumerate(_list(found, "additionalGids", where))
        ),
        len(_list(found, "hooks", where)),
        tuple(name for name in ("intelRdt", "netDevices") if found.get(name)),
    )


def _read_mount(found: Any, where: str) -> Mount:
    host, inside = _path(found, "hostPath", where), _path(found, "containerPath", where)
    return Mount(host, inside, tuple(str(o) for o in _list(found, "options", where)), str(found.get("type") or ""))


def _read_node(found: Any, where: str) -> DeviceNode:
    path = _path(found, "path", where)
    if found.get("type", "") not in _DEVICE_TYPES:
        raise CdiError(f'{where}.type: "{found.get("type")}": write one of b, c, u, p')
    permissions = str(found.get("permissions") or "")
    if set(permissions) - set("rwm"):
        raise CdiError(f'{where}.permissions: "{permissions}": write letters of rwm')
    numbers = {key: found[name] for key, name in _NUMBERS.items() if found.get(name) is not None}
    return DeviceNode(
        path,
        str(found.get("hostPath") or ""),
        str(found.get("type") or ""),
        permissions=permissions,
        **{key: _integer(value, f"{where}.{_NUMBERS[key]}") for key, value in numbers.items()},
    )


_NUMBERS: Final = {"major": "major", "minor": "minor", "file_mode": "fileMode", "uid": "uid", "gid": "gid"}


def _path(found: Any, key: str, where: str) -> str:
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, str) or not value.startswith("/"):
        raise CdiError(f'{where}.{key}: "{value}": write an absolute path')
    return value


def _integer(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise CdiError(f'{where}: "{value}": write a number')
    return value


def _list(found: Obj, key: str, where: str) -> Sequence[Any]:
    value = found.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise CdiError(f"{where}.{key}: not a list")
    return value


def _mount(mount: Mount) -> Obj:
    spec: Obj = {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": list(mount.options)}
    if mount.type:
        spec["type"] = mount.type
    return {key: value for key, value in spec.items() if value}


def _node(node: DeviceNode) -> Obj:
    spec: Obj = {"path": node.path, "hostPath": node.host_path, "type": node.type, "permissions": node.permissions}
    spec = {key: value for key, value in spec.items() if value}
    numbers = {name: getattr(node, key) for key, name in _NUMBERS.items()}
    return {**spec, **{name: value for name, value in numbers.items() if value is not None}}


def _last_by(key: Any, entries: Iterable[Any]) -> tuple[Any, ...]:
    return tuple({key(entry): entry for entry in entries}.values())
