# ruff: noqa: D101 - the classes are the messages of the same names in the CRI
"""What a runtime counts of containers, as field tables. Source: the published CRI, v1 (the one of Kubernetes 1.36).

The names of the fields of pressure begin with capitals there; only numbers count on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.messages import Message, one, real, table, text, whole, wrapped
from haru.node.cri.containers import ContainerMetadata


@dataclass(slots=True)
class PressureData(Message):
    total: int = whole(1)
    avg10: float = real(2)
    avg60: float = real(3)
    avg300: float = real(4)


@dataclass(slots=True)
class PressureStats(Message):
    full: PressureData | None = one(1, lambda: PressureData)
    some: PressureData | None = one(2, lambda: PressureData)


@dataclass(slots=True)
class ContainerAttributes(Message):
    id: str = text(1)
    metadata: ContainerMetadata | None = one(2, lambda: ContainerMetadata)
    labels: dict[str, str] = table(3)
    annotations: dict[str, str] = table(4)


@dataclass(slots=True)
class CpuUsage(Message):
    timestamp: int = whole(1)
    usage_core_nano_seconds: int | None = wrapped(2)
    usage_nano_cores: int | None = wrapped(3)
    psi: PressureStats | None = one(4, lambda: PressureStats)


@dataclass(slots=True)
class MemoryUsage(Message):
    timestamp: int = whole(1)
    working_set_bytes: int | None = wrapped(2)
    available_bytes: int | None = wrapped(3)
    usage_bytes: int | None = wrapped(4)
    rss_bytes: int | None = wrapped(5)
    page_faults: int | None = wrapped(6)
    major_page_faults: int | None = wrapped(7)
    psi: PressureStats | None = one(8, lambda: PressureStats)


@dataclass(slots=True)
class FilesystemIdentifier(Message):
    mountpoint: str = text(1)


@dataclass(slots=True)
class FilesystemUsage(Message):
    timestamp: int = whole(1)
    fs_id: FilesystemIdentifier | None = one(2, lambda: FilesystemIdentifier)
    used_bytes: int | None = wrapped(3)
    inodes_used: int | None = wrapped(4)


@dataclass(slots=True)
class SwapUsage(Message):
    timestamp: int = whole(1)
    swap_available_bytes: int | None = wrapped(2)
    swap_usage_bytes: int | None = wrapped(3)


@dataclass(slots=True)
class IoUsage(Message):
    timestamp: int = whole(1)
    psi: PressureStats | None = one(2, lambda: PressureStats)


@dataclass(slots=True)
class ContainerStats(Message):
    attributes: ContainerAttributes | None = one(1, lambda: ContainerAttributes)
    cpu: CpuUsage | None = one(2, lambda: CpuUsage)
    memory: MemoryUsage | None = one(3, lambda: MemoryUsage)
    writable_layer: FilesystemUsage | None = one(4, lambda: FilesystemUsage)
    swap: SwapUsage | None = one(5, lambda: SwapUsage)
    io: IoUsage | None = one(6, lambda: IoUsage)


@dataclass(slots=True)
class ContainerStatsFilter(Message):
    id: str = text(1)
    pod_sandbox_id: str = text(2)
    label_selector: dict[str, str] = table(3)
