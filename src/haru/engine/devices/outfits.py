"""Nodes that have the same devices, but for their identities, of which the same are taken: known as they come.

Devices mostly have an identity of their own (UUID, bus address), and so no two nodes of a real cluster publish equal
devices. A `Model` is what tables have in common that differ in nothing else: what all devices of a table agree on, and
the names of what tells them apart. An `Outfit` is the models that a node has and the places of what is taken. It is one
object for all nodes that are alike, made when slices and claims come; who does not look at what tells devices apart
(`Regard`) asks one node and knows what all of them say.

Only what is simple has an outfit: whole devices of pools of one sound slice, without counters, shares or taints, that
one node alone sees. Other nodes are looked at one by one.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from haru.engine.devices.claims import Claim
from haru.engine.devices.inventory import DeviceSnapshot, Inventory
from haru.engine.devices.model import Obj
from haru.engine.devices.pools import Pool, PoolView
from haru.engine.devices.reads import Names, names_read
from haru.engine.devices.selection import Selection
from haru.engine.devices.state import EMPTY_USE, AllocatedState, PoolUse
from haru.engine.devices.tablemodel import Model
from haru.engine.persistent import CowMap, FrozenMap

_MAX_KNOWN = 65_536


class Outfit:
    """The devices of a node by their places in the order in which they are tried; those taken, as bits."""

    __slots__ = ("devices", "models", "taken")

    def __init__(self, parts: Sequence[tuple[Model, int]]) -> None:
        self.models = tuple([model for model, _ in parts])
        self.devices = self.taken = 0
        """A bit for each device, and those of them that are taken."""
        offset = 0
        for model, taken in parts:
            self.taken |= taken << offset
            offset += model.count
        self.devices = (1 << offset) - 1

    @property
    def free(self) -> int:
        """How many devices nobody has."""
        return (self.devices & ~self.taken).bit_count()


class Dressed(NamedTuple):
    """A node: its outfit, and what is taken of each of its pools, in the order in which devices are tried."""

    outfit: Outfit
    uses: tuple[PoolUse, ...] = ()


_NOTHING = Dressed(Outfit(()))
"""A node that sees no devices."""


@dataclass(frozen=True, slots=True, eq=False)
class Outfits:
    """The outfits of a cluster's nodes at one moment, which is that of `devices` and `allocated`."""

    by_node: FrozenMap[Dressed | None]
    devices: DeviceSnapshot
    allocated: AllocatedState

    def of(self, devices: DeviceSnapshot, allocated: AllocatedState) -> FrozenMap[Dressed | None] | None:
        """The outfits by node, None for nodes that have none (see `dressed_of`); None if this is of other devices."""
        if self.devices is not devices or self.allocated is not allocated or devices.everywhere or devices.troubled:
            return None
        return self.by_node


def dressed_of(known: Mapping[str, Dressed | None] | None, node: str) -> Dressed | None:
    """The outfit of a node, if it has one. Nodes that no pool names are not in the map: they have no devices."""
    return known.get(node, _NOTHING) if known is not None else None


def all_of(known: FrozenMap[Dressed | None], nodes: Sequence[str]) -> Sequence[Dressed | None]:
    """The same for many nodes."""
    return known.values_of(nodes, _NOTHING)


class Wardrobe:
    """The outfits of the nodes, made anew for each snapshot where slices and claims have come or gone."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._by_node: CowMap[Dressed | None] = CowMap()
        self._known: dict[Hashable, Outfit] = {}
        self._changed: list[Obj | None] = []

    def taken_changed(self, *allocations: Obj | None) -> None:
        """Something else is taken of the devices that these allocations take, which are new, or are gone."""
        self._changed += allocations

    def freeze(self, devices: DeviceSnapshot, allocated: AllocatedState) -> Outfits:
        """The outfits as they are now; later changes do not show in it. It costs what has changed."""
        nodes = self._inventory.take_moved()
        for driver, name in {(r["driver"], r["pool"]) for found in self._changed for r in _results(found)}:
            pool = self._inventory.pool(f"{driver}/{name}")
            if pool is not None:
                nodes.update([item.placement.node_name for item in pool.slices])
        self._changed.clear()
        for node in nodes:
            if node:
                self._look(node, allocated)
        return Outfits(self._by_node.freeze(), devices, allocated)

    def _look(self, node: str, allocated: AllocatedState) -> None:
        pools = self._inventory.pools_of(node)
        if not pools:
            self._by_node.pop(node, None)
            return
        if len(pools) > 1:
            pools.sort(key=lambda pool: (pool.key.driver.encode(), pool.key.pool.encode()))
        parts, uses = [], []
        for pool in pools:
            use = allocated.use(pool.key)
            part = _part(pool, node, use)
            if part is None:
                self._by_node[node] = None
                return
            parts.append(part)
            uses.append(use)
        key = tuple(parts)
        outfit = self._known.get(key)
        if outfit is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            outfit = self._known[key] = Outfit(parts)
        self._by_node[node] = Dressed(outfit, tuple(uses))


def _part(pool: Pool, node: str, use: PoolUse) -> tuple[Model, int] | None:
    """The model of a pool's devices and which of them are taken; None where it is not that simple."""
    view = pool.sole_view(node)
    model = _model(view) if view is not None else None
    if view is None or model is None or use.shares or use.states:
        return None
    return model, 0 if use is EMPTY_USE else view.occupation(use)[0]


def _model(view: PoolView) -> Model | None:
    plain = view.status == "ok" and view.confined and not view.counter_names and view.devices
    return view.table.model if plain and not view.slices[0].counter_sets else None


def _results(allocation: Obj | None) -> Sequence[Obj]:
    return ((allocation or {}).get("devices") or {}).get("results") or ()


class Regard:
    """What some claims look at: whether it tells nodes of one outfit apart."""

    def __init__(self, selections: Iterable[Selection], compared: Iterable[str]) -> None:
        read = [
            None if expression is None else names_read(expression, selection.lists, selection.consumable)
            for selection in dict.fromkeys(selections)
            for expression in (*selection.class_expressions, *selection.request_expressions)
        ]
        self._reads: Sequence[Names] | None = None if None in read else [names for names in read if names is not None]
        self._compared = frozenset(compared)
        self._known: dict[Model, bool] = {}

    @classmethod
    def of(cls, claims: Iterable[Claim]) -> Regard:
        """That of some claims together."""
        asks = [ask for claim in claims for request in claim.requests for ask in request.asks]
        return cls([ask.selection for ask in asks], [c.attribute for claim in claims for c in claim.constraints])

    def is_blind(self, outfit: Outfit) -> bool:
        """Whether nodes of this outfit are all the same to the claims, device by device."""
        return all(map(self._is_blind, outfit.models))

    def _is_blind(self, model: Model) -> bool:
        found = self._known.get(model)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[model] = self._reads is not None and model.varying.isdisjoint(self._seen(model.driver))
        return found

    def _seen(self, driver: str) -> set[str]:
        """The attributes of a driver's devices that the claims look at, as published."""
        seen = set(self._compared)
        seen.update(name.removeprefix(f"{driver}/") for name in self._compared)
        for names in self._reads or ():
            seen.update(text for pair in names.published(driver)[0] for text in pair)
        return seen
