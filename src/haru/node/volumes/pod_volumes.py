"""Volumes of pods on this machine: paths, setup, teardown.

`ROOT/pods/UID/volumes/kubernetes.io~KIND/NAME`, as kubelets have it. What holds secrets is in memory (tmpfs). All calls
do input and output and may block: run them in a thread.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from haru.files import write_whole
from haru.kube.meta import Obj
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.pod_environment.volume_files import Files, holds_secrets
from haru.kube.quantity import parse_quantity
from haru.kube.strategy import qos_class
from haru.node.volumes.atomic import write_files
from haru.proto import cri_pb2 as cri

_NOTE = "pod.json"
_KINDS = {
    "configMap": "configmap",
    "secret": "secret",
    "projected": "projected",
    "downwardAPI": "downward-api",
    "emptyDir": "empty-dir",
}
_PROPAGATION = {
    "None": cri.PROPAGATION_PRIVATE,
    "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
}
_TESTS: Mapping[str, Callable[[int], bool]] = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}


class PodVolumes:
    """The volumes under a directory of the agent's own."""

    def __init__(self, root: Path) -> None:
        self._root = root / "pods"

    def pod(self, uid: str) -> Path:
        """The directory of a pod."""
        return self._root / uid

    def known(self) -> list[str]:
        """UIDs of pods that have a directory."""
        return [entry.name for entry in self._root.iterdir()] if self._root.is_dir() else []

    def volume(self, uid: str, volume: Mapping[str, Any]) -> Path:
        """Where a volume is. Raises `ConfigError` for a kind that this node does not have."""
        if "hostPath" in volume:
            return Path(str(volume["hostPath"]["path"]))
        for field, kind in _KINDS.items():
            if field in volume:
                return self.pod(uid) / "volumes" / f"kubernetes.io~{kind}" / str(volume["name"])
        kinds = ", ".join(key for key in volume if key != "name") or "nothing"
        raise ConfigError(f'volume "{volume["name"]}": {kinds} is not supported on this node')

    def make(self, pod: Obj, volume: Mapping[str, Any], files: Files | None) -> bool:
        """Have a volume ready, with these files; whether it changed. Raises `ConfigError`, OSError."""
        if "image" in volume:
            return False  # its files are in the runtime, which mounts them
        uid = pod["metadata"]["uid"]
        place = self.volume(uid, volume)
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if "hostPath" in volume:
            _host_path(place, volume["hostPath"].get("type") or "")
            return False
        fresh = not place.is_dir()
        place.mkdir(parents=True, exist_ok=True)
        empty = volume.get("emptyDir") or {}
        if (files is not None and holds_secrets(volume)) or empty.get("medium") == "Memory":
            _mount_memory(place, empty.get("sizeLimit"))
        sticky = stat.S_ISVTX if empty.get("medium") == "Memory" else 0  # as the kernel makes a tmpfs
        if fresh or not os.listdir(place):  # noqa: PTH208 - only whether there is anything
            place.chmod(sticky | 0o777 if files is None else 0o755)
            if group is not None:
                os.chown(place, -1, group)
                place.chmod(sticky | 0o2777 if files is None else 0o2775)
        return write_files(place, files, group) if files is not None else fresh

    def note(self, pod: Obj) -> None:
        """Write down which pod has a directory here: its name and its class, by which the rest is found."""
        meta, file = pod["metadata"], self.pod(pod["metadata"]["uid"]) / _NOTE
        if not file.exists():
            told = {key: meta[key] for key in ("namespace", "name", "uid")}
            qos = (pod.get("status") or {}).get("qosClass") or qos_class(pod["spec"])
            write_whole(file, json.dumps({"metadata": told, "spec": {}, "status": {"qosClass": qos}}), parents=True)

    def noted(self, uid: str) -> Obj | None:
        """As much of a pod as was written down; None if it was not, or can not be read."""
        try:
            found = json.loads((self.pod(uid) / _NOTE).read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def empty(self, uid: str) -> None:
        """Everything of a pod but its note; what is mounted there is unmounted first. Raises OSError."""
        directory = self.pod(uid)
        for mount in mounts_below(directory):
            _run(["umount", str(mount)])
        for entry in list(directory.iterdir()) if directory.is_dir() else ():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != _NOTE:
                entry.unlink()

    def remove(self, uid: str) -> None:
        """Everything of a pod, the note last. Raises OSError."""
        self.empty(uid)
        if self.pod(uid).is_dir():
            shutil.rmtree(self.pod(uid))

    def mount(
        self,
        pod: Obj,
        mount: Mapping[str, Any],
        expand: Callable[[str], str],
        images: Mapping[str, cri.ImageSpec] = MappingProxyType({}),
    ) -> cri.Mount:
        """Turn a container's volumeMount into a mount of the CRI. Raises `ConfigError`, OSError.

        `images` are those of the pod's image volumes, by the volumes' names.
        """
        listed = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        if mount["name"] not in listed:
            raise ConfigError(f'volume "{mount["name"]}" is mounted but the pod has no such volume')
        below = expand(mount["subPathExpr"]) if mount.get("subPathExpr") else mount.get("subPath") or ""
        if mount["name"] in images:
            return cri.Mount(
                container_path=mount["mountPath"],
                readonly=True,
                propagation=cri.PROPAGATION_PRIVATE,
                image=images[mount["name"]],
                image_sub_path=below,
            )
        place = self.volume(pod["metadata"]["uid"], listed[mount["name"]])
        if below:
            place = _sub_path(place, below)
        return cri.Mount(
            container_path=mount["mountPath"],
            host_path=str(place),
            readonly=bool(mount.get("readOnly")),
            propagation=_PROPAGATION[mount.get("mountPropagation") or "None"],
        )


def mounts_below(directory: Path) -> list[Path]:
    """What is mounted in a directory, the deepest first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    # The kernel writes blanks as octal numbers.
    points = [Path(line.split()[1].replace("\\040", " ")) for line in lines]
    return sorted((point for point in points if point.is_relative_to(directory)), key=lambda p: -len(p.parts))


def _mount_memory(place: Path, size: str | None) -> None:
    if place in mounts_below(place):
        return
    options = ["-o", f"size={parse_quantity(size).value()}"] if size and parse_quantity(size).value() else []
    _run(["mount", "-t", "tmpfs", *options, "tmpfs", str(place)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def _sub_path(volume: Path, below: str) -> Path:
    """A path within a volume, made if it is not there; links may not lead out of it."""
    if below.startswith("/") or ".." in Path(below).parts:
        raise ConfigError(f'subPath "{below}" must be relative and without ..')
    target = volume / below
    base = volume.resolve()
    if not target.resolve().is_relative_to(base):
        raise ConfigError(f'subPath "{below}" leads out of its volume')
    if not target.exists():
        # Each directory is as open as the volume, with its group where fsGroup has set that bit.
        mode = stat.S_IMODE(base.stat().st_mode)
        for part in reversed([target, *target.parents]):
            if part.is_relative_to(volume) and not part.exists():
                part.mkdir()
                part.chmod(mode)
    return target.resolve()


def _host_path(path: Path, kind: str) -> None:
    """Check a hostPath volume against its type. Raises `ConfigError`."""
    if kind == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        kind = "Directory"
    elif kind == "FileOrCreate":
        if not path.exists():
            path.touch(mode=0o644)
        kind = "File"
    if not kind:
        return
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"hostPath type check failed: {path}: {error.strerror}") from error
    if not _TESTS[kind](mode):
        raise ConfigError(f"hostPath type check failed: {path} is not a {kind}")
