"""ResourceSlices of a simulated node, as its driver publishes them.

The pool is the node's. Cards that can be divided bring a slice with the counter sets of all cards (eight to a slice)
and then one slice for each card; everything else fits into slices of whole devices. Names are
`<node>-<driver>-<suffix>`, so that a driver finds its slices again. Sources: the NVIDIA DRA driver; KEP-4815.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from haru.drivers.simulated.geometry import Placement
from haru.drivers.simulated.profiles import Card, Profile
from haru.kube.meta import Obj
from haru.kube.names import short_hash
from haru.kube.quantity import parse_quantity

Taints = Mapping[str, Sequence[Obj]]
"""Device name -> its taints; a partition has those of its card too."""

MAX_COUNTER_SETS: Final = 8
MAX_DEVICES: Final = 128
MAX_DEVICES_WITH_ADVANCED_FEATURES: Final = 64
DRIVER_VERSION: Final = "580.65.6"
CUDA_VERSION: Final = "13.0.0"

_NAMESPACE: Final = uuid.UUID("7d0c1f5e-3c53-5c0e-9f52-8a0f5d1f7a11")
_DOMAIN_DEVICES: Final = ("channel", "daemon")
_MAX_NAME: Final = 253
_REMEMBERED_CARDS: Final = 1024


def resource_slices(profile: Profile, node_name: str, node_uid: str, taints: Taints, generation: int) -> list[Obj]:
    """All slices of a node's pool; none for a node without devices."""
    if not profile.driver:
        return []
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid, "controller": True}
    slices = []
    for driver in profile.drivers:
        parts = list(_parts(profile, node_name, taints) if driver == profile.driver else _domain_parts(taints))
        pool = {"name": node_name, "generation": generation, "resourceSliceCount": len(parts)}
        slices += [_slice(driver, owner, pool, suffix, content) for suffix, content in parts]
    return slices


def _domain_parts(taints: Taints) -> Iterator[tuple[str, Obj]]:
    """What the driver of compute domains publishes on a node: its first IMEX channel, and its daemon."""
    made = [
        {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}} for kind in _DOMAIN_DEVICES
    ]
    yield "devices", {"devices": [_tainted(device, taints) for device in made]}


def device_names(profile: Profile) -> list[str]:
    """The names of all devices of a node, cards that only exist divided included."""
    names = [f"{kind}-0" for kind in _DOMAIN_DEVICES] if profile.nvlink_domain and profile.driver else []
    if not profile.cards:
        return names + [str(device["name"]) for device in profile.devices]
    for card in profile.cards:
        names.append(f"gpu-{card.minor}")
        names += [placement.device_name(card.minor) for placement in _placements(profile, card)]
    return names


def taints_of(name: str, taints: Taints) -> list[Obj]:
    """The taints of a device: its own and those of the card it is a part of."""
    found: dict[tuple[str, str], Obj] = {}
    for tainted, listed in taints.items():
        if _covers(tainted, name):
            for taint in listed:
                found.setdefault((taint["key"], taint["effect"]), taint)
    return list(found.values())


def _covers(tainted: str, name: str) -> bool:
    return name == tainted or name.startswith(f"{tainted}-")


def _parts(profile: Profile, node_name: str, taints: Taints) -> Iterator[tuple[str, Obj]]:
    """(suffix, the slice's devices or counters) in publication order."""
    if profile.layout == "mig":
        sets = [
            {"name": _counter_set(card), "counters": _amounts(card.model.geometry.counters())}
            for card in profile.cards
            if card.model.geometry is not None
        ]
        for number, some in enumerate(_chunks(sets, MAX_COUNTER_SETS)):
            yield f"counters-{number}" if number else "counters", {"sharedCounters": some}
        for card in profile.cards:
            devices = [_tainted(device, taints) for device in _divisible_card(card, node_name)]
            yield f"gpu-{card.minor}", {"devices": devices}
        return
    if profile.layout == "mig-balanced":
        devices = [device for card in profile.cards for device in _divided_card(card, node_name)]
    elif profile.cards:
        devices = [_whole_card(card, node_name, shared=profile.layout == "shared") for card in profile.cards]
    else:
        for number, some in enumerate(_chunks(list(profile.counters), MAX_COUNTER_SETS)):
            yield f"counters-{number}" if number else "counters", {"sharedCounters": some}
        devices = [dict(device) for device in profile.devices]
    devices = [_tainted(device, taints) for device in devices]
    advanced = any("taints" in device or "consumesCounters" in device for device in devices)
    size = MAX_DEVICES_WITH_ADVANCED_FEATURES if advanced else MAX_DEVICES
    for number, some in enumerate(_chunks(devices, size)):
        yield f"devices-{number}" if number else "devices", {"devices": some}


def _chunks(items: list[Obj], size: int) -> Iterator[list[Obj]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _slice(driver: str, owner: Obj, pool: Obj, suffix: str, content: Obj) -> Obj:
    node_name = owner["name"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": _slice_name(node_name, driver, suffix), "ownerReferences": [owner]},
        "spec": {"driver": driver, "nodeName": node_name, "pool": dict(pool), **content},
    }


def _slice_name(node_name: str, driver: str, suffix: str) -> str:
    name = f"{node_name}-{driver}-{suffix}"
    if len(name) <= _MAX_NAME:
        return name
    tail = f"{short_hash(node_name)}-{driver}-{suffix}"
    return f"{node_name[: _MAX_NAME - len(tail) - 1].rstrip('-.')}-{tail}"


def _tainted(device: Obj, taints: Taints) -> Obj:
    found = taints_of(device["name"], taints)
    if not found:
        return device
    return {**device, "taints": [*(device.get("taints") or ()), *found]}


# --- cards


def _placements(profile: Profile, card: Card) -> list[Placement]:
    geometry = card.model.geometry
    if geometry is None or profile.layout not in ("mig", "mig-balanced"):
        return []
    return list(geometry.placements() if profile.layout == "mig" else geometry.balanced)


def _counter_set(card: Card) -> str:
    return f"gpu-{card.minor}-counter-set"


def _uuid(node_name: str, *parts: object) -> str:
    return str(uuid.uuid5(_NAMESPACE, "/".join([node_name, *map(str, parts)])))


def _card_uuid(card: Card, node_name: str) -> str:
    return f"GPU-{_uuid(node_name, 'gpu', card.minor)}"


def _mebibytes(amount: int) -> str:
    return str(parse_quantity(f"{amount}Mi"))


def _amounts(counters: Mapping[str, int]) -> Obj:
    """Counters or capacities as the API writes them; memory is given in MiB."""
    return {
        name: {"value": _mebibytes(amount) if name == "memory" else str(amount)} for name, amount in counters.items()
    }


def _attributes(card: Card, type_: str, identity: Mapping[str, str]) -> Obj:
    named = {name: {"string": value} for name, value in identity.items()}
    return {"type": {"string": type_}, **named, **_card_attributes(card)}


@lru_cache(maxsize=_REMEMBERED_CARDS)
def _card_attributes(card: Card) -> Obj:
    """What all devices of a card have in common, on every node."""
    model = card.model
    attributes: Obj = {
        "productName": {"string": model.product},
        "brand": {"string": model.brand},
        "architecture": {"string": model.architecture},
        "cudaComputeCapability": {"version": model.compute_capability},
        "driverVersion": {"version": DRIVER_VERSION},
        "cudaDriverVersion": {"version": CUDA_VERSION},
        "resource.kubernetes.io/pcieRoot": {"string": card.pcie_root},
        "resource.kubernetes.io/pciBusID": {"string": card.pci_bus_id},
    }
    if model.addressing_mode:
        attributes["addressingMode"] = {"string": model.addressing_mode}
    if card.numa_node is not None and card.numa_node >= 0:
        attributes["resource.kubernetes.io/numaNode"] = {"int": card.numa_node}
    return attributes


def _whole_card(card: Card, node_name: str, *, shared: bool = False) -> Obj:
    memory = _mebibytes(card.model.memory_mib)
    device: Obj = {
        "name": f"gpu-{card.minor}",
        "attributes": _attributes(card, "gpu", {"uuid": _card_uuid(card, node_name)}),
        "capacity": {"memory": {"value": memory}},
    }
    if shared:
        device["allowMultipleAllocations"] = True
        policy = {"default": memory, "validRange": {"min": "1Mi", "step": "1Mi"}}
        device["capacity"]["memory"]["requestPolicy"] = policy
    return device


def _divisible_card(card: Card, node_name: str) -> Iterator[Obj]:
    """The whole card, which takes all counters, and every partition it could be divided into."""
    whole = _whole_card(card, node_name)
    if card.model.geometry is None:
        yield whole
        return
    amounts, partitions = _divisions(card)
    yield {**whole, **amounts}
    parent = {"string": _card_uuid(card, node_name)}
    for attributes, partition in partitions:
        yield {**partition, "attributes": {**attributes, "parentUUID": parent}}


@lru_cache(maxsize=_REMEMBERED_CARDS)
def _divisions(card: Card) -> tuple[Obj, list[tuple[Obj, Obj]]]:
    """What a card and its partitions have and take, alike on every node: only identities are to be added.

    A fleet has hundreds of thousands of these devices; the parts are shared by all of them.
    """
    geometry = card.model.geometry
    assert geometry is not None
    counters = [{"counterSet": _counter_set(card), "counters": _amounts(geometry.counters())}]
    whole = {"capacity": _amounts(geometry.maxima()), "consumesCounters": counters}
    partitions: list[tuple[Obj, Obj]] = []
    for placement in geometry.placements():
        consumes = {"counterSet": _counter_set(card), "counters": _amounts(geometry.consumption(placement))}
        partition: Obj = {
            "name": placement.device_name(card.minor),
            "attributes": {},
            "capacity": _amounts(placement.partition.amounts),
            "consumesCounters": [consumes],
        }
        partitions.append((_attributes(card, "mig", {"profile": placement.partition.profile}), partition))
    return whole, partitions


def _divided_card(card: Card, node_name: str) -> Iterator[Obj]:
    """The partitions of a card that was divided beforehand; the card itself cannot be used meanwhile."""
    geometry = card.model.geometry
    if geometry is None:
        yield _whole_card(card, node_name)
        return
    for placement in geometry.balanced:
        profile = placement.partition.profile
        identity = {
            "uuid": f"MIG-{_uuid(node_name, 'gpu', card.minor, profile, placement.start)}",
            "parentUUID": _card_uuid(card, node_name),
            "profile": profile,
        }
        capacity = _amounts(placement.partition.amounts)
        capacity.update({f"memorySlice{i}": {"value": "1"} for i in placement.slices})
        yield {
            "name": placement.device_name(card.minor),
            "attributes": _attributes(card, "mig", identity),
            "capacity": capacity,
        }
