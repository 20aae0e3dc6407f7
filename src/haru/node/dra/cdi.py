"""Devices by the Container Device Interface where the runtime does not know it: the agent writes what they bring.

A CDI device brings environment, device nodes and mounts, its specification as a whole, too. Hooks are programs that the
runtime runs; without a runtime that knows CDI nobody would, so a device with hooks is refused. Source: the CDI
specification (files in /etc/cdi and /var/run/cdi; a later directory wins).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from haru.drivers.cdi.edits import CdiError
from haru.drivers.cdi.reader import DIRECTORIES, CdiFiles
from haru.proto import cri_pb2 as cri

__all__ = ["DIRECTORIES", "CdiError", "apply", "runtime_has_cdi"]
_FIRST_CONTAINERD = (1, 7)
_FIRST_CRIO = (1, 23)


def runtime_has_cdi(name: str, version: str) -> bool:
    """Whether the runtime applies CDI devices that it is given by name."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    return number >= (_FIRST_CRIO if name == "cri-o" else _FIRST_CONTAINERD)


def apply(config: cri.ContainerConfig, names: Sequence[str], directories: Sequence[Path] = DIRECTORIES) -> None:
    """Write what devices bring into a container's configuration, in place of their names. Raises `CdiError`."""
    edits = CdiFiles(directories).resolve(names)
    if edits.additional_gids:
        raise CdiError(f"{', '.join(names)}: asks for groups, which needs a runtime with CDI (containerd 1.7 or newer)")
    environment = {one.key: one.value for one in config.envs}
    for text in edits.env:
        key, _, value = text.partition("=")
        environment.pop(key, None)
        environment[key] = value.encode()
    del config.envs[:]
    config.envs.extend(cri.KeyValue(key=key, value=value) for key, value in environment.items())
    for node in edits.device_nodes:
        host_path, permissions = node.host_path or node.path, node.permissions or "rwm"
        config.devices.add(container_path=node.path, host_path=host_path, permissions=permissions)
    for mount in edits.mounts:
        readonly = "ro" in mount.options
        config.mounts.add(container_path=mount.container_path, host_path=mount.host_path, readonly=readonly)
    del config.CDI_devices[:]
