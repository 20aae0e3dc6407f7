"""Track per node which devices are taken, as bits, and which of them each pod's removal frees.

A `NodeOccupancy` is built once per node state and kept in the decision cache: few nodes change between two decisions.
Where devices or their users are not simple (shares of a device, a claim that several pods use, an incomplete pool),
the occupancy is not `plain`, and the node has to be filtered instead.
Source: our own; KEP-4381 for when a claim is free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from haru.engine.dra.allocated_state import AllocatedState, PoolUse
from haru.engine.dra.model.model import NodeView
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import PoolView
from haru.engine.equivalence.node_device_classes import ClassifiedNode, NodeDeviceClass, all_of, classified_nodes_of
from haru.engine.preemption.change_log import ChangeLog
from haru.engine.preemption.dry_run import claim_users, promised_members
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import differing, mark_of, values_of, written_since
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.partition import WHOLE
from haru.engine.state.reserved_for import sole_user, sole_users
from haru.kube.meta import Obj

_TOPIC = "node occupancies"
_UID = attrgetter("key.uid")


class NodeOccupancy:
    """Hold one state of a node: `devices` has a bit for each device of `views`, `taken` for each taken one.

    `shared` says that some device is allocatable more than once. `frees` is filled only for dry runs of evictions
    (`NodeOccupancies.with_frees`): most nodes are counted without.
    """

    __slots__ = (
        "__weakref__",
        "devices",
        "frees",
        "frees_known",
        "info",
        "node_device_class",
        "plain",
        "shared",
        "simple",
        "taken",
        "uses",
        "views",
    )

    def __init__(self, info: NodeInfo) -> None:
        self.info = info
        self.views: tuple[PoolView, ...] = ()
        """The pools that only this node sees."""
        self.uses: tuple[PoolUse, ...] = ()
        """What is taken of each of these pools."""
        self.node_device_class: NodeDeviceClass | None = None
        """The class of nodes with equal simple devices, if the node is in one."""
        self.devices = 0
        self.taken = 0
        self.shared = False
        self.frees_known = False
        """Whether `frees` is filled."""
        self.frees: dict[str, int] = {}
        """The bits of the devices that are free once a pod is removed, by pod path."""
        self.simple = True
        """Whether every device is either taken or free as a whole."""
        self.plain = True
        """Whether, besides, each taken device has one user."""


class _Seen(NamedTuple):
    """What occupancies depend on in the last snapshot; the snapshot itself, with its pods, is not kept."""

    nodes: Mapping[str, NodeInfo]
    claims: Mapping[str, Obj]
    devices: DeviceSnapshot
    allocated: AllocatedState


class NodeOccupancies:
    """Keep the occupancies of a cluster's nodes for the last snapshot."""

    def __init__(self, partitionable: bool) -> None:
        self._partitionable = partitionable
        self._seen: _Seen | None = None
        self.known: dict[str, NodeOccupancy] = {}
        """By node: occupancies that depend only on the node, its pools and its claims."""
        self._transient: dict[str, NodeOccupancy] = {}  # valid for the current snapshot only
        self._on: dict[str, str] = {}  # by claim: the node on which it has devices
        self._also_on: dict[str, set[str]] = defaultdict(set)  # the others, if it has devices on several
        self._users: dict[str, str | None] = {}  # by the same claims: the UID of the sole user, if there is one
        self.changes = ChangeLog()
        """The nodes that changed, their devices and claims included."""

    @staticmethod
    def of(base: Snapshot, *, partitionable: bool) -> NodeOccupancies:
        """Return the occupancies of a snapshot's nodes."""
        found = base.decision_cache.get_or_compute(_TOPIC, partitionable, lambda: NodeOccupancies(partitionable))
        found.catch_up(base)
        return found

    def catch_up(self, base: Snapshot) -> None:
        """Switch to another snapshot and drop the occupancies that changed."""
        before = self._seen
        now = self._seen = _Seen(base.nodes, base.claims, base.devices, base.allocated)
        if before is None:
            return
        self.changes.add(self._transient)
        self._transient.clear()
        wide = any(one.devices.everywhere or one.devices.troubled for one in (before, now))
        if wide and now.devices is not before.devices:
            self.known.clear()
            self.changes.add_all()
        changed = differing(now.nodes, before.nodes)
        pools = {str(key) for key in now.allocated.changed(before.allocated)}
        if now.devices is not before.devices:
            pools |= differing(now.devices.pools, before.devices.pools)
            changed.update(_nodes_of(before.devices, pools))
        changed.update(_nodes_of(now.devices, pools))
        written = written_since(now.claims, mark_of(before.claims))
        claims = self._on.keys() & (differing(now.claims, before.claims) if written is None else written)
        # Most are on nodes that have changed anyway, and are not compared.
        gone = [p for p in claims if self._on[p] in changed or now.claims.get(p) is not before.claims.get(p)]
        changed.update(map(self._on.pop, gone))
        for path in gone:
            del self._users[path]
        for path in self._also_on.keys() & gone:
            changed |= self._also_on.pop(path)
        for name in changed:
            self.known.pop(name, None)
        self.changes.add(changed)

    def occupancy(self, base: Snapshot, name: str) -> NodeOccupancy:
        """Return a node's occupancy in the last snapshot with all pods in place.

        Raises AllocationError for a broken pool.
        """
        found = self.known.get(name) or self._transient.get(name)
        if found is None:
            found = self.known[name] = self._build(base, name)
        return found

    def with_frees(self, base: Snapshot, name: str) -> NodeOccupancy:
        """Return a node's occupancy in the last snapshot with `frees` filled."""
        occupancy = self.known.get(name) or self.occupancy(base, name)
        if not occupancy.frees_known:
            occupancy.frees_known = True
            if self._fill_frees(base, occupancy):
                return occupancy
            bits_by_claim, sole = _bits_by_claim(occupancy)
            occupancy.plain = occupancy.simple and sole
            self._follow(base, name, bits_by_claim)
            if not self._record_claims(base, occupancy, bits_by_claim):
                self._transient[name] = self.known.pop(name)
        return occupancy

    def _fill_frees(self, base: Snapshot, occupancy: NodeOccupancy) -> bool:
        """Fill `frees` where each taken device has one holder and that one user on the node, as nearly always."""
        if len(occupancy.uses) != 1 or not occupancy.simple or base.promised:
            return False
        devices, places = occupancy.uses[0].devices, occupancy.views[0].table.places
        holders = list(chain.from_iterable(devices.values()))
        if len(holders) != len(devices) or not devices.keys() <= places.keys():
            return False
        self._follow(base, occupancy.info.name, dict.fromkeys(holders))
        by_uid: dict[str | None, str] = {pod.key.uid: path for path, pod in occupancy.info.pods.items()}
        by_uid.pop("", None)
        paths = [path for path in map(by_uid.get, map(self._users.__getitem__, holders)) if path is not None]
        if len(paths) < len(holders):
            return False
        frees = occupancy.frees = dict.fromkeys(paths, 0)
        for path, place in zip(paths, map(places.__getitem__, devices), strict=True):
            frees[path] |= 1 << place
        return True

    def frees_all(self, base: Snapshot, occupancy: NodeOccupancy) -> bool:
        """Tell whether a node's devices are known to be free without its pods; what each of them frees is not told.

        It stays true until the node changes.
        """
        if not occupancy.simple:
            return False
        name, pods = occupancy.info.name, occupancy.info.pods
        claims = set(chain.from_iterable([held for use in occupancy.uses for held in use.devices.values()]))
        self._follow(base, name, claims)
        uids = {pod.key.uid for pod in pods.values()}
        uids.difference_update(("", *[pod.key.uid for pod, _ in promised_members(base, pods.values())]))
        return uids.issuperset(map(self._users.__getitem__, claims))

    def free_without_pods(self, base: Snapshot, names: Sequence[str]) -> Iterator[tuple[str, NodeInfo, ClassifiedNode]]:
        """Yield those of many nodes for which `frees_all` is true, with their classes, but for nodes without a class.

        It takes a fifth of the steps, as the claims of all are followed together.
        """
        known = base.classified_nodes
        if known is None or not self._partitionable or base.devices.partition is not WHOLE:
            return
        found = [
            (name, node, classified, set(chain.from_iterable(chain.from_iterable(held))))
            for name, node, classified in zip(names, values_of(base.nodes, names), all_of(known, names), strict=True)
            if node is not None and classified is not None
            for held in ([use.devices.values() for use in classified.uses],)
        ]
        self._follow_all(base, found)
        user_of = self._users.__getitem__
        for name, node, classified, claims in found:
            pods = node.pods.values()
            uids = set(map(_UID, pods))
            uids.discard("")
            if base.promised:
                uids.difference_update([pod.key.uid for pod, _ in promised_members(base, pods)])
            if uids.issuperset(map(user_of, claims)):
                yield name, node, classified

    def freed_devices(self, uses: Iterable[PoolUse], uids: Collection[str]) -> int:
        """Count the devices that the removal of some pods frees on a node that `free_without_pods` yielded."""
        holders = list(chain.from_iterable([use.devices.values() for use in uses]))
        claims = list(chain.from_iterable(holders))
        if len(claims) > len(holders):
            claims = list(chain.from_iterable([held for held in holders if len(held) == 1]))
        return sum(map(uids.__contains__, map(self._users.__getitem__, claims)))

    def _follow_all(self, base: Snapshot, nodes: Sequence[tuple[str, NodeInfo, ClassifiedNode, set[str]]]) -> None:
        """Follow the claims that hold devices of some nodes."""
        on = self._on
        unknown: list[str] = []
        for name, _, _, claims in nodes:
            new = claims if on.keys().isdisjoint(claims) else claims.difference(on)
            for claim in claims - new if new is not claims else ():
                if on[claim] != name:
                    self._also_on[claim].add(name)
            on.update(dict.fromkeys(new, name))
            unknown += new
        self._users.update(zip(unknown, sole_users(values_of(base.claims, unknown)), strict=True))

    def _follow(self, base: Snapshot, name: str, claims: Collection[str]) -> None:
        """Follow the claims that hold devices of a node."""
        on = self._on
        unknown = claims if on.keys().isdisjoint(claims) else [claim for claim in claims if claim not in on]
        if unknown:
            on.update(dict.fromkeys(unknown, name))
            self._users.update(zip(unknown, map(sole_user, values_of(base.claims, unknown)), strict=True))
        for claim in claims if len(unknown) < len(claims) else ():
            if on[claim] != name:
                self._also_on[claim].add(name)

    def _record_claims(self, base: Snapshot, occupancy: NodeOccupancy, bits_by_claim: Mapping[str, int]) -> bool:
        """Record which pod's removal frees each claim's devices; return whether only node and claims decide that.

        Otherwise it may change when other pods come or go, though node and claims stay the same.
        """
        frees, pods, known = occupancy.frees, occupancy.info.pods, self._users
        by_uid = {pod.key.uid: path for path, pod in pods.items()}
        for uid in ("", *[pod.key.uid for pod, _ in promised_members(base, pods.values())]):
            by_uid.pop(uid, None)
        cacheable = True
        for claim, bits in bits_by_claim.items():
            user = by_uid.get(known[claim] or "")
            if user is None:
                users = claim_users(base, claim)
                if users is None:
                    cacheable = False
                    continue
                (user,) = users if len(users) == 1 else ("",)
                cacheable &= _used_by_pods_only(base.claims.get(claim))
                if user not in pods:
                    occupancy.plain = False
                    continue
            frees[user] = frees[user] | bits if user in frees else bits
        return cacheable

    def _build(self, base: Snapshot, name: str) -> NodeOccupancy:
        occupancy = NodeOccupancy(base.nodes[name])
        classified = classified_nodes_of(base.classified_nodes, name)
        if classified is None:
            _look_at(occupancy, base, self._views(base, occupancy))
            return occupancy
        node_device_class = occupancy.node_device_class = classified.node_device_class
        sees_all = self._partitionable and base.devices.partition is WHOLE
        views = classified.views if sees_all else self._views(base, occupancy)
        if len(views) == len(classified.uses):
            # Nodes that have a class are simple: it says all but who holds the devices.
            occupancy.views, occupancy.uses = tuple(views), classified.uses
            occupancy.devices, occupancy.taken = node_device_class.devices, node_device_class.taken
        else:
            _look_at(occupancy, base, views)
        return occupancy

    def _views(self, base: Snapshot, occupancy: NodeOccupancy) -> Sequence[PoolView]:
        return base.devices.views(NodeView(occupancy.info.name, occupancy.info.labels), self._partitionable)


def _look_at(occupancy: NodeOccupancy, base: Snapshot, views: Sequence[PoolView]) -> None:
    """Find which devices a node has in these pools, and which of them are taken."""
    offset = 0
    occupancy.simple = all(view.status == "ok" for view in views)
    occupancy.views = tuple([view for view in views if view.confined])
    occupancy.uses = tuple([base.allocated.use(view.key) for view in occupancy.views])
    for view, use in zip(occupancy.views, occupancy.uses, strict=True):
        occupancy.simple &= not (use.shares or use.states)
        occupancy.taken |= view.occupation(use)[0] << offset
        offset += len(view.devices)
        occupancy.shared |= view.table.shareable
    occupancy.devices = (1 << offset) - 1


def _bits_by_claim(occupancy: NodeOccupancy) -> tuple[dict[str, int], bool]:
    """Return the bits of each claim's devices on a node, and whether each device has one holder."""
    bits_by_claim: dict[str, int] = defaultdict(int)
    sole, first = True, 1
    for view, use in zip(occupancy.views, occupancy.uses, strict=True):
        places, devices = view.table.places, use.devices
        holders = list(chain.from_iterable(devices.values()))
        if len(holders) == len(devices) and devices.keys() <= places.keys():  # as nearly always
            for holder, place in zip(holders, map(places.__getitem__, devices), strict=True):
                bits_by_claim[holder] |= first << place
        else:
            sole = sole and len(holders) == len(devices)
            for device, several in devices.items():
                for holder in several:
                    bits_by_claim[holder] |= first << places[device] if device in places else 0
        first <<= len(view.devices)
    return bits_by_claim, sole


def _used_by_pods_only(claim: Mapping[str, object] | None) -> bool:
    status = (claim or {}).get("status")
    entries = status.get("reservedFor") or () if isinstance(status, Mapping) else ()
    return len(entries) == [entry.get("resource") for entry in entries].count("pods")


def _nodes_of(devices: DeviceSnapshot, pools: Iterable[str]) -> Iterator[str]:
    for name in pools:
        pool = devices.pools.get(name)
        for item in pool.slices if pool is not None else ():
            yield item.placement.node_name
