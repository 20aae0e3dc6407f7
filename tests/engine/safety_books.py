"""What a small cluster has and what is taken of it, added up from the definition and from nothing of the engine's.

The hardware of a node never changes, so a sum that is too large is always somebody's fault.
Source: KEP-4381 (devices are exclusive, node selectors of allocations), KEP-4815 (shared counters), KEP-5075 (shares).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine_objects import DRIVER, Obj, device_class, node, resource_slice

RACK = "rack"
WIDE = "wide"
CARD_MEMORY = 4


class Device(NamedTuple):
    """`drawn`: what it takes of its card's memory; `capacity`: of a device that may be shared."""

    size: int
    drawn: int = 0
    capacity: int | None = None


KINDS: dict[str, dict[str, Device]] = {
    "none": {},
    "one card": {"card-0": Device(2)},
    "cards": {"card-0": Device(2), "card-1": Device(1), "card-2": Device(2)},
    "parts": {"whole": Device(2, 4), "half-0": Device(2, 2), "half-1": Device(2, 2), "quarter": Device(1, 1)},
    "shared": {"share": Device(1, 0, 4)},
    "mixed": {"share": Device(1, 3, 4), "part-0": Device(2, 2), "part-1": Device(1, 1)},
}
"""The devices of a node by name. Those of one node that draw on memory are parts of one card."""

CLASSES = {"any": [], "big": [f'device.attributes["{DRIVER}"].size == 2']}


@dataclass(frozen=True)
class Hardware:
    """A node as it was bought."""

    name: str
    cpu: int
    rack: str
    kind: str

    def objects(self, tainted: bool = False) -> Iterator[Obj]:
        """The node and its slices."""
        taints = [{"key": "broken", "effect": "NoSchedule"}] if tainted else []
        yield node(self.name, cpu=str(self.cpu), labels={RACK: self.rack}, taints=taints)
        yield from self.slices()

    def slices(self) -> Iterator[Obj]:
        """What its driver publishes."""
        devices = KINDS[self.kind]
        if not devices:
            return
        listed = [resource_slice(self.name, [_published(name, device) for name, device in devices.items()])]
        if any(device.drawn for device in devices.values()):
            counters = {"memory": {"value": str(CARD_MEMORY)}}
            sets = resource_slice(self.name, [], sharedCounters=[{"name": "card", "counters": counters}])
            sets["metadata"]["name"] += "-counters"
            del sets["spec"]["devices"]
            listed.append(sets)
        for each in listed:
            each["spec"]["pool"]["resourceSliceCount"] = len(listed)
            yield each


def wide_pool(count: int) -> Obj:
    """Devices that all nodes of one rack can use."""
    term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": ["r0"]}]}
    devices = [_published(f"net-{number}", Device(1)) for number in range(count)]
    return resource_slice("", devices, pool=WIDE, nodeSelector={"nodeSelectorTerms": [term]})


def classes() -> Iterator[Obj]:
    """The classes that claims ask for."""
    for name, expressions in CLASSES.items():
        yield device_class(name, expressions)


def _published(name: str, device: Device) -> Obj:
    found: Obj = {"name": name, "attributes": {"size": {"int": device.size}}}
    if device.drawn:
        counters = {"memory": {"value": str(device.drawn)}}
        found["consumesCounters"] = [{"counterSet": "card", "counters": counters}]
    if device.capacity is not None:
        found |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": str(device.capacity)}}}
    return found


class Placed(NamedTuple):
    """A pod on a node, with the paths of its claims."""

    node: str
    cpu: int
    claims: tuple[str, ...]


class Books:
    """Adds up what is taken of some hardware and `wide` devices of a rack."""

    def __init__(self, machines: Sequence[Hardware], wide: int) -> None:
        self._machines = {machine.name: machine for machine in machines}
        self._devices = {(m.name, name): device for m in machines for name, device in KINDS[m.kind].items()}
        self._devices |= {(WIDE, f"net-{number}"): Device(1) for number in range(wide)}

    def problems(self, placed: Mapping[str, Placed], allocations: Mapping[str, Obj], *, users: bool) -> list[str]:
        """What is wrong; `users`: whether all that pods on nodes use must be there."""
        found = [*self._cpu(placed), *self._given(allocations)]
        for path, pod in placed.items():
            for claim in pod.claims:
                if claim not in allocations:
                    found += [f"{path} is on {pod.node} without {claim}"] if users else []
                elif not self._reaches(allocations[claim], pod.node):
                    found.append(f"{path} is on {pod.node}, where {claim} cannot be used")
        return found

    def _cpu(self, placed: Mapping[str, Placed]) -> Iterator[str]:
        used: dict[str, int] = defaultdict(int)
        for pod in placed.values():
            used[pod.node] += pod.cpu
        for name, cpu in used.items():
            if cpu > self._machines[name].cpu:
                yield f"{name}: {cpu} of {self._machines[name].cpu} cpu are taken"

    def _given(self, allocations: Mapping[str, Obj]) -> Iterator[str]:
        holders: dict[tuple[str, str], list[str]] = defaultdict(list)
        memory: dict[tuple[str, str], int] = defaultdict(int)
        for path, allocation in allocations.items():
            for result in allocation["devices"]["results"]:
                key = result["pool"], result["device"]
                holders[key].append(path)
                memory[key] += int((result.get("consumedCapacity") or {}).get("memory") or 0)
        drawn: dict[str, int] = defaultdict(int)
        for key, claims in holders.items():
            device = self._devices[key]
            drawn[key[0]] += device.drawn
            if device.capacity is None and len(claims) > 1:
                yield f"{key} is allocated to {claims}"
            if device.capacity is not None and not len(claims) <= memory[key] <= device.capacity:
                yield f"{key}: {memory[key]} of {device.capacity} are consumed by {claims}"
        for pool, amount in drawn.items():
            if amount > CARD_MEMORY:
                yield f"{pool}: {amount} of {CARD_MEMORY} of the card's memory are drawn"

    def _reaches(self, allocation: Obj, name: str) -> bool:
        machine = self._machines[name]
        pools = {result["pool"] for result in allocation["devices"]["results"]}
        if not all(pool == name or (pool == WIDE and machine.rack == "r0") for pool in pools):
            return False
        terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
        known = {"metadata.name": name, RACK: machine.rack}
        return bool(terms) and any(
            all(
                requirement["operator"] == "In" and known.get(requirement["key"]) in requirement["values"]
                for part in ("matchFields", "matchExpressions")
                for requirement in term.get(part) or ()
            )
            for term in terms
        )
