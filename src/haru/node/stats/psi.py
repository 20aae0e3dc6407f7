"""Pressure: for which share of the time work was stalled for want of cpu, memory or input and output.

Source: KEP-4205 (GA in 1.36), the kernel's PSI files. Totals are microseconds, as the kernel counts them; the Summary
API passes them on as they are.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

RESOURCES = ("cpu", "memory", "io")
_NOT_THERE = {errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV}
_AVERAGES = ("avg10", "avg60", "avg300")
FAMILIES = {
    ("cpu", "some"): ("container_pressure_cpu_waiting_seconds_total", "tasks have waited due to CPU congestion"),
    ("cpu", "full"): ("container_pressure_cpu_stalled_seconds_total", "no task could run for want of CPU"),
    ("memory", "some"): ("container_pressure_memory_waiting_seconds_total", "tasks have waited for memory"),
    ("memory", "full"): ("container_pressure_memory_stalled_seconds_total", "no task could run for want of memory"),
    ("io", "some"): ("container_pressure_io_waiting_seconds_total", "tasks have waited for input and output"),
    ("io", "full"): ("container_pressure_io_stalled_seconds_total", "no task could run for input and output"),
}
"""Metric and what it counts, by resource and kind of stall."""


@dataclass(frozen=True, slots=True)
class PsiData:
    """One line: percentages over 10, 60 and 300 seconds, and microseconds since the group was made."""

    total: int = 0
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0

    def json(self) -> dict[str, Any]:
        """As in the Summary API."""
        return {"total": self.total, "avg10": self.avg10, "avg60": self.avg60, "avg300": self.avg300}


@dataclass(frozen=True, slots=True)
class PsiStats:
    """`some`: at least one task was stalled; `full`: all of them at once."""

    full: PsiData
    some: PsiData

    def json(self) -> dict[str, Any]:
        """As in the Summary API."""
        return {"full": self.full.json(), "some": self.some.json()}


class PsiError(ValueError):
    """A pressure file that cannot be parsed; the message names file and line."""


def parse(text: str, source: str) -> PsiStats:
    """Parse a pressure file. Kernels before 5.13 have no line `full` for cpu. Raises PsiError."""
    lines: dict[str, PsiData] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind in ("some", "full"):
            lines[kind] = _data(rest, f"{source}: {line!r}")
    if not lines:
        raise PsiError(f"{source}: there is neither a line some nor a line full")
    return PsiStats(lines.get("full", PsiData()), lines.get("some", PsiData()))


def _data(text: str, where: str) -> PsiData:
    values: dict[str, str] = {}
    for entry in text.split():
        key, is_pair, value = entry.partition("=")
        if not is_pair:
            raise PsiError(f"{where}: {entry!r} is no KEY=VALUE")
        values[key] = value
    try:
        averages = [float(values.get(key, "0")) for key in _AVERAGES]
        total = int(values.get("total", "0"))
    except ValueError as error:
        raise PsiError(f"{where}: {error}") from None
    if total < 0 or not all(isfinite(average) and average >= 0 for average in averages):
        raise PsiError(f"{where}: a share of time is neither negative nor beyond number")
    return PsiData(total, *averages)


def read(group: Path, resource: str) -> PsiStats | None:
    """The pressure of a group; None where the kernel does not account it. Raises PsiError and OSError."""
    file = group / f"{resource}.pressure"
    try:
        # Once: what two reads say does not belong together.
        text = file.read_text()
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise
    return parse(text, str(file))


def is_available(unified: Path | None) -> bool:
    """Whether the kernel accounts pressure; checked once, at the start (1.36)."""
    return unified is not None and read(unified, "cpu") is not None


def read_all(group: Path) -> dict[str, PsiStats]:
    """What there is of a group, by resource."""
    found = {resource: read(group, resource) for resource in RESOURCES}
    return {resource: stats for resource, stats in found.items() if stats is not None}


def samples(labels: str, found: Mapping[str, PsiStats], milliseconds: int) -> list[tuple[str, str]]:
    """Samples of the six families for one group: family and line. Averages are not told: `rate()` makes them."""
    told = []
    for (resource, kind), (family, _) in FAMILIES.items():
        stats = found.get(resource)
        if stats is not None:
            total = (stats.some if kind == "some" else stats.full).total
            told.append((family, f"{family}{{{labels}}} {total / 1e6!r} {milliseconds}"))
    return told
