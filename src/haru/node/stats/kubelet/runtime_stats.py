"""Container statistics of the runtime, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.message import Message

from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.stats.kubelet.snapshot import FileSystem, Reading
from haru.node.stats.psi import PsiData, PsiStats
from haru.proto import cri_pb2 as cri


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """The statistics of one container."""

    reading: Reading
    rootfs: FileSystem | None = None


class RuntimeStats:
    """Reads container statistics of a runtime; one without that call is tried once."""

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
        return {found.attributes.id: use_of(found) for found in stats if found.HasField("attributes")}


def use_of(stats: cri.ContainerStats) -> ContainerUse:
    """One container's message as values."""
    cpu, memory, layer = stats.cpu, stats.memory, stats.writable_layer
    reading = Reading(
        cpu=_value(cpu, "usage_core_nano_seconds"),
        nano_cores=_value(cpu, "usage_nano_cores"),
        memory=_value(memory, "usage_bytes"),
        working_set=_value(memory, "working_set_bytes"),
        rss=_value(memory, "rss_bytes"),
        available=_value(memory, "available_bytes"),
        faults=_value(memory, "page_faults"),
        major_faults=_value(memory, "major_page_faults"),
        psi={
            name: PsiStats(_pressure(use.psi.Full), _pressure(use.psi.Some))
            for name, use in (("cpu", cpu), ("memory", memory), ("io", stats.io))
            if use.HasField("psi")
        },
    )
    if not stats.HasField("writable_layer"):
        return ContainerUse(reading)
    return ContainerUse(reading, FileSystem(_value(layer, "used_bytes"), _value(layer, "inodes_used")))


def _value(message: Message, name: str) -> int | None:
    """The number in a wrapper; None without it."""
    return int(getattr(message, name).value) if message.HasField(name) else None


def _pressure(found: cri.PsiData) -> PsiData:
    return PsiData(found.Total, found.Avg10, found.Avg60, found.Avg300)
