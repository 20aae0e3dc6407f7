"""How much of each resource is free on this machine, and what its pods use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from haru.kube.meta import Obj
from haru.node.cgroups.paths import kubepods
from haru.node.cri.client import RuntimeClient
from haru.node.eviction.disk_usage import disk_of
from haru.node.eviction.ranking import ContainerUsage, Disk, PodUsage
from haru.node.eviction.thresholds import MEMORY, PIDS, PODS_MEMORY, Observation
from haru.node.stats.kubelet import readings
from haru.node.stats.kubelet.collector import HostPaths
from haru.node.stats.kubelet.snapshot import FileSystem, PodFigures
from haru.node.volumes.pod_volumes import PodVolumes


@dataclass(frozen=True, slots=True)
class Signals:
    """One look at the machine."""

    seen: Mapping[str, Observation]
    image_disk: bool
    """Whether images and writable layers have a file system of their own."""


async def observe(runtime: RuntimeClient, paths: HostPaths) -> Signals:
    """Look at the machine. Raises `CriError`."""
    return await asyncio.to_thread(_observed, paths, await runtime.image_directory())


def _observed(paths: HostPaths, images: str) -> Signals:
    seen: dict[str, Observation] = {}
    node = readings.read_node(paths.proc, paths.hierarchies, pressure=False)
    pods = readings.read_group(paths.hierarchies, kubepods(paths.cgroup_root).path(paths.driver), pressure=False)
    for signal, found in ((MEMORY, node), (PODS_MEMORY, pods)):
        if found is not None and found.available is not None and found.working_set is not None:
            seen[signal] = Observation(found.available, found.available + found.working_set)
    seen |= _of_disk("nodefs", readings.file_system(paths.root))
    if images:
        seen |= _of_disk("imagefs", readings.file_system(Path(images)))
    most, processes = readings.processes(paths.proc)
    if most is not None and processes is not None:
        seen[PIDS] = Observation(most - processes, most)
    return Signals(seen, bool(images) and not same_device(images, paths.root))


def _of_disk(name: str, found: FileSystem | None) -> dict[str, Observation]:
    if found is None:
        return {}
    told = {}
    for signal, available, capacity in (
        ("available", found.available, found.capacity),
        ("inodesFree", found.inodes_free, found.inodes),
    ):
        # A file system without a fixed number of inodes says 0.
        if available is not None and capacity:
            told[f"{name}.{signal}"] = Observation(available, capacity)
    return told


def pod_usage(pod: Obj, found: PodFigures, volumes: PodVolumes) -> PodUsage:
    """What a pod uses. Walks through its volumes: run it in a thread."""
    kept = [one for one in pod["spec"].get("volumes") or () if is_on_disk(one)]
    total = Disk()
    for volume in kept:
        total = total.plus(disk_of(volumes.volume(found.uid, volume)))
    return PodUsage(
        memory=found.reading.working_set or 0,
        processes=found.reading.processes or 0,
        containers={
            one.name: ContainerUsage(one.reading.working_set, _disk(one.rootfs), _disk(one.logs))
            for one in found.containers
        },
        volumes=total,
    )


def _disk(found: FileSystem | None) -> Disk | None:
    return None if found is None else Disk(found.used or 0, found.inodes_used or 0)


def is_on_disk(volume: Obj) -> bool:
    """Whether a volume's files are on the node's disk, and the pod's own."""
    return "configMap" in volume or ("emptyDir" in volume and not (volume["emptyDir"] or {}).get("medium"))


def same_device(mountpoint: str, root: Path) -> bool:
    """Whether two directories are on one file system; so they are for a runtime that tells no other."""
    try:
        return not mountpoint or os.stat(mountpoint).st_dev == root.stat().st_dev  # noqa: PTH116
    except OSError:
        return True
