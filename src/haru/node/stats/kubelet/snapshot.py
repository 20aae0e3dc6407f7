"""Measured values of one moment. Sizes are bytes; None: not measured on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from haru.node.stats.psi import PsiStats


@dataclass(frozen=True, slots=True)
class Reading:
    """A control group. `cpu` is nanoseconds since it was made, `nano_cores` billionths of a cpu since the last look."""

    cpu: int | None = None
    nano_cores: int | None = None
    memory: int | None = None
    working_set: int | None = None
    rss: int | None = None
    available: int | None = None
    faults: int | None = None
    major_faults: int | None = None
    swap: int | None = None
    swap_limit: int | None = None
    processes: int | None = None
    psi: Mapping[str, PsiStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface's bytes and errors, both directions."""

    name: str
    received: int
    receive_errors: int
    sent: int
    send_errors: int


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system, and how much of it belongs to what is measured."""

    used: int | None = None
    inodes_used: int | None = None
    capacity: int | None = None
    available: int | None = None
    inodes: int | None = None
    inodes_free: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerFigures:
    """A container of a pod; `group` is its control group's path."""

    name: str
    id: str
    image: str
    started: datetime | None
    group: str
    reading: Reading
    rootfs: FileSystem | None = None
    logs: FileSystem | None = None


@dataclass(frozen=True, slots=True)
class PodFigures:
    """A pod."""

    name: str
    namespace: str
    uid: str
    started: datetime | None
    group: str
    reading: Reading
    containers: Sequence[ContainerFigures] = ()
    network: Sequence[Interface] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The node at one time. `pods_group` is what all pods use together, `groups` further groups by path."""

    time: datetime
    node: str
    booted: datetime | None
    reading: Reading
    cpus: int = 0
    memory_capacity: int = 0
    pods: Sequence[PodFigures] = ()
    pods_group: tuple[str, Reading] | None = None
    groups: Sequence[tuple[str, Reading]] = ()
    network: Sequence[Interface] = ()
    file_system: FileSystem | None = None
    most_processes: int | None = None
    processes: int | None = None
