"""Nodes as preemption counts on them: which devices are taken, as bits, and which of them go with which pod.

A `Stand` is made once per state of a node and kept in the cluster's notes: between two decisions few nodes change.
Where devices or their users are not that simple (shares of a device, a claim that several pods use, a pool in
trouble) the stand is not `plain`, and whoever counts has to look at the node itself.
Source: our own; KEP-4381 for when a claim is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from haru.engine.clearing import claim_users
from haru.engine.cluster import Snapshot
from haru.engine.devices import NodeView, Outfit, dressed_of
from haru.engine.devices.pools import PoolView
from haru.engine.nodeinfo import NodeInfo
from haru.engine.persistent import differing

_TOPIC = "stands"


class Stand:
    """One state of a node. `devices` has a bit for each device of `views`, `taken` those that are taken.

    `shared` says that some device can be had more than once. Whose going frees which devices (`frees`) is found out
    where somebody thinks pods away (`Stands.settled`): most nodes are counted as they are.
    """

    __slots__ = ("devices", "frees", "info", "outfit", "plain", "settled", "shared", "simple", "taken", "views")

    def __init__(self, info: NodeInfo) -> None:
        self.info = info
        self.views: tuple[PoolView, ...] = ()
        """The node's own pools; devices that others see as well are not among them."""
        self.outfit: Outfit | None = None
        """What others may have as well, if all of its devices are as simple as that."""
        self.devices = 0
        self.taken = 0
        self.shared = False
        self.settled = False
        """Whether it was found out whose going frees which devices."""
        self.frees: dict[str, int] = {}
        """The devices that are free once a pod is gone."""
        self.simple = True
        """Whether devices are taken or free, and nothing in between."""
        self.plain = True
        """Whether it is also as simple who frees them."""


class Stands:
    """The stands of a cluster's nodes, as they are in the snapshot that was caught up with last."""

    def __init__(self, partitionable: bool) -> None:
        self._partitionable = partitionable
        self._base: Snapshot | None = None
        self.known: dict[str, Stand] = {}
        """Those that were asked for and last, by node: as far as is known they change with it, its pools and claims."""
        self._passing: dict[str, Stand] = {}  # those that have to be made anew for another snapshot
        self._on: dict[str, set[str]] = {}  # the nodes on which a claim has devices

    @staticmethod
    def of(base: Snapshot, *, partitionable: bool) -> Stands:
        """The stands of a snapshot's nodes."""
        found = base.notes.entry(_TOPIC, partitionable, lambda: Stands(partitionable))
        found.catch_up(base)
        return found

    def catch_up(self, base: Snapshot) -> None:
        """Go on with another snapshot: what has changed is looked at again when it is asked for."""
        before, self._base = self._base, base
        if before is None or before is base:
            return
        self._passing.clear()
        wide = any(one.devices.everywhere or one.devices.troubled for one in (before, base))
        if wide and base.devices is not before.devices:
            self.known.clear()
        changed = differing(base.nodes, before.nodes)
        pools = {str(key) for key in base.allocated.changed(before.allocated)}
        if base.devices is not before.devices:
            pools |= differing(base.devices.pools, before.devices.pools)
        for snapshot in (before, base):
            changed.update(_nodes_of(snapshot, pools))
        for path in differing(base.claims, before.claims):
            changed |= self._on.pop(path, set())
        for name in changed:
            self.known.pop(name, None)

    def stand(self, name: str) -> Stand:
        """How a node stands with everybody in place. Raises AllocationError if its pools cannot be told."""
        found = self.known.get(name) or self._passing.get(name)
        if found is None:
            found = self.known[name] = self._made(name)
        return found

    def settled(self, name: str) -> Stand:
        """How a node stands, and whose going changes that."""
        stand = self.stand(name)
        if not stand.settled:
            stand.settled = True
            stand.plain = stand.simple
            lasting = True
            for claim, bits in self._held(stand).items():
                self._on.setdefault(claim, set()).add(name)
                lasting &= self._hold(stand, claim, bits)
            if not lasting:
                self._passing[name] = self.known.pop(name)
        return stand

    def _held(self, stand: Stand) -> dict[str, int]:
        """The devices that each claim has on a node, which is not that plain if a device has several holders."""
        assert self._base is not None
        held: dict[str, int] = {}
        offset = 0
        for view in stand.views:
            places = view.table.places
            for device, holders in self._base.allocated.use(view.key).devices.items():
                stand.plain &= len(holders) == 1
                bit = 1 << (offset + places[device]) if device in places else 0
                for holder in holders:
                    held[holder] = held.get(holder, 0) | bit
            offset += len(view.devices)
        return held

    def _made(self, name: str) -> Stand:
        assert self._base is not None
        base = self._base
        stand = Stand(base.nodes[name])
        dressed = dressed_of(base.dressed, name)
        stand.outfit = dressed.outfit if dressed is not None else None
        own: list[PoolView] = []
        offset = 0
        for view in base.devices.views(NodeView(name, stand.info.labels), self._partitionable):
            stand.simple &= view.status == "ok"
            if view.confined:
                use = base.allocated.use(view.key)
                stand.simple &= not (use.shares or use.states)
                stand.taken |= view.occupation(use)[0] << offset
                offset += len(view.devices)
                stand.shared |= view.table.shareable
                own.append(view)
        stand.views = tuple(own)
        stand.devices = (1 << offset) - 1
        return stand

    def _hold(self, stand: Stand, claim: str, bits: int) -> bool:
        """Note whose going frees the devices that a claim has on a node; whether the node and the claim alone say so.

        Else it may change when others come or go, though these two stay as they are.
        """
        assert self._base is not None
        users = claim_users(self._base, claim)
        if users is None:
            return False
        (user,) = users if len(users) == 1 else ("",)
        if user in stand.info.pods:
            stand.frees[user] = stand.frees.get(user, 0) | bits
        else:
            stand.plain = False
        return _by_pods_alone(self._base.claims.get(claim))


def _by_pods_alone(claim: Mapping[str, object] | None) -> bool:
    status = (claim or {}).get("status")
    entries = status.get("reservedFor") or () if isinstance(status, Mapping) else ()
    return all(entry.get("resource") == "pods" for entry in entries)


def _nodes_of(snapshot: Snapshot, pools: Iterable[str]) -> Iterator[str]:
    for name in pools:
        pool = snapshot.devices.pools.get(name)
        for item in pool.slices if pool is not None else ():
            yield item.placement.node_name
