"""Devices by the Container Device Interface where the runtime does not know it: the agent writes what they bring.

A CDI device brings environment, device nodes and mounts, its specification as a whole, too. Hooks are programs that the
runtime runs; without a runtime that knows CDI nobody would, so a device with hooks is refused. Source: the CDI
specification (files in /etc/cdi and /var/run/cdi; a later directory wins).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from haru.node.cri.containers import ContainerConfig, Device, KeyValue, Mount

Obj = dict[str, Any]
DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
_FIRST_CONTAINERD = (1, 7)
_FIRST_CRIO = (1, 23)


class CdiError(Exception):
    """A device can not be given to a container; the text names it and what is missing."""


def runtime_has_cdi(name: str, version: str) -> bool:
    """Whether the runtime applies CDI devices that it is given by name."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    return number >= (_FIRST_CRIO if name == "cri-o" else _FIRST_CONTAINERD)


def apply(config: ContainerConfig, names: Sequence[str], directories: Sequence[Path] = DIRECTORIES) -> None:
    """Write what devices bring into a container's configuration, in place of their names. Raises `CdiError`."""
    specs = list(_specs(directories))
    used: list[int] = []
    for name in names:
        number, device = _find(name, specs)
        if number not in used:
            used.append(number)
            _add(config, specs[number][1].get("containerEdits") or {}, f"the specification of {name}")
        _add(config, device.get("containerEdits") or {}, name)
    config.cdi_devices = []


def _find(name: str, specs: Sequence[tuple[Path, Obj]]) -> tuple[int, Obj]:
    kind, _, wanted = name.partition("=")
    for number in range(len(specs) - 1, -1, -1):
        if specs[number][1].get("kind") == kind:
            for device in specs[number][1].get("devices") or ():
                if device.get("name") == wanted:
                    return number, device
    raise CdiError(f"unresolvable CDI device {name}: no specification in {', '.join(map(str, DIRECTORIES))} has it")


def _specs(directories: Sequence[Path]) -> Iterator[tuple[Path, Obj]]:
    """Specifications, those that win last."""
    from haru.kube.yaml import load

    for directory in directories:
        for file in sorted(directory.glob("*")) if directory.is_dir() else ():
            if file.suffix not in (".json", ".yaml"):
                continue
            try:
                spec = load(file.read_text())
            except (OSError, ValueError) as error:
                raise CdiError(f"{file}: {error}") from error
            if isinstance(spec, dict):
                yield file, spec


def _add(config: ContainerConfig, edits: Mapping[str, Any], what: str) -> None:
    if edits.get("hooks"):
        raise CdiError(f"{what} has hooks, which this runtime can not run: containerd 1.7 or newer is needed")
    if edits.get("additionalGids") or edits.get("intelRdt"):
        raise CdiError(f"{what} asks for groups or RDT, which needs a runtime that knows CDI (containerd 1.7 or newer)")
    for text in edits.get("env") or ():
        key, _, value = str(text).partition("=")
        config.envs = [one for one in config.envs if one.key != key]
        config.envs.append(KeyValue(key, value.encode()))
    for node in edits.get("deviceNodes") or ():
        host = node.get("hostPath") or node["path"]
        config.devices.append(Device(node["path"], host, node.get("permissions") or "rwm"))
    for mount in edits.get("mounts") or ():
        read_only = "ro" in (mount.get("options") or ())
        config.mounts.append(Mount(mount["containerPath"], mount["hostPath"], read_only))
