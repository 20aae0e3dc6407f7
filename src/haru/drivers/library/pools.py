"""Pools that a driver declares, and their ResourceSlices. Pure.

Source: KEP-4381, KEP-4815; k8s.io/dynamic-resource-allocation `resourceslice`, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from haru.kube.meta import Obj
from haru.kube.names import short_hash

Taints = Mapping[str, Sequence[Obj]]
"""Device name -> taints that its health adds."""

MAX_COUNTER_SETS: Final = 8
MAX_DEVICES: Final = 64
"""128 without taints; but a device may be tainted at any time, and its slice must hold it then too."""
_LONGEST_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class Slice:
    """What one ResourceSlice lists: devices or counter sets, as the API has them."""

    devices: Sequence[Obj] = ()
    shared_counters: Sequence[Obj] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """The devices of a pool. Without `where` they are on the driver's node."""

    slices: Sequence[Slice]
    where: Mapping[str, Any] = field(default_factory=dict)
    """One of `nodeSelector`, `allNodes` and `perDeviceNodeSelection`, as in the slice."""

    @classmethod
    def of(cls, devices: Sequence[Obj], counters: Sequence[Obj] = (), **where: Any) -> Pool:
        """A pool whose devices and counter sets are divided into slices."""
        slices = [Slice(shared_counters=some) for some in _chunks(counters, MAX_COUNTER_SETS)]
        slices += [Slice(devices=some) for some in _chunks(devices, MAX_DEVICES)]
        # A pool that is empty says so: an empty slice, not none.
        return cls(slices or [Slice()], where)

    def devices(self) -> list[str]:
        """The names of all devices."""
        return [str(device["name"]) for one in self.slices for device in one.devices]


@dataclass(frozen=True, slots=True)
class Publisher:
    """Who publishes: the driver, and its node with the node's UID if it has one."""

    driver: str
    node_name: str = ""
    node_uid: str = ""


def slices_of(who: Publisher, name: str, pool: Pool, taints: Taints, generation: int) -> list[Obj]:
    """All ResourceSlices of a pool at a generation."""
    head = {"name": name, "generation": generation, "resourceSliceCount": len(pool.slices)}
    where = dict(pool.where) or {"nodeName": who.node_name}
    metadata: Obj = {}
    if who.node_uid and not pool.where:
        owner = {"apiVersion": "v1", "kind": "Node", "name": who.node_name, "uid": who.node_uid, "controller": True}
        metadata["ownerReferences"] = [owner]
    made = []
    for number, one in enumerate(pool.slices):
        spec: Obj = {"driver": who.driver, **where, "pool": dict(head)}
        if one.shared_counters:
            spec["sharedCounters"] = list(one.shared_counters)
        if one.devices:
            spec["devices"] = [_tainted(device, taints.get(device["name"]) or ()) for device in one.devices]
        named = {"name": _slice_name(who, name, number), **metadata}
        made.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": named, "spec": spec})
    return made


def _tainted(device: Obj, taints: Sequence[Obj]) -> Obj:
    if not taints:
        return device
    both = {(t["key"], t["effect"]): t for t in (*(device.get("taints") or ()), *taints)}
    return {**device, "taints": list(both.values())}


def _slice_name(who: Publisher, pool: str, number: int) -> str:
    """`<node>-<driver>-<number>`; a pool that is not named after the node is told apart by a hash."""
    middle = "" if pool == who.node_name else f"-{short_hash(pool)}"
    tail = f"{who.driver}{middle}-{number}"
    if not who.node_name:
        return tail
    name = f"{who.node_name}-{tail}"
    if len(name) <= _LONGEST_NAME:
        return name
    tail = f"{short_hash(who.node_name)}-{tail}"
    return f"{who.node_name[: _LONGEST_NAME - len(tail) - 1].rstrip('-.')}-{tail}"


def _chunks(items: Sequence[Obj], size: int) -> Iterator[Sequence[Obj]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
