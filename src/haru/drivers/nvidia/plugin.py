"""The cards of a node as the driver library's plugin: what containers get of the devices of a claim.

A claim is done in an order that a crash does not harm: its partitions are made, then the sharing is set; back in the
opposite order. What was begun is in checkpoints, and is finished or undone when the kubelet asks again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from haru.drivers.library import Allocated, ClaimToPrepare, DeviceError, Edits, Entry, ReadyDevice
from haru.drivers.nvidia.cards import Part
from haru.drivers.nvidia.configuration import Sharing, sharing_of
from haru.drivers.nvidia.host import Host
from haru.drivers.nvidia.nvml import NvmlError
from haru.drivers.nvidia.partitions import Partitions
from haru.drivers.nvidia.sharing import SharingManager

_LOG = logging.getLogger("haru.driver")


@dataclass(frozen=True, slots=True)
class _Ready:
    """A device before its sharing."""

    allocated: Allocated
    part: Part
    uuid: str
    edits: Edits
    sharing: Sharing | None


class NvidiaCards:
    """The plugin. `recover` comes first."""

    def __init__(self, partitions: Partitions, host: Host, sharing: SharingManager, gates: Collection[str]) -> None:
        self._nvml, self._inventory = partitions.nvml, partitions.inventory
        self._host = host
        self._partitions = partitions
        self._sharing = sharing
        self._gates = frozenset(gates)
        # A call that took too long goes on in its thread: the next one waits for it.
        self._one_at_a_time = threading.Lock()

    def recover(self, claims: Collection[str]) -> None:
        """After a start: undo unprepared claims, remove orphaned partitions. Blocks."""
        with self._one_at_a_time:
            for claim in set(self._sharing.claims()) - set(claims):
                self._sharing.release(claim)
            self._partitions.recover(claims, "DynamicMIG" in self._gates)
            self._sharing.restore()

    async def prepare(self, claim: ClaimToPrepare) -> Sequence[ReadyDevice]:
        """Device files, libraries and sharing of the claim's devices. Raises `ClaimError`."""
        return await asyncio.to_thread(self._prepare, claim)

    async def unprepare(self, claim: Entry) -> None:
        """Undo it. Raises `ClaimError`."""
        await asyncio.to_thread(self._unprepare, claim.uid)

    def _prepare(self, claim: ClaimToPrepare) -> list[ReadyDevice]:
        with self._one_at_a_time:
            # What cannot be is refused before anything is made.
            wanted = [self._wanted(allocated) for allocated in claim.devices]
            ready = [self._take(claim.uid, *each) for each in wanted]
            shared = self._share(claim.uid, ready)
        return [self._told(each, shared.get(each.sharing, Edits())) for each in ready]

    def _unprepare(self, uid: str) -> None:
        with self._one_at_a_time:
            self._sharing.release(uid)
            self._partitions.release(uid)

    def _wanted(self, allocated: Allocated) -> tuple[Allocated, Part, Sharing | None]:
        part = self._inventory.parts.get(allocated.device)
        if part is None:
            raise DeviceError(allocated.device, self._why_not(allocated.device))
        return allocated, part, sharing_of(allocated, part.placement is not None, self._gates)

    def _why_not(self, device: str) -> str:
        """Why a node does not have a device, as far as its name says what it was to be."""
        for facts in self._inventory.cards.values():
            if device.startswith(f"gpu-{facts.minor}-mig-"):
                if facts.mig_mode is None:
                    return f"{facts.name} cannot be divided (MIG)"
                if "DynamicMIG" not in self._gates:
                    return "the card has no such partition, and the driver runs without DynamicMIG"
                return "the card has no such kind of partition at that place"
            if device == f"gpu-{facts.minor}":
                return "the card is divided (MIG): only its partitions can be used"
        return "this node has none of that name"

    def _take(self, claim: str, allocated: Allocated, part: Part, sharing: Sharing | None) -> _Ready:
        version, card = self._inventory.system.driver_version, part.card
        placement = part.placement
        if allocated.admin_access and "DynamicMIG" in self._gates:
            # Who only looks on neither makes a partition nor keeps others from one.
            made = None
            if placement is not None:
                made = self._existing(part)
        elif "DynamicMIG" in self._gates:
            made = self._partitions.take(claim, part)
        else:
            made = self._existing(part) if placement is not None else None
        if made is None or made.compute_instance is None:
            return _Ready(allocated, part, card.uuid, self._host.of_card(part.name, card.minor, version), sharing)
        edits = self._host.of_partition(part.name, card.minor, made.id, made.compute_instance, version)
        return _Ready(allocated, part, made.uuid, edits, sharing)

    def _existing(self, part: Part) -> Any:
        """The partition that was made beforehand. Raises `DeviceError`."""
        assert part.placement is not None
        key = (part.placement.partition.instance_profile, part.placement.start)
        try:
            for instance in self._nvml.instances(part.card.uuid):
                if (instance.profile, instance.start) == key and instance.compute_instance is not None:
                    return instance
        except NvmlError as error:
            raise DeviceError(part.name, str(error)) from None
        raise DeviceError(part.name, "the partition is not there any more")

    def _share(self, claim: str, ready: Sequence[_Ready]) -> dict[Sharing | None, Edits]:
        """Devices with the same configuration are shared together: one MPS server for all of them."""
        groups: dict[Sharing, list[_Ready]] = {}
        for each in ready:
            if each.sharing is not None:
                groups.setdefault(each.sharing, []).append(each)
        shared: dict[Sharing | None, Edits] = {}
        for sharing, group in groups.items():
            uuids = list(dict.fromkeys(each.uuid for each in group))
            cards = list(dict.fromkeys(each.part.card.uuid for each in group))
            shared[sharing] = self._sharing.share(claim, sharing, uuids, cards)
        return shared

    def _told(self, ready: _Ready, shared: Edits) -> ReadyDevice:
        attributes = self._inventory.attributes(ready.part.name)
        attributes["uuid"] = {"string": ready.uuid}
        return ReadyDevice(ready.allocated, ready.edits + shared, attributes=attributes)
