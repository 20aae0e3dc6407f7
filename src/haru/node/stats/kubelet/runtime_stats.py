"""What a runtime tells of its containers, as the values that figures are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.cri.stats import ContainerStats, CpuUsage, MemoryUsage, PressureData, PressureStats
from haru.node.stats.kubelet.snapshot import FileSystem, Reading
from haru.node.stats.psi import PsiData, PsiStats


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
        try:
            stats = await self._runtime.container_stats()
        except CriError as error:
            if error.code == "UNIMPLEMENTED":
                self._is_there = False
                return {}
            raise OSError(str(error)) from error
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
