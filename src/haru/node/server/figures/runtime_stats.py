# ruff: noqa: D101 - the classes are the messages of the same names in the CRI
"""What a runtime tells of its containers: `ListContainerStats`. Source: the published CRI, v1.

The names of the fields of pressure begin with capitals there; only numbers count on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from haru.messages import Message, many, one, real, text, whole, wrapped
from haru.node.cri.client import RuntimeClient
from haru.node.cri.containers import ContainerFilter
from haru.node.cri.errors import CriError
from haru.node.cri.listing import RUNTIME
from haru.node.psi import PsiData, PsiStats
from haru.node.server.figures.snapshot import FileSystem, Reading
from haru.protobuf import WireError


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
class FilesystemUsage(Message):
    timestamp: int = whole(1)
    used_bytes: int | None = wrapped(3)
    inodes_used: int | None = wrapped(4)


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
    io: IoUsage | None = one(6, lambda: IoUsage)


@dataclass(slots=True)
class ListContainerStatsRequest(Message):
    filter: ContainerFilter | None = one(1, lambda: ContainerFilter)


@dataclass(slots=True)
class ListContainerStatsResponse(Message):
    stats: list[ContainerStats] = many(1, lambda: ContainerStats)


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What the runtime tells of one container."""

    reading: Reading
    rootfs: FileSystem | None = None


class RuntimeStats:
    """Asks one runtime; one that has no such call is asked once."""

    def __init__(self, runtime: RuntimeClient) -> None:
        self._runtime = runtime
        self._is_there = True

    async def uses(self) -> Mapping[str, ContainerUse]:
        """By container. Raises OSError."""
        if not self._is_there:
            return {}
        request = ListContainerStatsRequest(ContainerFilter()).encode()
        try:
            data = await self._runtime.unary("list_container_stats", RUNTIME + "ListContainerStats", request)
            stats = ListContainerStatsResponse.decode(data).stats
        except CriError as error:
            if error.code == "UNIMPLEMENTED":
                self._is_there = False
                return {}
            raise OSError(str(error)) from error
        except WireError as error:
            raise OSError(f"the runtime's answer can not be read: {error}") from error
        return {found.attributes.id: use_of(found) for found in stats if found.attributes is not None}


def use_of(stats: ContainerStats) -> ContainerUse:
    """One container's message as values."""
    cpu, memory, layer = stats.cpu or CpuUsage(), stats.memory or MemoryUsage(), stats.writable_layer
    told = {"cpu": cpu.psi, "memory": memory.psi, "io": stats.io.psi if stats.io is not None else None}
    reading = Reading(
        cpu=cpu.usage_core_nano_seconds,
        nano_cores=cpu.usage_nano_cores,
        memory=memory.usage_bytes,
        working_set=memory.working_set_bytes,
        rss=memory.rss_bytes,
        available=memory.available_bytes,
        faults=memory.page_faults,
        major_faults=memory.major_page_faults,
        psi={name: _pressure(found) for name, found in told.items() if found is not None},
    )
    return ContainerUse(reading, None if layer is None else FileSystem(layer.used_bytes, layer.inodes_used))


def _pressure(found: PressureStats) -> PsiStats:
    return PsiStats(_data(found.full), _data(found.some))


def _data(found: PressureData | None) -> PsiData:
    return PsiData() if found is None else PsiData(found.total, found.avg10, found.avg60, found.avg300)
