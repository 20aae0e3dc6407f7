"""Hold the results of filtering and scoring the nodes for the pods of one signature, and choose among the best.

Source: kube-scheduler's prioritizing (weighted sum of normalised scores, any of the best), as behaviour.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from haru.engine.dra.allocator.allocation import Solution
from haru.engine.equivalence.prefilter_state import PreFilterState
from haru.engine.framework.interfaces import FilterFailure, ScoreKey, Scorer, pick
from haru.engine.podgroup.filter_node import FilterPlan
from haru.engine.state.decision import Reason
from haru.engine.state.overlay import ChangeCursor, Overlay
from haru.kube.meta import Obj

_FEW_OF = 64
"""Fewer names than one for so many that are there are inserted one by one; more are sorted in."""
_MOST_NEXT_RESULTS = 1000
_SPARE_NEXT_RESULTS = 64
"""Besides two for each node: nodes that come and go in use come back to what they were."""


class ScoreIndex:
    """Nodes by score key. Nodes whose key is `closed` do not take part."""

    def __init__(self, scorers: Sequence[Scorer], closed: Callable[[ScoreKey], bool] | None = None) -> None:
        self._scorers = scorers
        self._closed = closed
        self._key_of: dict[str, ScoreKey] = {}
        self._members: dict[ScoreKey, list[str]] = {}
        self._best: list[ScoreKey] | None = None

    def key_of(self, name: str) -> ScoreKey | None:
        """Return a node's key."""
        return self._key_of.get(name)

    def put(self, name: str, key: ScoreKey) -> None:
        """Add a node, or move it."""
        before = self._key_of.get(name)
        if before == key:
            return
        if before is not None:
            self.drop(name)
        self._key_of[name] = key
        members = self._members.get(key)
        if members is None:
            self._members[key] = [name]
            self._best = None
        else:
            insort(members, name)

    def put_all(self, names: Sequence[str], key: ScoreKey) -> None:
        """Add new nodes, in the order of their names."""
        self._key_of.update(dict.fromkeys(names, key))
        members = self._members.get(key)
        if members is None:
            self._members[key] = list(names)
            self._best = None
        elif len(names) < len(members) // _FEW_OF:
            for name in names:
                insort(members, name)
        else:
            members += names
            members.sort()

    def drop(self, name: str) -> None:
        """Remove a node if it is there."""
        key = self._key_of.pop(name, None)
        if key is not None:
            members = self._members[key]
            del members[bisect_left(members, name)]
            if not members:
                del self._members[key]
                self._best = None

    def takes(self, name: str) -> bool:
        """Return whether a node takes part."""
        key = self._key_of.get(name)
        return key is not None and (self._closed is None or not self._closed(key))

    def __bool__(self) -> bool:
        return bool(self._members if self._closed is None else self._open())

    def _open(self) -> list[ScoreKey]:
        return [key for key in self._members if self._closed is None or not self._closed(key)]

    def choose(self, seed: int, salt: str, *, steady: bool = False) -> str:
        """Return one of the best nodes, all with equal probability; equal seed and salt give the same node.

        `steady`: nothing has changed since the last choice but what was put and dropped, and sizes do not count.
        """
        if self._best is None or not steady:
            totals = self._totals()
            best = max(totals.values())
            self._best = [key for key, total in totals.items() if total == best]
        if len(self._best) == 1:
            names = self._members[self._best[0]]
            return names[pick(len(names), seed, salt)]
        classes = [self._members[key] for key in self._best]
        classes.sort(key=lambda m: m[0])
        number = pick(sum(map(len, classes)), seed, salt)
        for members in classes:
            if number < len(members):
                return members[number]
            number -= len(members)
        raise AssertionError("a number below the count of all members is in one of their classes")

    def best_first(self) -> list[str]:
        """Return all nodes, the best first, equals by name."""
        totals = self.totals()
        return sorted(totals, key=lambda name: (-totals[name], name))

    def totals(self) -> dict[str, int]:
        """Return the nodes' scores."""
        totals = self._totals(whole=True)
        return {name: totals[key] for name, key in self._key_of.items() if key in totals}

    def normalised(self) -> dict[str, tuple[int, ...]]:
        """Return the nodes' scores by scorer, before their weights."""
        keys = self._open()
        columns: list[dict[Hashable, int]] = []
        for place, scorer in enumerate(self._scorers):
            sizes: dict[Hashable, int] = {}
            for key in keys:
                sizes[key[place]] = sizes.get(key[place], 0) + len(self._members[key])
            columns.append(dict(zip(sizes, scorer.scores(list(sizes), list(sizes.values())), strict=True)))
        scores = {key: tuple(column[part] for column, part in zip(columns, key, strict=False)) for key in keys}
        return {name: scores[key] for name, key in self._key_of.items() if key in scores}

    def _totals(self, *, whole: bool = False) -> dict[ScoreKey, int]:
        """Return the scores of the keys, `whole` or without the parts that are equal for all."""
        keys = self._open()
        counts = list(map(len, map(self._members.__getitem__, keys)))
        totals = [0] * len(keys)
        for scorer, parts in zip(self._scorers, zip(*keys, strict=True), strict=False):
            if not whole and parts.count(parts[0]) == len(parts):
                continue
            sizes = dict(zip(parts, counts, strict=True))
            if len(sizes) < len(parts):
                sizes = dict.fromkeys(parts, 0)
                for part, count in zip(parts, counts, strict=True):
                    sizes[part] += count
            scores = dict(zip(sizes, scorer.scores(list(sizes), list(sizes.values())), strict=True))
            totals = [total + scorer.weight * scores[part] for total, part in zip(totals, parts, strict=True)]
        return dict(zip(keys, totals, strict=True))


@dataclass(slots=True, unsafe_hash=True)
class FeasibleNode:
    """A node that takes the pod: its allocations, or the answer of the allocator that they follow from. Never changed.

    Nodes with one answer have devices that the claims cannot tell apart.
    """

    allocations: Sequence[Obj] = ()
    answer: Solution | None = None


class NextResult(NamedTuple):
    """The result of a node of one class after it takes one more pod of the signature, and which class it is in then."""

    candidate: FeasibleNode | None
    key: ScoreKey = ()
    refusal: Sequence[FilterFailure] = ()
    node_class: Hashable = None


class FilterSummary(NamedTuple):
    """Sum up all refusals: one message, its reasons, the plugins, and the failures of each node."""

    message: str
    reasons: tuple[Reason, ...]
    plugins: tuple[str, ...]
    failures: Mapping[str, Sequence[FilterFailure]]


@dataclass(slots=True)
class NodeFeasibility:
    """The results of all nodes for pods of one signature.

    `devices_position`: the changes of devices that are counted in (`DeviceFeasibilityCache.position`). `next_results`,
    by class of nodes, hold as long as the scorers give equal nodes the same keys; attempts on other nodes share them.
    """

    plan: FilterPlan
    prefilter: PreFilterState
    ranking: ScoreIndex
    next_results: dict[Hashable, NextResult]
    cursor: ChangeCursor = field(default_factory=ChangeCursor)
    later_passes: tuple[PreFilterState, ...] = ()
    differing_nodes: frozenset[str] = frozenset()
    refreshed_in: object = None
    """The attempt that refreshed it last."""
    devices_position: int = -1
    summary: FilterSummary | None = None
    candidates: dict[str, FeasibleNode] = field(default_factory=dict)
    refusals: dict[str, Sequence[FilterFailure]] = field(default_factory=dict)
    undecided: dict[str, str] = field(default_factory=dict)
    _told: dict[str, Sequence[FilterFailure]] | None = None
    """The failures by name, as they were told last; the nodes of `_forgotten` may have others since."""
    _forgotten: set[str] = field(default_factory=set)

    def keep_next_result(self, node_class: Hashable, result: NextResult) -> None:
        """Keep what the nodes of a class answer after each takes one more pod."""
        if len(self.next_results) >= min(_MOST_NEXT_RESULTS, 2 * self.size + _SPARE_NEXT_RESULTS):
            self.next_results.clear()
        self.next_results[node_class] = result

    def forget(self, name: str) -> None:
        """Drop the result of a node; each new result of a node comes after that."""
        if self._told is not None:
            self._forgotten.add(name)
        if self.candidates.pop(name, None) is not None:
            self.ranking.drop(name)
        self.refusals.pop(name, None)
        self.undecided.pop(name, None)

    def refuse(self, name: str, failures: Sequence[FilterFailure]) -> None:
        """Refuse a node, unless what was asked before has refused it."""
        if name not in self.refusals:
            self.forget(name)
            self.refusals[name] = failures

    def forget_all(self) -> None:
        """Drop the results of all nodes, or expect those of the first."""
        self._told = None
        self._forgotten.clear()
        for name in [*self.candidates, *self.refusals, *self.undecided]:
            self.forget(name)

    def filter_failures(self, overlay: Overlay) -> dict[str, Sequence[FilterFailure]]:
        """Return the failures of each node that refuses the pod, by name."""
        if not self.prefilter.spreads_by_key:
            return self._failures_by_name()
        found = {
            name: self.prefilter.filter_failures(overlay.node(name), failures)
            for name, failures in self.refusals.items()
        }
        closed = (name for name in self.candidates if not self.ranking.takes(name))
        found |= {name: self.prefilter.filter_failures(overlay.node(name), ()) for name in closed}
        return dict(sorted(found.items()))

    def _failures_by_name(self) -> dict[str, Sequence[FilterFailure]]:
        told, refusals = self._told, self.refusals
        if told is None or any((name in told) is not (name in refusals) for name in self._forgotten):
            names = sorted(refusals)
            told = dict(zip(names, map(refusals.__getitem__, names), strict=True))
        elif self._forgotten:
            # Nearly always the same nodes refuse as the last time: they are in order already.
            told = told.copy()
            told.update((name, refusals[name]) for name in self._forgotten if name in refusals)
        self._told = told
        self._forgotten.clear()
        return told

    @property
    def size(self) -> int:
        """Return how many nodes have a result."""
        return len(self.candidates) + len(self.refusals) + len(self.undecided)
