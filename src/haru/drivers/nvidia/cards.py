"""The devices of a node, from what NVML says of its cards; names, attributes and capacities are the NVIDIA driver's.

Without `DynamicMIG` a card is one device, or, if it was divided, each of its partitions is one. With it a card is also
every partition that could be made of it, and counters say which exclude each other. Cards before Hopper change the
mode of MIG only by a reset: they are published in the mode that they have. Pure.
Sources: the NVIDIA DRA driver's publication; KEP-4815.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from haru.drivers.library.pools import MAX_COUNTER_SETS, MAX_DEVICES, Pool, Slice
from haru.drivers.nvidia.nvml import CardFacts, Instance, InstanceProfile, Nvml, SystemFacts
from haru.drivers.simulated.geometry import CAPACITIES, Geometry, Partition, Placement
from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity

_FIXED_MODE: Final = ("Ampere",)
"""Architectures whose cards need a reset to turn MIG on or off."""


@dataclass(frozen=True, slots=True)
class Part:
    """What stands behind a published device: a card, or a place on one for a partition."""

    card: CardFacts
    placement: Placement | None = None
    uuid: str = ""
    """Of a partition that was made beforehand."""

    @property
    def name(self) -> str:
        """The device's name."""
        return f"gpu-{self.card.minor}" if self.placement is None else self.placement.device_name(self.card.minor)


@dataclass(frozen=True, slots=True)
class Inventory:
    """All devices of a node: what is published, and what stands behind each."""

    pool: Pool
    parts: Mapping[str, Part]
    cards: Mapping[str, CardFacts]
    """By UUID, those included whose partitions alone are published."""
    system: SystemFacts

    def attributes(self, device: str) -> Obj:
        """The published attributes of a device."""
        for one in self.pool.slices:
            for found in one.devices:
                if found["name"] == device:
                    return dict(found["attributes"])
        return {}


def geometry_of(profiles: Sequence[InstanceProfile]) -> Geometry | None:
    """How a card with these profiles may be divided; None if it may not."""
    if not profiles:
        return None
    ordered = sorted(profiles, key=lambda each: (each.slices, each.size, each.name))
    partitions = []
    for each in ordered:
        engines = (each.decoders, each.encoders, each.jpeg_engines, each.ofa_engines)
        told = (each.multiprocessors, each.copy_engines, *engines, each.memory_mib)
        amounts = dict(zip(CAPACITIES, told, strict=True))
        partitions.append(Partition(each.name, each.id, each.size, each.starts, amounts))
    slices = max(start + each.size for each in profiles for start in each.starts)
    plain = Geometry(slices, tuple(partitions), ())
    return Geometry(slices, tuple(partitions), (), _needs_media_counter(plain))


def _needs_media_counter(geometry: Geometry) -> bool:
    """Whether the engines alone would let a second `+me` partition through, of which the hardware has one."""
    maxima = geometry.maxima()
    media = [each for each in geometry.partitions if each.has_media]
    return bool(media) and all(2 * amount <= maxima[name] for each in media for name, amount in each.amounts.items())


def take_inventory(nvml: Nvml, dynamic: bool) -> Inventory:
    """What there is to publish. Raises `NvmlError`."""
    system = nvml.system()
    sets: list[Obj] = []
    groups: list[list[Obj]] = []
    parts: dict[str, Part] = {}
    cards = {facts.uuid: facts for facts in nvml.cards()}
    for facts in cards.values():
        geometry = geometry_of(nvml.profiles(facts.uuid)) if facts.mig_mode is not None else None
        can_change = geometry is not None and facts.architecture not in _FIXED_MODE
        if dynamic and not facts.is_vgpu and geometry is not None and (can_change or facts.mig_mode):
            found = list(_divisible(facts, geometry, with_card=can_change))
            sets.append({"name": _counter_set(facts), "counters": _amounts(geometry.counters())})
            described = [_described(part, system, geometry, dynamic=True) for part in found]
        elif facts.mig_mode and geometry is not None:
            found = list(_divided(facts, geometry, nvml.instances(facts.uuid)))
            described = [_described(part, system, geometry, dynamic=False) for part in found]
        else:
            found = [Part(facts)]
            described = [_described(found[0], system, None, dynamic=False)]
        parts |= {part.name: part for part in found}
        groups.append(described)
    return Inventory(_pool(sets, groups), parts, cards, system)


def _pool(sets: Sequence[Obj], groups: Sequence[Sequence[Obj]]) -> Pool:
    """One slice for each card where there are counters, which come first; otherwise as few as hold the devices."""
    if not sets:
        return Pool.of([device for group in groups for device in group])
    slices = [Slice(shared_counters=sets[at : at + MAX_COUNTER_SETS]) for at in range(0, len(sets), MAX_COUNTER_SETS)]
    for group in groups:
        slices += [Slice(group[at : at + MAX_DEVICES]) for at in range(0, len(group), MAX_DEVICES)]
    return Pool(slices)


def _divisible(facts: CardFacts, geometry: Geometry, *, with_card: bool) -> Iterator[Part]:
    if with_card:
        yield Part(facts)
    for placement in geometry.placements():
        yield Part(facts, placement)


def _divided(facts: CardFacts, geometry: Geometry, instances: Sequence[Instance]) -> Iterator[Part]:
    by_place = {(each.partition.instance_profile, each.start): each for each in geometry.placements()}
    for instance in instances:
        placement = by_place.get((instance.profile, instance.start))
        # Without a compute instance, or with less than all of it, nothing of the partition can be used as a whole.
        if placement is not None and instance.uuid:
            yield Part(facts, placement, instance.uuid)


def _described(part: Part, system: SystemFacts, geometry: Geometry | None, *, dynamic: bool) -> Obj:
    """The device as a ResourceSlice has it."""
    facts, placement = part.card, part.placement
    device: Obj = {"name": part.name, "attributes": _attributes(part, system)}
    if placement is not None:
        device["capacity"] = _amounts(placement.partition.amounts)
        if not dynamic:
            device["capacity"] |= {f"memorySlice{number}": {"value": "1"} for number in placement.slices}
    elif geometry is not None:
        device["capacity"] = _amounts(geometry.maxima())
    else:
        device["capacity"] = {"memory": {"value": _bytes(facts.memory_bytes)}}
    if dynamic and geometry is not None:
        takes = geometry.counters() if placement is None else geometry.consumption(placement)
        device["consumesCounters"] = [{"counterSet": _counter_set(facts), "counters": _amounts(takes)}]
    return device


def _attributes(part: Part, system: SystemFacts) -> Obj:
    facts, placement = part.card, part.placement
    attributes: Obj = {"type": {"string": "gpu" if placement is None else "mig"}}
    if placement is None:
        attributes["uuid"] = {"string": facts.uuid}
    else:
        if part.uuid:
            attributes["uuid"] = {"string": part.uuid}
        attributes["parentUUID"] = {"string": facts.uuid}
        attributes["profile"] = {"string": placement.partition.profile}
    attributes |= {
        "productName": {"string": facts.name},
        "brand": {"string": facts.brand},
        "architecture": {"string": facts.architecture},
        "cudaComputeCapability": {"version": version(facts.compute_capability)},
        "driverVersion": {"version": version(system.driver_version)},
        "cudaDriverVersion": {"version": version(f"{system.cuda_version // 1000}.{system.cuda_version % 1000 // 10}")},
    }
    if facts.addressing_mode:
        attributes["addressingMode"] = {"string": facts.addressing_mode}
    if facts.pcie_root:
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": facts.pcie_root}
    attributes["resource.kubernetes.io/pciBusID"] = {"string": facts.pci_bus_id}
    if facts.numa_node is not None and facts.numa_node >= 0:
        attributes["resource.kubernetes.io/numaNode"] = {"int": facts.numa_node}
    return attributes


def version(text: str) -> str:
    """As a semantic version: three numbers without leading zeros (`580.65.06` -> `580.65.6`)."""
    numbers = [int(number) for number in re.findall(r"\d+", text)][:3]
    return ".".join(str(number) for number in [*numbers, 0, 0, 0][:3])


def _counter_set(facts: CardFacts) -> str:
    return f"gpu-{facts.minor}-counter-set"


def _bytes(amount: int) -> str:
    mebibytes, rest = divmod(amount, 1 << 20)
    return str(amount) if rest else str(parse_quantity(f"{mebibytes}Mi"))


def _amounts(amounts: Mapping[str, int]) -> Obj:
    """Capacities or counters; memory is given in MiB."""
    return {
        name: {"value": _bytes(amount << 20) if name == "memory" else str(amount)} for name, amount in amounts.items()
    }
