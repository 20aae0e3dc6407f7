"""Where the control groups of pods are, for both drivers.

Source: the kubelet's cgroup manager (cgroup names, systemd's slices), as behaviour; systemd.slice(5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

Driver = Literal["cgroupfs", "systemd"]
DRIVERS: tuple[Driver, ...] = ("cgroupfs", "systemd")
KUBEPODS = "kubepods"
QosClass = Literal["Guaranteed", "Burstable", "BestEffort"]


@dataclass(frozen=True, slots=True)
class CgroupName:
    """A control group by the names from the root on, whatever the driver makes of them: `("kubepods", "burstable")`."""

    parts: tuple[str, ...]

    def below(self, part: str) -> CgroupName:
        """A group within this one."""
        return CgroupName((*self.parts, part))

    def path(self, driver: Driver) -> str:
        """The path below the root of the hierarchy, with a leading slash."""
        if driver == "cgroupfs":
            return str(PurePosixPath("/", *self.parts))
        slices = [f"{'-'.join(escaped(self.parts[: end + 1]))}.slice" for end in range(len(self.parts))]
        return str(PurePosixPath("/", *slices))

    def parent_for_runtime(self, driver: Driver) -> str:
        """The `cgroup_parent` for a runtime: the whole path, or the name of the last slice."""
        path = self.path(driver)
        return path if driver == "cgroupfs" else PurePosixPath(path).name


def escaped(parts: Sequence[str]) -> list[str]:
    """Names as components of a slice: a dash there is a step downwards, so one within a name is written otherwise."""
    return [part.replace("-", "_") for part in parts]


def kubepods(cgroup_root: str = "/") -> CgroupName:
    """The group of all pods below the configured root."""
    return CgroupName((*(part for part in cgroup_root.split("/") if part), KUBEPODS))


def qos_cgroup(root: CgroupName, qos: QosClass) -> CgroupName:
    """The group of a class; Guaranteed pods are directly in the root of all pods."""
    return root if qos == "Guaranteed" else root.below(qos.lower())


def pod_cgroup(root: CgroupName, qos: QosClass, uid: str) -> CgroupName:
    """The group of a pod. For a static pod the UID is that of its local manifest."""
    return qos_cgroup(root, qos).below(f"pod{uid}")
