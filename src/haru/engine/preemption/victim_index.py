"""Keep all disruption units of the cluster sorted by importance, and update them from snapshot differences.

Source: KEP-5710 (units, importance); that the order is kept is our own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter, is_
from typing import NamedTuple

from haru.engine.preemption.change_log import ChangeLog
from haru.engine.preemption.disruption_units import (
    DisruptionUnit,
    Rank,
    running_pods,
    units_below,
    whole_unit,
    with_priorities,
)
from haru.engine.preemption.dry_run import promised_members
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import differing, values_of
from haru.engine.state.decision import GroupKey
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.podgroup_state import PodGroupState
from haru.kube.meta import Obj

_TOPIC = "victims"
_RANK = attrgetter("rank")
_ABOVE_ALL = 2**31
"""A priority above all others."""
_MOST_LATE = 64
"""On so many changed nodes single pods may wait to be indexed: whoever indexes them all does not wait long."""


class _Seen(NamedTuple):
    """What units depend on in the last snapshot; the snapshot itself, with its claims, is not kept."""

    nodes: Mapping[str, NodeInfo]
    pod_groups: Mapping[str, Obj]
    group_states: Mapping[str, PodGroupState]


class VictimIndex:
    """Index the units of the last snapshot. `groups`: whether pods belong to PodGroups.

    Single pods on changed nodes are indexed once the node is asked for, or units of the whole cluster are: a preemptor
    that takes one node looks at few.
    """

    def __init__(self, groups: bool) -> None:
        self._groups = groups
        self._seen: _Seen | None = None
        self._ranks: list[Rank] = []
        self._units: list[DisruptionUnit] = []  # in the order of their ranks
        self._single: dict[str, list[DisruptionUnit]] = {}  # by node
        self._late: set[str] = set()
        """The nodes of which `_single`, and so the sorted units, are those of an earlier snapshot."""
        self._whole: dict[
            GroupKey, tuple[DisruptionUnit, frozenset[str]]
        ] = {}  # with the nodes that have pods of the group
        self._whole_on: dict[str, set[GroupKey]] = {}
        self._promised_on: dict[str, set[GroupKey]] = {}  # by node, where there are any: groups with promised members
        self._known_on: dict[str, tuple[DisruptionUnit, ...]] = {}
        """By node that was asked for: what `units_on` returns."""
        self._least: dict[str, Rank] = {}
        """By node, where it was asked for: the rank of its least important unit."""
        self._dropped: dict[str, Rank] = {}
        """By node: what `_least` had, while that unit is dropped and others may be added."""
        self.changes = ChangeLog()
        """The nodes on which other units are than before."""

    @staticmethod
    def of(base: Snapshot, *, groups: bool) -> VictimIndex:
        """Return the index of a snapshot's units; the decision cache keeps it."""
        found = base.decision_cache.get_or_compute(_TOPIC, groups, lambda: VictimIndex(groups))
        found.catch_up(base)
        return found

    def below(self, priority: int) -> list[DisruptionUnit]:
        """Return all units of a lower priority, most important first."""
        if self._late:
            self._settle()
        return self._units[bisect_left(self._ranks, (1 - priority,)) :]

    def has_more_below(self, priority: int, number: int) -> bool:
        """Tell whether more units than a number have a lower priority."""
        known = len(self._units) - bisect_left(self._ranks, (1 - priority,))
        outdated = sum([len(self._single.get(node, ())) for node in self._late])
        return known - outdated > number or len(self.below(priority)) > number

    def below_on(self, priority: int, node: str) -> list[DisruptionUnit]:
        """Return the units of a lower priority with pods on a node, in the same order."""
        return [unit for unit in self.units_on(node) if unit.priority < priority]

    def units_on(self, node: str) -> tuple[DisruptionUnit, ...]:
        """Return all units with pods on a node, most important first; the same object while these stay."""
        found = self._known_on.get(node)
        if found is None:
            wholes = [self._whole[key][0] for key in self._whole_on.get(node, ())]
            singles = self._single_units((node,)) if node in self._late else self._single.get(node, ())
            units = sorted((*singles, *wholes), key=_RANK)
            found = self._known_on[node] = tuple(units)
        return found

    def least_rank_on(self, node: str) -> Rank | None:
        """Return the rank of the least important unit with a pod on a node; None without any."""
        if self._late:
            self._settle()
        known = self._least.get(node)
        if known is None and (units := self.units_on(node)):
            known = self._least[node] = units[-1].rank
        return known

    def catch_up(self, base: Snapshot) -> None:
        """Update the index to another snapshot."""
        before = self._seen
        now = self._seen = _Seen(base.nodes, base.pod_groups, base.podgroup_index.states)
        if before is None:
            self._begin(base)
            return
        if all(map(is_, now, before)):
            return
        nodes = differing(now.nodes, before.nodes)
        keys = self._changed_groups(base, before, nodes) if self._groups else set()
        self._forget(nodes)
        self._late |= nodes
        gone = {self._remove_group(key).rank for key in keys if key in self._whole}
        added: list[DisruptionUnit] = []
        for key in keys:
            whole = whole_unit(base, key)
            if whole is not None and any(_is_present(base.nodes, node) for node in whole.nodes):
                self._add_group(base, key, whole)
                added.append(whole)
        self._exchange(gone, added)
        if len(self._late) > _MOST_LATE:
            self._settle()

    def _settle(self) -> None:
        """Index the single pods on all nodes that changed."""
        late, self._late = self._late, set()
        asked = [units for units in map(self._known_on.get, late) if units is not None]
        now = [unit for units in asked for unit in units if unit.group is None]
        now += self._single_units(late - self._known_on.keys())
        gone = {unit for name in late for unit in self._single.pop(name, ())}
        added = [unit for unit in now if unit not in gone]
        gone.difference_update(now)
        for unit in now:
            self._single.setdefault(unit.pods[0].node, []).append(unit)
        for unit in gone:
            self._forget_least(unit.pods[0].node, unit.rank)
        self._exchange({unit.rank for unit in gone}, added)

    def _single_units(self, nodes: Collection[str]) -> list[DisruptionUnit]:
        """Return the units of single pods on late nodes: what they were before where nothing about them changed."""
        assert self._seen is not None
        before = {id(unit.pods[0]): unit for name in nodes for unit in self._single.get(name, ())}
        found = []
        pods = _pods_on(self._seen.nodes, nodes)
        for pod, priority, is_whole in with_priorities(self._seen.pod_groups, pods, groups=self._groups):
            if is_whole or not pod.spec.get("nodeName"):
                continue
            same = before.get(id(pod))
            found.append(same if same is not None and same.priority == priority else DisruptionUnit((pod,), priority))
        return found

    def _changed_groups(self, base: Snapshot, before: _Seen, nodes: set[str]) -> set[GroupKey]:
        """Return the groups whose units may have changed; add the nodes that they affect to `nodes`."""
        regrouped = {_key(path) for path in differing(base.pod_groups, before.pod_groups)}
        for key in regrouped:
            nodes |= _nodes_of(base, key)
        keys = regrouped | {_key(path) for path in differing(base.podgroup_index.states, before.group_states)}
        keys |= self._promised_groups(base, nodes)
        names = list(nodes)
        for name, node, old in zip(names, values_of(base.nodes, names), values_of(before.nodes, names), strict=True):
            if (node is not None and node.present) is not (old is not None and old.present):
                keys |= self._whole_on.get(name, set())
                keys.update(pod.group for pod in _pods_on(base.nodes, (name,)) if pod.group is not None)
        return keys

    def _promised_groups(self, base: Snapshot, nodes: Iterable[str]) -> set[GroupKey]:
        """Note which groups have promised members on these nodes; return them and those that had some before."""
        found: set[GroupKey] = set()
        for name in self._promised_on.keys() & nodes:
            found |= self._promised_on.pop(name)
        for pod, group in promised_members(base, _pods_on(base.nodes, nodes)) if base.promised else ():
            self._promised_on.setdefault(pod.node, set()).add(group)
            found.add(group)
        return found

    def _begin(self, base: Snapshot) -> None:
        found = units_below(base, _ABOVE_ALL, running_pods(base, base.node_names), groups=self._groups)
        self._units = sorted(found, key=lambda unit: unit.rank)
        self._ranks = [unit.rank for unit in self._units]
        self._promised_groups(base, base.node_names)
        for unit in self._units:
            if unit.group is None:
                self._single.setdefault(unit.pods[0].node, []).append(unit)
            else:
                self._add_group(base, unit.group, unit)

    def _exchange(self, gone: set[Rank], units: Iterable[DisruptionUnit]) -> None:
        """Put units in the place of those with these ranks, which most of them have: pods change more often than go."""
        for unit in units:
            rank = unit.rank
            place = bisect_left(self._ranks, rank)
            if rank in gone:
                gone.remove(rank)
                self._units[place] = unit
            else:
                self._ranks.insert(place, rank)
                self._units.insert(place, unit)
            for name in (unit.pods[0].node,) if unit.group is None else self._whole[unit.group][1]:
                known = self._least.get(name) or self._dropped.get(name)
                if known is not None and rank >= known:
                    self._least[name] = rank
        for rank in gone:
            place = bisect_left(self._ranks, rank)
            del self._ranks[place], self._units[place]
        self._dropped.clear()

    def _add_group(self, base: Snapshot, key: GroupKey, unit: DisruptionUnit) -> None:
        nodes = frozenset(unit.nodes)
        if len(unit.pods) < base.group_state(key).scheduled_count:
            nodes |= _nodes_of(base, key)
        self._whole[key] = unit, nodes
        for name in nodes:
            self._whole_on.setdefault(name, set()).add(key)
        self._forget(nodes)

    def _forget_least(self, node: str, rank: Rank) -> None:
        """Note that a node loses the unit of a rank."""
        if self._least.get(node) == rank:
            self._dropped[node] = self._least.pop(node)

    def _remove_group(self, key: GroupKey) -> DisruptionUnit:
        unit, nodes = self._whole.pop(key)
        for name in nodes:
            self._whole_on[name].discard(key)
            self._forget_least(name, unit.rank)
        self._forget(nodes)
        return unit

    def _forget(self, nodes: Collection[str]) -> None:
        for name in nodes:
            self._known_on.pop(name, None)
        self.changes.add(nodes)


def _key(path: str) -> GroupKey:
    namespace, _, name = path.rpartition("/")
    return GroupKey(namespace, name)


def _nodes_of(snapshot: Snapshot, key: GroupKey) -> set[str]:
    return {snapshot.pods[path].node for path in snapshot.group_state(key).scheduled}


def _pods_on(nodes: Mapping[str, NodeInfo], names: Iterable[str]) -> list[PodInfo]:
    found = values_of(nodes, names)
    return [pod for node in found if node is not None and node.present for pod in node.pods.values()]


def _is_present(nodes: Mapping[str, NodeInfo], name: str) -> bool:
    node = nodes.get(name)
    return node is not None and node.present
