"""The units of a whole cluster in order of importance, kept in its notes: between two decisions few pods come or go.

Source: KEP-5710 (units, importance); that the order is kept is our own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from haru.engine.cluster import Snapshot
from haru.engine.decision import GroupKey
from haru.engine.groups.units import Rank, Unit, running_pods, units_below
from haru.engine.persistent import differing
from haru.engine.pods import PodInfo

_TOPIC = "units"
_EVERYBODY = 2**31
"""A priority above all others."""


class UnitBook:
    """The units of the snapshot that was caught up with last. `groups`: whether pods belong to PodGroups."""

    def __init__(self, groups: bool) -> None:
        self._groups = groups
        self._base: Snapshot | None = None
        self._ranks: list[Rank] = []
        self._units: list[Unit] = []  # in the order of their ranks
        self._single: dict[str, list[Unit]] = {}  # by node
        self._whole: dict[GroupKey, tuple[Unit, frozenset[str]]] = {}  # with the nodes that have pods of the group
        self._whole_on: dict[str, set[GroupKey]] = {}

    @staticmethod
    def of(base: Snapshot, *, groups: bool) -> UnitBook:
        """The units of a snapshot."""
        found = base.notes.entry(_TOPIC, groups, lambda: UnitBook(groups))
        found.catch_up(base)
        return found

    def below(self, priority: int) -> list[Unit]:
        """All units of a lower priority, most important first."""
        return self._units[bisect_left(self._ranks, (1 - priority,)) :]

    def below_on(self, priority: int, node: str) -> list[Unit]:
        """Those that have pods on a node, in the same order."""
        wholes = [self._whole[key][0] for key in self._whole_on.get(node, ())]
        found = [unit for unit in (*self._single.get(node, ()), *wholes) if unit.priority < priority]
        found.sort(key=attrgetter("rank"))
        return found

    def catch_up(self, base: Snapshot) -> None:
        """Go on with another snapshot."""
        before, self._base = self._base, base
        if before is base:
            return
        if before is None:
            self._begin(base)
            return
        nodes = differing(base.nodes, before.nodes)
        keys = self._changed_groups(base, before, nodes) if self._groups else set()
        self._drop([unit for name in nodes for unit in self._single.pop(name, ())])
        self._drop([self._forget(key) for key in keys if key in self._whole])
        added = units_below(base, _EVERYBODY, _pods_on(base, nodes), groups=self._groups, whole=False)
        for key in keys:
            added += self._wholes(base, key)
        self._add(added)

    def _changed_groups(self, base: Snapshot, before: Snapshot, nodes: set[str]) -> set[GroupKey]:
        """The groups that may be other units than before; `nodes` gets those on which they make a difference."""
        regrouped = {_key(path) for path in differing(base.pod_groups, before.pod_groups)}
        for key in regrouped:
            nodes |= _nodes_of(before, key) | _nodes_of(base, key)
        keys = regrouped | {_key(path) for path in differing(base.groups, before.groups)}
        for name in nodes:
            there, was = base.nodes.get(name), before.nodes.get(name)
            if (there is not None and there.present) != (was is not None and was.present):
                keys |= self._whole_on.get(name, set())
                keys.update(pod.group for pod in _pods_on(base, (name,)) if pod.group is not None)
        return keys

    def _begin(self, base: Snapshot) -> None:
        found = units_below(base, _EVERYBODY, running_pods(base, base.node_names), groups=self._groups)
        self._units = sorted(found, key=lambda unit: unit.rank)
        self._ranks = [unit.rank for unit in self._units]
        for unit in self._units:
            self._note(base, unit)

    def _add(self, units: Iterable[Unit]) -> None:
        assert self._base is not None
        for unit in units:
            place = bisect_left(self._ranks, unit.rank)
            self._ranks.insert(place, unit.rank)
            self._units.insert(place, unit)
            self._note(self._base, unit)

    def _note(self, base: Snapshot, unit: Unit) -> None:
        if unit.group is None:
            self._single.setdefault(unit.pods[0].node, []).append(unit)
            return
        nodes = frozenset(_nodes_of(base, unit.group))
        self._whole[unit.group] = unit, nodes
        for name in nodes:
            self._whole_on.setdefault(name, set()).add(unit.group)

    def _drop(self, units: Iterable[Unit]) -> None:
        for unit in units:
            place = bisect_left(self._ranks, unit.rank)
            del self._ranks[place], self._units[place]

    def _forget(self, key: GroupKey) -> Unit:
        unit, nodes = self._whole.pop(key)
        for name in nodes:
            self._whole_on[name].discard(key)
        return unit

    def _wholes(self, base: Snapshot, key: GroupKey) -> list[Unit]:
        """The group as a unit, if it is one and has pods on nodes that are there."""
        pods = (base.pods[path] for path in base.group_state(key).scheduled)
        there = [pod for pod in pods if (node := base.nodes.get(pod.node)) is not None and node.present]
        return [unit for unit in units_below(base, _EVERYBODY, there[:1]) if unit.group is not None]


def _key(path: str) -> GroupKey:
    namespace, _, name = path.rpartition("/")
    return GroupKey(namespace, name)


def _nodes_of(snapshot: Snapshot, key: GroupKey) -> set[str]:
    return {snapshot.pods[path].node for path in snapshot.group_state(key).scheduled}


def _pods_on(snapshot: Snapshot, nodes: Iterable[str]) -> list[PodInfo]:
    there = (name for name in nodes if (node := snapshot.nodes.get(name)) is not None and node.present)
    return list(running_pods(snapshot, there))
