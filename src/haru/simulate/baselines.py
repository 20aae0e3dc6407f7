"""Policies to compare with: first fit, best fit, most allocated, and Fragmentation Gradient Descent.

All break ties by the order of the nodes, and on a node by the order of its cards.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import mul

from haru.simulate.packing import CARD, Node, Shape, after, candidates

_BEST_CPU, _BEST_CARDS = 128_000, 8 * CARD
_COMMON = 0.95


class FirstFit:
    """The first node that fits, and its first card."""

    def start(self, nodes: Sequence[Node]) -> None:
        """Nothing to prepare."""

    def rate(self, node: Node, shape: Shape) -> tuple[float, tuple[int, ...]]:
        """No node is better than another."""
        return 0.0, _first(node, shape)


class BestFit:
    """The node with the least cpu and cards left, each in parts of the largest machine; the fullest card with room.

    The score is cut to an integer of 100, as in the published runs.
    """

    def start(self, nodes: Sequence[Node]) -> None:
        """Nothing to prepare."""

    def rate(self, node: Node, shape: Shape) -> tuple[float, tuple[int, ...]]:
        """Rate a node by the share that stays free, in hundredths."""
        left = (node.cpu - shape.cpu) / _BEST_CPU + (sum(node.rooms) - shape.amount) / _BEST_CARDS
        return -float(int((1.0 - left / 2) * 100)), _fullest(node, shape)


class MostAllocated:
    """kube-scheduler's NodeResourcesFit with MostAllocated over cpu, memory and cards, weighted alike."""

    def start(self, nodes: Sequence[Node]) -> None:
        """Nothing to prepare."""

    def rate(self, node: Node, shape: Shape) -> tuple[float, tuple[int, ...]]:
        """The mean of what is in use afterwards, in percent, each cut to an integer."""
        machine = node.machine
        shares = [
            (machine.cpu - node.cpu + shape.cpu) * 100 // machine.cpu,
            (machine.memory - node.memory + shape.memory) * 100 // machine.memory,
        ]
        if machine.cards:
            cards = machine.cards * CARD
            shares.append((cards - sum(node.rooms) + shape.amount) * 100 // cards)
        return -float(sum(shares) // len(shares)), _fullest(node, shape)


class FragmentationGradient:
    """Fragmentation Gradient Descent: the node whose cards become useless least, for the mix of work that is expected.

    For each common shape of work, what a node has left is a fragment if the node cannot take that work, and else what
    is left on the cards that cannot; the mean over the shapes is the fragmentation. Common are the most frequent shapes
    that make up 95 % of the pods, those without cards included. The score is 100 times the logistic function of the
    decrease, in cards, cut to an integer. Source: "Beware of Fragmentation", USENIX ATC'23, and its published runs.
    """

    def __init__(self, demand: Mapping[Shape, int]) -> None:
        counts: dict[tuple[int, int, int, frozenset[str]], int] = {}
        for shape, count in demand.items():
            kind = (shape.cpu, shape.cards, shape.part, shape.models)
            counts[kind] = counts.get(kind, 0) + count
        self._types: list[tuple[tuple[int, int, int, frozenset[str]], float]] = []
        total = common = 0
        for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0][:3], sorted(item[0][3]))):
            if common >= _COMMON * sum(counts.values()):
                break
            self._types.append((kind, count))
            common += count
        total = common or 1
        self._types = [(kind, count / total) for kind, count in self._types]
        self._needs = sorted({(kind[1], kind[2]) for kind, _ in self._types if kind[1]})
        self._cpus = sorted({kind[0] for kind, _ in self._types})
        self._shares: dict[str, list[list[float]]] = {}
        self._usable: dict[tuple[int, ...], list[int]] = {}
        self._known: dict[tuple[str, int, tuple[int, ...]], float] = {}

    def start(self, nodes: Sequence[Node]) -> None:
        """Nothing to prepare: what is known of one cluster holds for another."""

    def rate(self, node: Node, shape: Shape) -> tuple[float, tuple[int, ...]]:
        """Less the score of the best card."""
        model, cpu = node.machine.model, node.cpu - shape.cpu
        now = self._fragments(model, node.cpu, node.rooms)
        if not shape.cards:
            options = [node.rooms]
        elif shape.part < CARD:
            options = [after(node.rooms, shape, index) for index in candidates(node.rooms, shape.part)]
        else:
            options = [after(node.rooms, shape, 0)]
        best, chosen = -1, options[0]
        for rooms in options:
            score = int(100 / (1 + math.exp((self._fragments(model, cpu, rooms) - now) / CARD)))
            if score > best:
                best, chosen = score, rooms
        return -float(best), chosen

    def _fragments(self, model: str, cpu: int, rooms: tuple[int, ...]) -> float:
        key = (model, cpu, rooms)
        found = self._known.get(key)
        if found is None:
            found = float(sum(rooms))
            index = bisect_right(self._cpus, cpu) - 1
            if index >= 0 and rooms:
                found -= sum(map(mul, self._able(model)[index], self._of_use(rooms)))
            self._known[key] = found
        return found

    def _able(self, model: str) -> list[list[float]]:
        """For each number of cpus: the share of work that needs no more and accepts the model, by need of cards."""
        if model not in self._shares:
            rows = []
            for cpu in self._cpus:
                row = [0.0] * len(self._needs)
                for (needs, cards, part, models), share in self._types:
                    if cards and needs <= cpu and (not models or model in models):
                        row[self._needs.index((cards, part))] += share
                rows.append(row)
            self._shares[model] = rows
        return self._shares[model]

    def _of_use(self, rooms: tuple[int, ...]) -> list[int]:
        """For each need of cards, how much of the rooms is on cards that do for it."""
        if rooms not in self._usable:
            found = []
            for cards, part in self._needs:
                enough = [room for room in rooms if room >= part]
                found.append(sum(enough) if len(enough) >= cards else 0)
            self._usable[rooms] = found
        return self._usable[rooms]


def _first(node: Node, shape: Shape) -> tuple[int, ...]:
    if not shape.cards:
        return node.rooms
    return after(node.rooms, shape, next(iter(candidates(node.rooms, shape.part))))


def _fullest(node: Node, shape: Shape) -> tuple[int, ...]:
    if not shape.cards:
        return node.rooms
    return after(node.rooms, shape, min(candidates(node.rooms, shape.part), key=lambda index: node.rooms[index]))
