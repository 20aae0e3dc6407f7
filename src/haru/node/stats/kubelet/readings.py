"""Readings of cgroups and /proc; None for what is missing, as groups vanish while they are read.

The root directories are arguments, so that a recorded tree can stand for a machine. Source: cgroups(7), the kernel's
documentation of both versions; the working set is usage without inactive file pages, as cAdvisor has it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from haru.node.cgroups.host import Hierarchies
from haru.node.stats import psi
from haru.node.stats.kubelet.snapshot import FileSystem, Interface, Reading

_UNLIMITED = 1 << 60
_NANOSECONDS = 1_000_000_000


def read_group(found: Hierarchies, path: str, *, pressure: bool) -> Reading | None:
    """A group by its path below the root; None for one that is gone."""
    below = path.strip("/")
    if found.mode == "unified":
        assert found.unified is not None
        place = found.unified / below
        return _unified(place, pressure) if place.is_dir() else None
    return _legacy(found, below, pressure)


def _unified(place: Path, pressure: bool) -> Reading:
    memory = number(place / "memory.current")
    stat = pairs(place / "memory.stat")
    limit = number(place / "memory.max")
    micros = pairs(place / "cpu.stat").get("usage_usec")
    working_set = None if memory is None else max(0, memory - stat.get("inactive_file", 0))
    return Reading(
        cpu=None if micros is None else micros * 1000,
        memory=memory,
        working_set=working_set,
        rss=stat.get("anon"),
        available=_available(limit, working_set),
        faults=stat.get("pgfault"),
        major_faults=stat.get("pgmajfault"),
        swap=number(place / "memory.swap.current"),
        swap_limit=number(place / "memory.swap.max"),
        processes=number(place / "pids.current"),
        psi=psi.read_all(place) if pressure else {},
    )


def _legacy(found: Hierarchies, below: str, pressure: bool) -> Reading | None:
    """Of version 1, and what a hybrid machine's unified hierarchy knows of the same group: its pressure."""
    accounts = next((found.root / name for name in ("cpuacct", "cpu,cpuacct") if (found.root / name).is_dir()), None)
    memory_place = found.root / "memory" / below
    if not memory_place.is_dir() and (accounts is None or not (accounts / below).is_dir()):
        return None
    stat = pairs(memory_place / "memory.stat")
    memory, both = number(memory_place / "memory.usage_in_bytes"), number(memory_place / "memory.memsw.usage_in_bytes")
    limit = number(memory_place / "memory.limit_in_bytes")
    working_set = None if memory is None else max(0, memory - stat.get("total_inactive_file", 0))
    unified = found.unified / below if found.unified is not None else None
    return Reading(
        cpu=number(accounts / below / "cpuacct.usage") if accounts is not None else None,
        memory=memory,
        working_set=working_set,
        rss=stat.get("total_rss"),
        available=_available(limit, working_set),
        faults=stat.get("total_pgfault"),
        major_faults=stat.get("total_pgmajfault"),
        swap=None if memory is None or both is None else max(0, both - memory),
        processes=number(found.root / "pids" / below / "pids.current"),
        psi=psi.read_all(unified) if pressure and unified is not None else {},
    )


def _available(limit: int | None, working_set: int | None) -> int | None:
    if limit is None or limit >= _UNLIMITED or working_set is None:
        return None
    return max(0, limit - working_set)


def read_node(proc: Path, found: Hierarchies, *, pressure: bool) -> Reading:
    """The whole machine: memory as /proc has it, which also counts what is in no group."""
    memory = meminfo(proc)
    vm = pairs(proc / "vmstat")
    used = memory["MemTotal"] - memory["MemFree"] if "MemTotal" in memory and "MemFree" in memory else None
    working_set = None if used is None else max(0, used - memory.get("Inactive(file)", 0))
    capacity = memory.get("MemTotal")
    swap = memory["SwapTotal"] - memory["SwapFree"] if "SwapTotal" in memory and "SwapFree" in memory else None
    return Reading(
        cpu=_cpu_time(proc),
        memory=used,
        working_set=working_set,
        rss=memory.get("AnonPages"),
        available=None if capacity is None or working_set is None else max(0, capacity - working_set),
        faults=vm.get("pgfault"),
        major_faults=vm.get("pgmajfault"),
        swap=swap,
        swap_limit=memory.get("SwapTotal"),
        psi=node_pressure(proc, found) if pressure else {},
    )


def node_pressure(proc: Path, found: Hierarchies) -> dict[str, psi.PsiStats]:
    """Of the root group, which is that of the machine."""
    if found.unified is not None and (here := psi.read_all(found.unified)):
        return here
    told = {}
    for resource in psi.RESOURCES:
        file = proc / "pressure" / resource
        try:
            told[resource] = psi.parse(file.read_text(), str(file))
        except OSError:
            continue
    return told


def _cpu_time(proc: Path) -> int | None:
    """Nanoseconds in which cpus did something: without being idle, and without what guests did, which is in it."""
    text = _text(proc / "stat")
    first = text.split("\n", 1)[0].split() if text else []
    if first[:1] != ["cpu"] or len(first) < 9:
        return None
    user, nice, system, _idle, _wait, hard, soft, steal = map(int, first[1:9])
    return (user + nice + system + hard + soft + steal) * (_NANOSECONDS // os.sysconf("SC_CLK_TCK"))


def booted(proc: Path) -> datetime | None:
    """When the machine was started."""
    seconds = pairs(proc / "stat").get("btime")
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def meminfo(proc: Path) -> dict[str, int]:
    """Sizes in bytes by name."""
    found = {}
    for line in (_text(proc / "meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if parts and parts[0].isdigit():
            found[name] = int(parts[0]) * (1024 if parts[-1] == "kB" else 1)
    return found


def interfaces(proc: Path, process: str = "self") -> list[Interface]:
    """The interfaces that a process sees, without its loopback."""
    found = []
    for line in (_text(proc / process / "net" / "dev") or "").splitlines():
        name, colon, rest = line.partition(":")
        figures = rest.split()
        if colon and len(figures) >= 16 and name.strip() != "lo":
            received, errors, sent, send_errors = (int(figures[index]) for index in (0, 2, 8, 10))
            found.append(Interface(name.strip(), received, errors, sent, send_errors))
    return found


def processes(proc: Path) -> tuple[int | None, int | None]:
    """How many there may be, and how many threads there are."""
    parts = (_text(proc / "loadavg") or "").split()
    running = parts[3].partition("/")[2] if len(parts) > 3 else ""
    bounds = [number(proc / "sys/kernel" / name) for name in ("pid_max", "threads-max")]
    most = min((bound for bound in bounds if bound is not None), default=None)
    return most, int(running) if running.isdigit() else None


def file_system(path: Path) -> FileSystem | None:
    """The file system of a directory."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    capacity, free = found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize
    return FileSystem(
        used=capacity - free,
        inodes_used=found.f_files - found.f_ffree,
        capacity=capacity,
        available=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_ffree,
    )


def size_of(directory: Path) -> tuple[int, int]:
    """Bytes on disk and files of a flat directory, such as one of logs."""
    used = count = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                except OSError:
                    continue
                count += 1
    except OSError:
        return 0, 0
    return used, count


def members(found: Hierarchies, path: str) -> list[tuple[str, str]]:
    """The groups directly within one: names and paths."""
    roots = [found.unified] if found.mode == "unified" else [found.root / "memory", found.root / "cpuacct"]
    for root in roots:
        if root is None:
            continue
        try:
            names = sorted(entry.name for entry in os.scandir(root / path.strip("/")) if entry.is_dir())
        except OSError:
            continue
        return [(name, f"{path.rstrip('/')}/{name}") for name in names]
    return []


def first_process(found: Hierarchies, path: str) -> str | None:
    """A process of a group."""
    roots = [found.unified] if found.mode == "unified" else [found.root / "memory", found.root / "cpuacct"]
    for root in roots:
        text = _text(root / path.strip("/") / "cgroup.procs") if root is not None else None
        if text:
            return text.split("\n", 1)[0].strip()
    return None


def pairs(file: Path) -> Mapping[str, int]:
    """A file of lines NAME NUMBER."""
    found = {}
    for line in (_text(file) or "").splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[name] = int(value)
    return found


def number(file: Path) -> int | None:
    """A file of one number; None for `max`, and for what is not there."""
    text = (_text(file) or "").strip()
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
