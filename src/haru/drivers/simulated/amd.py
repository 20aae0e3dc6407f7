"""AMD Instinct cards as AMD's DRA driver publishes them: whole, divided beforehand, or in any mode on demand. Pure.

A card is divided by a compute mode (SPX, DPX, QPX, CPX: one, two, four, eight devices) and a memory mode (NPS1, NPS2,
NPS4: in how many parts its memory lies). `auto` is the driver's mode AutoPartition: each card has one device for each
combination that the driver knows, a counter lets one of them be in use, and its partitions are a consumable capacity.
Sources: AMD's k8s-gpu-dra-driver (names, attributes, capacities, counters); amdgpu `aqua_vanjaram.c` (valid modes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity

DRIVER: Final = "gpu.amd.com"
AUTO: Final = "auto"
PARTITIONS: Final[Mapping[str, int]] = {"spx": 1, "dpx": 2, "qpx": 4, "cpx": 8}
VALID: Final[Mapping[str, Sequence[str]]] = {
    "spx": ("nps1",),
    "dpx": ("nps1", "nps2"),
    "qpx": ("nps1", "nps4"),
    "cpx": ("nps1", "nps2", "nps4"),
}
"""Which memory modes each compute mode of a card with eight compute dies may have."""
_ON_DEMAND: Final = (("spx", "nps1"), ("dpx", "nps2"), ("cpx", "nps1"), ("cpx", "nps4"))
_COUNTER: Final = "partition-mode"
_FIRST_RENDER: Final = 128
_DIES: Final = 8
_DRIVER_VERSION: Final = "6.12.12"


@dataclass(frozen=True, slots=True)
class AmdCard:
    """One card: its model's figures, and where it is."""

    index: int
    model: Mapping[str, Any]
    numa_node: int
    pcie_root: str
    pci_bus_id: str


def modes() -> list[str]:
    """Every way in which the cards of a node can be published."""
    return [f"{compute}-{memory}" for compute, listed in VALID.items() for memory in listed] + [AUTO]


def amd_devices(cards: Sequence[AmdCard], mode: str) -> tuple[list[Obj], list[Obj]]:
    """The devices of these cards, and their shared counters."""
    if mode != AUTO:
        return [device for card in cards for device in _divided(card, *mode.split("-"))], []
    counters = [{"name": _counter_set(card), "counters": {_COUNTER: {"value": "1"}}} for card in cards]
    return [device for card in cards for device in _on_demand(card)], counters


def _divided(card: AmdCard, compute: str, memory: str) -> Iterator[Obj]:
    """The devices of a card that was divided beforehand; of a whole card itself."""
    count = PARTITIONS[compute]
    for part in range(count):
        number = card.index * _DIES + part
        yield {
            "name": f"gpu-{number}-{_FIRST_RENDER + number}",
            "attributes": {**_attributes(card, count), "partitionProfile": {"string": f"{compute}_{memory}"}},
            "capacity": _capacity(card, count),
        }


def _on_demand(card: AmdCard) -> Iterator[Obj]:
    for compute, memory in _ON_DEMAND:
        count = PARTITIONS[compute]
        step = {"step": "1"} if count > 1 else {}
        counted = {"value": str(count), "requestPolicy": {"default": "1", "validRange": {"min": "1", **step}}}
        # A partition takes nothing of its siblings' memory and units: they are shown, not counted.
        shown = {
            name: {**amount, "requestPolicy": {"default": "0", "validRange": {"min": "0"}}}
            for name, amount in _capacity(card, count).items()
        }
        more = {
            "computePartition": {"string": compute},
            "memoryPartition": {"string": memory},
            "gpuIndex": {"int": card.index},
            "pciAddr": {"string": card.pci_bus_id},
        }
        yield {
            "name": f"gpu-{card.index}-{compute}-{memory}",
            "attributes": {**_attributes(card, count), **more},
            "capacity": {"partitions": counted, **shown},
            "allowMultipleAllocations": True,
            "consumesCounters": [{"counterSet": _counter_set(card), "counters": {_COUNTER: {"value": "1"}}}],
        }


def _counter_set(card: AmdCard) -> str:
    return f"gpu-{card.index}-mutex"


def _attributes(card: AmdCard, partitions: int) -> Obj:
    return {
        "type": {"string": "amdgpu" if partitions == 1 else "amdgpu-partition"},
        "deviceID": {"string": card.model["deviceID"]},
        "productName": {"string": card.model["productName"]},
        "driverVersion": {"version": _DRIVER_VERSION},
        "driverVersionFull": {"string": _DRIVER_VERSION},
        "numaNode": {"int": card.numa_node},
        "resource.kubernetes.io/pciBusID": {"string": card.pci_bus_id},
        "resource.kubernetes.io/pcieRoot": {"string": card.pcie_root},
    }


def _capacity(card: AmdCard, partitions: int) -> Obj:
    units, simds = card.model["computeUnits"] // partitions, card.model["simdUnits"] // partitions
    memory = str(parse_quantity(f"{card.model['memoryMiB'] // partitions}Mi"))
    return {"memory": {"value": memory}, "computeUnits": {"value": str(units)}, "simdUnits": {"value": str(simds)}}
