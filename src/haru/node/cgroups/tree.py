"""The groups of pods on a machine: made, given their values, removed. Nothing is decided here.

With the driver cgroupfs the files are written; with systemd its manager is told, all properties of a unit at once: what
is written beside it does not outlive its next reload.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from haru.kube.cgroup_values import weight_of
from haru.node.cgroups.amounts import Amounts
from haru.node.cgroups.host import Hierarchies
from haru.node.cgroups.paths import CgroupName

CONTROLLERS = ("cpu", "cpuset", "hugetlb", "memory", "pids")
SECONDS = 10.0
END_SECONDS = 2.0
"""How long whoever is left in a group may take to end."""
_PAUSE_SECONDS = 0.02
_PROPERTIES = {"memory.min": "MemoryMin", "memory.low": "MemoryLow", "memory.high": "MemoryHigh"}
_NO_LIMIT_V1 = "-1"


class CgroupError(Exception):
    """A group could not be made or changed; the message names file and remedy."""


class Tree(Protocol):
    """What an agent needs of either driver."""

    def apply(self, name: CgroupName, values: Mapping[str, str], amounts: Amounts | None = None) -> None:
        """Make a group if need be, and set its values. Raises CgroupError."""
        ...

    def remove(self, name: CgroupName) -> None:
        """Remove a group with its children and kill its processes; a missing one is no error.

        Nothing of the pod is to run any more: a runtime that was killed in the middle of a start may have left a
        process that it has forgotten. Raises CgroupError.
        """
        ...


class FileTree:
    """Driver cgroupfs. On a machine with controllers of version 1 those are used, and version 2 has the pressure."""

    def __init__(self, found: Hierarchies) -> None:
        self._found = found
        self._controllers = [name for name in CONTROLLERS if name in found.controllers]

    def apply(self, name: CgroupName, values: Mapping[str, str], amounts: Amounts | None = None) -> None:
        """Make a group if need be, and set its values."""
        if self._found.mode == "unified":
            self._apply_unified(name, {**(unified_values(amounts) if amounts is not None else {}), **values})
            return
        for controller, files in legacy_values(amounts).items() if amounts is not None else ():
            place = self._found.root / controller
            if place.is_dir():
                self._write_all(self._made(place, name.path("cgroupfs")), files)

    def _apply_unified(self, name: CgroupName, values: Mapping[str, str]) -> None:
        assert self._found.unified is not None
        place = self._found.unified
        for part in name.parts:
            self._enable(place)
            place = self._made(place, part)
        self._write_all(place, values)

    def _enable(self, place: Path) -> None:
        """Let the groups within a group have the controllers."""
        try:
            enabled = (place / "cgroup.subtree_control").read_text().split()
            missing = [f"+{controller}" for controller in self._controllers if controller not in enabled]
            if missing:
                _write(place / "cgroup.subtree_control", " ".join(missing))
        except OSError as error:
            raise CgroupError(
                f"{place}/cgroup.subtree_control: {error.strerror}: its controllers cannot be handed on; "
                "processes must be in groups without other groups in them"
            ) from error

    def _made(self, place: Path, below: str) -> Path:
        found = place / below.lstrip("/")
        try:
            found.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CgroupError(f"{found}: {error.strerror}: the group cannot be made") from error
        return found

    def _write_all(self, place: Path, values: Mapping[str, str]) -> None:
        for file, value in values.items():
            try:
                _write(place / file, value)
            except OSError as error:
                hint = ""
                if error.errno in (errno.ENOENT, errno.EACCES) and not (place / file).exists():
                    controller = file.partition(".")[0]
                    hint = f": the controller {controller} is not enabled in {place.parent}/cgroup.subtree_control"
                raise CgroupError(f"{place / file}: {error.strerror}{hint}: {value} was not written") from error

    def remove(self, name: CgroupName) -> None:
        """Remove a group with its children in every hierarchy, and kill its processes."""
        path = name.path("cgroupfs").lstrip("/")
        unified = [self._found.unified] if self._found.unified is not None else []
        legacy = [] if self._found.mode == "unified" else [e for e in self._found.root.iterdir() if e.is_dir()]
        places = [place / path for place in {*unified, *legacy}]
        _end_processes(places)
        for place in places:
            _remove_all(place)


class SystemdTree:
    """Driver systemd: slices of its manager. `run` executes a command; tests put their own in its place."""

    def __init__(self, run: Callable[[Sequence[str]], None] | None = None) -> None:
        self._run = run or _run

    def apply(self, name: CgroupName, values: Mapping[str, str], amounts: Amounts | None = None) -> None:
        """Start the slice if need be, and set its properties."""
        unit = name.parent_for_runtime("systemd")
        self._run(["systemctl", "start", unit])
        properties = [f"{_PROPERTIES[key]}={value}" for key, value in sorted(values.items()) if key in _PROPERTIES]
        if amounts is not None:
            properties += [f"CPUWeight={weight_of(amounts.cpu_shares)}"]
            properties += [f"CPUQuota={amounts.cpu_quota * 100 // amounts.cpu_period}%"] if amounts.cpu_quota else []
            properties += [f"MemoryMax={amounts.memory_limit}"] if amounts.memory_limit else []
            properties += [f"TasksMax={amounts.pids}"] if amounts.pids else []
        if properties:
            self._run(["systemctl", "set-property", "--runtime", unit, *properties])

    def remove(self, name: CgroupName) -> None:
        """Stop the slice."""
        self._run(["systemctl", "stop", name.parent_for_runtime("systemd")])


def unified_values(amounts: Amounts) -> dict[str, str]:
    """The files of version 2."""
    quota = str(amounts.cpu_quota) if amounts.cpu_quota else "max"
    return {
        "cpu.weight": str(weight_of(amounts.cpu_shares)),
        "cpu.max": f"{quota} {amounts.cpu_period}",
        "memory.max": str(amounts.memory_limit) if amounts.memory_limit else "max",
        **({"pids.max": str(amounts.pids)} if amounts.pids else {}),
        **{f"hugetlb.{size}.max": str(limit) for size, limit in sorted(amounts.huge_pages.items())},
        **amounts.unified,
    }


def legacy_values(amounts: Amounts) -> dict[str, dict[str, str]]:
    """The files of version 1, by controller."""
    return {
        "cpu": {
            "cpu.shares": str(amounts.cpu_shares),
            "cpu.cfs_period_us": str(amounts.cpu_period),
            "cpu.cfs_quota_us": str(amounts.cpu_quota) if amounts.cpu_quota else _NO_LIMIT_V1,
        },
        "memory": {"memory.limit_in_bytes": str(amounts.memory_limit) if amounts.memory_limit else _NO_LIMIT_V1},
        **({"pids": {"pids.max": str(amounts.pids)}} if amounts.pids else {}),
    }


def processes(place: Path) -> list[int]:
    """Processes of a group and of groups within it; none if it is gone."""
    found: set[int] = set()
    for listed in _walk(place, "cgroup.procs"):
        with contextlib.suppress(OSError):
            found.update(int(line) for line in listed.read_text().split())
    return sorted(found)


def _walk(place: Path, file: str) -> Iterable[Path]:
    yield place / file
    for directory, names, _ in os.walk(place):
        for name in names:
            yield Path(directory) / name / file


def _end_processes(places: Sequence[Path]) -> None:
    """Kill until no process is left, or a timeout; frozen ones die when they are thawed."""
    deadline = time.monotonic() + END_SECONDS
    while left := {pid for place in places for pid in processes(place)}:
        for place in places:
            for file, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                for found in _walk(place, file):
                    with contextlib.suppress(OSError):
                        _write(found, value)
        # 0 is somebody of another pid namespace, who can not be named here.
        for pid in left - {0, os.getpid()}:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(_PAUSE_SECONDS)


def _remove_all(place: Path) -> None:
    """Groups are removed from the inside: what is in their directories is not."""
    for directory, _, _ in os.walk(place, topdown=False):
        try:
            Path(directory).rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            left = ", ".join(map(str, processes(Path(directory)))) or "none"
            raise CgroupError(
                f"{directory}: {error.strerror}: it cannot be removed (processes in it: {left})"
            ) from error


def _write(file: Path, value: str) -> None:
    # Nothing is created: a file that is not there is not one of the kernel's.
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError as error:
        raise CgroupError(f"{command[0]} is not there: the driver systemd needs systemd; use cgroupfs") from error
    except subprocess.TimeoutExpired as error:
        raise CgroupError(f"{' '.join(command)}: no answer within {SECONDS:g} s") from error
    except subprocess.CalledProcessError as error:
        raise CgroupError(f"{' '.join(command)}: {error.stderr.strip()}") from error
