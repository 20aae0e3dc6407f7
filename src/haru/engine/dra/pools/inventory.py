"""The published devices of a cluster, indexed so that a node's pools are found without looking at other nodes'.

`Inventory` is fed by watch events and is the only mutable thing here; `snapshot()` freezes it at the cost of a few
hundred pointers. A slice that names a node and holds no counters concerns that node alone. Everything else is looked
at for every node, except that the counter slices of a node's own pool matter to other nodes only when that pool is
incomplete or invalid: those troubled pools are kept in a list.
Source: KEP-4381, KEP-4815, KEP-5055 (taint rules).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from haru.engine.dra.model.claims import decode_class
from haru.engine.dra.model.model import Device, DeviceClass, DeviceId, NodeView, PoolKey, Slice
from haru.engine.dra.model.slice_decoder import SliceDecoder
from haru.engine.dra.pools.device_table import DeviceTables
from haru.engine.dra.pools.pools import Pool, PoolView
from haru.engine.dra.taints import TaintRule, TaintRules, decode_taint_rule, rule_taints
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.state.cow_map import CowMap, FrozenMap
from haru.engine.state.partition import WHOLE, Partition
from haru.kube.meta import Obj

_NOWHERE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSnapshot:
    """The inventory at one moment; never changes.

    `mapped`: some device counts against its node (KEP-5517). `partition`: `views` leave out the pools outside.
    """

    pools: Mapping[str, Pool]
    by_node: Mapping[str, frozenset[str]]
    everywhere: frozenset[str]
    troubled: frozenset[str]
    classes: Mapping[str, DeviceClass]
    tables: DeviceTables
    version: int = 0
    mapped: bool = False
    partition: Partition = WHOLE

    @classmethod
    def of(
        cls, slices: Iterable[Obj] = (), classes: Iterable[Obj] = (), taint_rules: Iterable[Obj] = ()
    ) -> DeviceSnapshot:
        """A snapshot straight from objects. Slices of equal name are kept apart."""
        inventory = Inventory()
        for rule in taint_rules:
            inventory.upsert_taint_rule(rule)
        inventory._put_slices((f"{number}", item) for number, item in enumerate(slices))
        for device_class in classes:
            inventory.upsert_class(device_class)
        return inventory.snapshot()

    @property
    def cache(self) -> DecisionCache:
        """Return the cache for results that depend on what devices are, not on which of them are taken."""
        return self.tables.cache

    def views(self, node: NodeView, partitionable: bool = True) -> list[PoolView]:
        """The pools that a node sees, in the order in which devices are tried."""
        found, pools, partition = [], self.pools, self.partition
        for key in self._pool_keys(node.name):
            pool = pools[key]
            view = None
            if partition is WHOLE or partition.has_pool(*pool.key):
                view = pool.view(node, partitionable)
            if view is not None:
                found.append(view)
        if len(found) > 1:
            found.sort(key=lambda v: (v.binding, v.key.driver.encode(), v.key.pool.encode()))
        return found

    def views_outside(self, node: NodeView, partitionable: bool = True) -> list[PoolView]:
        """The pools outside the partition that a node sees."""
        others = (self.pools[key] for key in self._pool_keys(node.name))
        views = (pool.view(node, partitionable) for pool in others if not self.partition.has_pool(*pool.key))
        return [view for view in views if view is not None]

    def _pool_keys(self, node: str) -> Iterable[str]:
        local: frozenset[str] = self.by_node.get(node, frozenset())
        if not self.everywhere and not self.troubled:
            return local
        return [*local, *(self.everywhere - local), *(self.troubled - local - self.everywhere)]


class Inventory:
    """All slices, classes and taint rules, kept up to date by their watch events."""

    def __init__(self, cache: DecisionCache | None = None, decoder: SliceDecoder | None = None) -> None:
        self._tables = DeviceTables(cache)
        self._decoder = SliceDecoder() if decoder is None else decoder
        self._published: dict[str, Slice] = {}
        self._mapping: set[str] = set()
        self._rules = TaintRules()
        self._members: dict[str, dict[str, Slice]] = {}
        self._pools: CowMap[Pool] = CowMap()
        self._by_node: CowMap[frozenset[str]] = CowMap()
        self._moved: set[str] = set()
        self._everywhere: frozenset[str] = frozenset()
        self._troubled: frozenset[str] = frozenset()
        self._classes: dict[str, DeviceClass] = {}
        self._version = 0
        self._partition = WHOLE
        self._snapshot: DeviceSnapshot | None = None

    def confine(self, partition: Partition) -> None:
        """Leave the pools outside a partition out of what nodes see. For an empty inventory."""
        self._partition = partition
        self._changed()

    def upsert_slice(self, obj: Obj) -> None:
        """Take in a new or changed ResourceSlice."""
        self._put_slices([(str((obj.get("metadata") or {}).get("name") or ""), obj)])

    def delete_slice(self, name: str) -> None:
        """Forget a ResourceSlice."""
        old = self._published.pop(name, None)
        if old is not None:
            self._decoder.is_stale = True
            self._mapping.discard(name)
            self._drop(name, old)
            self._changed()

    def upsert_class(self, obj: Obj) -> None:
        """Take in a new or changed DeviceClass."""
        decoded = decode_class(obj)
        self._classes = {**self._classes, decoded.name: decoded}
        self._changed()

    def delete_class(self, name: str) -> None:
        """Forget a DeviceClass."""
        self._classes = dict(self._classes)
        self._classes.pop(name, None)
        self._changed()

    def upsert_taint_rule(self, obj: Obj) -> None:
        """Take in a new or changed DeviceTaintRule."""
        rule = decode_taint_rule(obj)
        old = self._rules.put(rule)
        self._retaint([r for r in (old, rule) if r is not None])

    def delete_taint_rule(self, name: str) -> None:
        """Forget a DeviceTaintRule."""
        old = self._rules.pop(name)
        if old is not None:
            self._retaint([old])

    def snapshot(self) -> DeviceSnapshot:
        """The inventory as it is now."""
        if self._snapshot is None:
            pools: FrozenMap[Pool] = self._pools.freeze()
            by_node: FrozenMap[frozenset[str]] = self._by_node.freeze()
            self._snapshot = DeviceSnapshot(
                pools,
                by_node,
                self._everywhere,
                self._troubled,
                self._classes,
                self._tables,
                self._version,
                bool(self._mapping),
                self._partition,
            )
        return self._snapshot

    def pool(self, name: str) -> Pool | None:
        """A pool as it is now, by `driver/pool`."""
        found: Pool | None = self._pools.get(name)
        return found

    def pools_of(self, node: str) -> list[Pool]:
        """The pools of the partition with slices that name a node."""
        pools = (self._pools[name] for name in self._by_node.get(node) or ())
        return [pool for pool in pools if self._partition.has_pool(*pool.key)]

    def take_moved(self) -> set[str]:
        """The nodes named by slices of pools that changed since this was asked last."""
        moved, self._moved = self._moved, set()
        return moved

    def _changed(self) -> None:
        self._version += 1
        self._snapshot = None

    def _put_slices(self, named: Iterable[tuple[str, Obj]]) -> None:
        """Take in slices by name; every pool of theirs is looked at once."""
        touched: dict[PoolKey, None] = {}
        for name, obj in named:
            new = self._decoder.decode(obj)
            old = self._published.get(name)
            if old is not None:
                self._decoder.is_stale = True
                if old.pool != new.pool:
                    self._drop(name, old)
            self._published[name] = new
            (self._mapping.add if new.mappings else self._mapping.discard)(name)
            self._members.setdefault(f"{new.pool[0]}/{new.pool[1]}", {})[name] = (
                self._tainted(new) if self._rules else new
            )
            touched[new.pool] = None
        for pool in touched:
            self._rebuild_pool(pool)
        self._changed()
        self._decoder.renew_if_stale(self._published.values())

    def _drop(self, name: str, old: Slice) -> None:
        members = self._members[str(old.pool)]
        del members[name]
        self._rebuild_pool(old.pool)

    def _tainted(self, item: Slice) -> Slice:
        rules = self._rules.for_pool(item.pool)
        if not rules:
            return item

        def patched(device: Device) -> Device:
            added = rule_taints(rules, DeviceId(*item.pool, device.name))
            return replace(device, taints=self._decoder.interner.value(device.taints + added)) if added else device

        return replace(item, devices=tuple(patched(d) for d in item.devices))

    def _retaint(self, rules: Iterable[TaintRule]) -> None:
        pools = {pool for rule in rules for pool in self._selected(rule)}
        for pool in pools:
            members = self._members[str(pool)]
            for name in members:
                members[name] = self._tainted(self._published[name])
            self._rebuild_pool(pool)
        if pools:
            self._changed()

    def _selected(self, rule: TaintRule) -> Iterable[PoolKey]:
        """The pools with devices that a rule may select; a rule that names its pool looks at no other."""
        if rule.driver is not None and rule.pool is not None:
            named = PoolKey(rule.driver, rule.pool)
            return (named,) if rule.has_selector and str(named) in self._members else ()
        return [pool.key for pool in self._pools.values() if rule.selects_pool(pool.key)]

    def _rebuild_pool(self, key: PoolKey) -> None:
        name = f"{key[0]}/{key[1]}"
        old = self._pools.get(name)
        members = self._members.get(name) or {}
        before = _nodes(old) if old is not None else _NOWHERE
        if members:
            pool = self._pools[name] = Pool(key, tuple(members.values()), self._tables)
            pool.look_ahead()
            after = _nodes(pool)
            self._mark_cluster_wide(name, pool)
        else:
            self._members.pop(name, None)
            self._pools.pop(name, None)
            after = _NOWHERE
            self._everywhere -= {name}
            self._troubled -= {name}
        self._moved |= after
        if before == after:
            return
        self._moved |= before
        for node in before - after:
            rest = self._by_node[node] - {name}
            if rest:
                self._by_node[node] = rest
            else:
                del self._by_node[node]
        for node in after - before:
            self._by_node[node] = self._by_node.get(node, _NOWHERE) | {name}

    def _mark_cluster_wide(self, name: str, pool: Pool) -> None:
        wide = counting = False
        for item in pool.slices:
            wide = wide or not item.placement.node_name
            counting = counting or bool(item.counter_sets)
        if wide != (name in self._everywhere):
            self._everywhere = self._everywhere | {name} if wide else self._everywhere - {name}
        foreign = pool.foreign_view(True) if counting and not wide else None
        trouble = foreign is not None and foreign.status != "ok"
        if trouble != (name in self._troubled):
            self._troubled = self._troubled | {name} if trouble else self._troubled - {name}


def _nodes(pool: Pool) -> frozenset[str]:
    return frozenset([item.placement.node_name for item in pool.slices if item.placement.node_name])
