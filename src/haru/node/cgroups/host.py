"""What a machine has: its hierarchies of control groups, their controllers, its kernel.

The root directories are arguments, so that a recorded tree can stand for a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CGROUP_ROOT = Path("/sys/fs/cgroup")
HUGE_PAGES = Path("/sys/kernel/mm/hugepages")
Mode = Literal["unified", "hybrid", "legacy"]


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """`unified` is where the second version is mounted, if it is; its `controllers` may be none (hybrid machines)."""

    mode: Mode
    root: Path
    unified: Path | None
    controllers: Sequence[str]


def hierarchies(root: Path = CGROUP_ROOT) -> Hierarchies:
    """What is mounted at a directory."""
    for mode, place in (("unified", root), ("hybrid", root / "unified")):
        listed = place / "cgroup.controllers"
        if listed.is_file():
            return Hierarchies(mode, root, place, listed.read_text().split())  # type: ignore[arg-type]
    return Hierarchies("legacy", root, None, ())


def refusal(found: Hierarchies, *, fail_cgroup_v1: bool) -> str:
    """Why the agent must not start here, as 1.36 has it; empty if it may."""
    if found.mode == "unified" or not fail_cgroup_v1:
        return ""
    return (
        f"{found.root} has control groups of version 1 ({found.mode}), which 1.36 refuses: boot with "
        "systemd.unified_cgroup_hierarchy=1, or set failCgroupV1: false (--no-fail-cgroup-v1)"
    )


def lacking(found: Hierarchies, controller: str) -> str:
    """Why a controller of the second version cannot be used; empty if it can."""
    if found.unified is None:
        return f"{found.root} has no hierarchy of version 2: {controller} is a controller of version 1 here"
    if controller not in found.controllers:
        return f"{found.unified}/cgroup.controllers does not list {controller}: it is a controller of version 1 here"
    return ""


def page_sizes(directory: Path = HUGE_PAGES) -> list[str]:
    """The sizes of huge pages by the kernel's names: `2MB`, `1GB`."""
    found = []
    for entry in directory.glob("hugepages-*kB"):
        size, unit = int(entry.name.removeprefix("hugepages-").removesuffix("kB")), "KB"
        for larger in ("MB", "GB"):
            if size >= 1024:
                size, unit = size // 1024, larger
        found.append((entry.name, f"{size}{unit}"))
    return [name for _, name in sorted(found)]
