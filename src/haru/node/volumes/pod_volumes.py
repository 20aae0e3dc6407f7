"""Volumes of pods on this machine: paths, setup, teardown.

`ROOT/pods/UID/volumes/kubernetes.io~KIND/NAME`, as kubelets have it. What holds secrets, tokens or facts of the pod is
in memory (tmpfs). All calls do input and output and may block: run them in a thread.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from haru.files import write_whole
from haru.kube.meta import Obj
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.pod_environment.volume_files import Files, in_memory, is_made_of_objects
from haru.kube.quantity import parse_quantity
from haru.kube.strategy import qos_class
from haru.node.cgroups.amounts import pod_amounts
from haru.node.volumes.atomic import write_files
from haru.node.volumes.host_path import check_host_path
from haru.node.volumes.huge_pages import MEDIUM, page_size
from haru.node.volumes.ownership import give_to_group
from haru.node.volumes.sub_path import make_sub_path, sub_path_of
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


@dataclass(frozen=True, slots=True)
class MountInputs:
    """What the mounts of a container depend on."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Its environment, for `subPathExpr`."""
    images: Mapping[str, cri.ImageSpec] = field(default_factory=dict)
    """Those of the pod's image volumes, by the volumes' names."""
    recursive_read_only: bool = False
    """Whether the runtime can mount what is below a volume read-only, too."""


class PodVolumes:
    """The volumes under a directory of the agent's own; `memory` is what the node has for pods, in bytes."""

    def __init__(self, root: Path, memory: int = 0) -> None:
        self._root, self._memory = root / "pods", memory

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
        for source, kind in _KINDS.items():
            if source in volume:
                return self.pod(uid) / "volumes" / f"kubernetes.io~{kind}" / str(volume["name"])
        kinds = ", ".join(key for key in volume if key != "name") or "nothing"
        raise ConfigError(f'volume "{volume["name"]}": {kinds} is not supported on this node')

    def make(self, pod: Obj, volume: Mapping[str, Any], files: Files | None) -> bool:
        """Have a volume ready, with these files; whether it changed. Raises `ConfigError`, OSError."""
        if "image" in volume:
            return False  # its files are in the runtime, which mounts them
        place = self.volume(pod["metadata"]["uid"], volume)
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if "hostPath" in volume:
            check_host_path(place, volume["hostPath"].get("type") or "")
            return False
        fresh = _make_directory(place, group)
        medium = (volume.get("emptyDir") or {}).get("medium") or ""
        if in_memory(volume) and not any(place.iterdir()):
            _mount_memory(place, self._size(pod, volume), group)
        elif medium.startswith(MEDIUM):
            _mount_huge_pages(place, page_size(pod, medium), group)
        if files is None:
            return fresh
        for below in nested_mounts(pod, volume["name"]):
            (place / below).mkdir(parents=True, exist_ok=True)
        return write_files(place, files, group)

    def _size(self, pod: Obj, volume: Mapping[str, Any]) -> int:
        """How much may be in a volume in memory: at most what the pod may have, or the node; 0: any size."""
        limit = (volume.get("emptyDir") or {}).get("sizeLimit")
        sizes = (self._memory, pod_amounts(pod).memory_limit, parse_quantity(limit).value() if limit else 0)
        return min((size for size in sizes if size > 0), default=0)

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

    def mount(self, pod: Obj, container: str, mount: Mapping[str, Any], inputs: MountInputs) -> cri.Mount:
        """Turn a container's volumeMount into a mount of the CRI. Raises `ConfigError`, OSError."""
        below = sub_path_of(mount, inputs.variables)
        if (image := inputs.images.get(mount["name"])) is not None:
            return cri.Mount(
                container_path=mount["mountPath"],
                readonly=True,
                propagation=cri.PROPAGATION_PRIVATE,
                image=image,
                image_sub_path=below,
            )
        listed = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        if (volume := listed.get(mount["name"])) is None:
            raise ConfigError(f'cannot find volume "{mount["name"]}" to mount into container "{container}"')
        place: Path | None = self.volume(pod["metadata"]["uid"], volume)
        if place is not None and below and (place := make_sub_path(place, below)) is None:
            # No more of it: whoever reads this may not see the machine's files.
            named = f'volumeMount "{mount["name"]}" of container "{container}"'
            raise ConfigError(f"failed to prepare subPath for {named}")
        return cri.Mount(
            container_path=mount["mountPath"],
            host_path=str(place),
            readonly=bool(mount.get("readOnly")) or is_made_of_objects(volume),
            recursive_read_only=_recursive(mount, inputs.recursive_read_only),
            propagation=_PROPAGATION[mount.get("mountPropagation") or "None"],
        )


def _recursive(mount: Mapping[str, Any], has: bool) -> bool:
    """Whether what is below a mount is read-only, too. Raises `ConfigError`."""
    wanted = mount.get("recursiveReadOnly") or "Disabled"
    if wanted == "Enabled" and not has:
        raise ConfigError(
            f'failed to resolve recursive read-only mode: volume "{mount["name"]}" requested recursive read-only mode, '
            "but it is not supported by the runtime"
        )
    return has and wanted != "Disabled"


def nested_mounts(pod: Obj, name: str) -> list[str]:
    """Where containers mount other volumes within a volume, relative to it: a read-only one must have these places."""
    spec, found = pod["spec"], []
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = container.get("volumeMounts") or ()
        paths = sorted(PurePosixPath(mount["mountPath"]) for mount in mounts)
        for own in (PurePosixPath(mount["mountPath"]) for mount in mounts if mount["name"] == name):
            inner = [path for path in paths if own in path.parents]
            found += [str(path.relative_to(own)) for path in inner if not set(inner) & set(path.parents)]
    return found


def mounts_below(directory: Path) -> list[Path]:
    """What is mounted in a directory, the deepest first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    # The kernel writes blanks as octal numbers.
    points = [Path(line.split()[1].replace("\\040", " ")) for line in lines]
    return sorted((point for point in points if point.is_relative_to(directory)), key=lambda p: -len(p.parts))


def _make_directory(place: Path, group: int | None) -> bool:
    """Make the directory of a volume, under its name only when its mode is right; whether it was missing.

    From then on its mode is the pod's affair.
    """
    if place.is_dir():
        return False
    fresh = place.with_name(f".{place.name}.new")
    fresh.mkdir(parents=True, exist_ok=True)
    fresh.chmod(0o777)
    if group is not None:
        give_to_group(fresh, group, read_only=False)
    fresh.rename(place)
    return True


def _mount_memory(place: Path, size: int, group: int | None) -> None:
    if place in mounts_below(place):
        return
    options = [f"size={size}"] if size else []
    options += ["mode=1777"] if group is None else ["mode=3777", f"gid={group}"]
    options += ["noswap"] if _has_noswap(platform.release()) else []
    _run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)])


def _mount_huge_pages(place: Path, size: str, group: int | None) -> None:
    if place in mounts_below(place):
        return
    _run(["mount", "-t", "hugetlbfs", "-o", f"pagesize={size}", "nodev", str(place)])
    if group is not None:
        give_to_group(place, group, read_only=False)


def _has_noswap(kernel: str) -> bool:
    """Whether a kernel can keep a tmpfs out of swap (6.4)."""
    found = re.match(r"(\d+)\.(\d+)", kernel)
    return found is not None and (int(found[1]), int(found[2])) >= (6, 4)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
