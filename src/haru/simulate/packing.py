"""A cluster as numbers: nodes with cpu, memory and cards, filled by shapes of work. No objects, no clock.

It is the engine's question on the part of it that traces know: cpu, memory, cards, parts of cards, and models of cards.
A node takes work if its cpu and memory do and enough of its cards have the room; nothing is ever moved. Which of the
nodes that fit is taken, and which card, a policy says by a number: the least loss wins, and of equals the node that
comes first in the order of the nodes. That the nodes that fit are those of the engine is shown by a test.

For each shape of work the nodes are kept in a heap by their loss. A placement changes one node; a shape looks at what
has changed since it was last asked for. So a placement costs about as much as there are shapes, not nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

CARD = 1000
"""Thousandths of a card."""


class Shape(NamedTuple):
    """The requests of a pod: cpu (millicores), memory (MiB), cards, thousandths of each, models.

    A part below 1000 goes with one card. No models means any.
    """

    cpu: int
    memory: int
    cards: int = 0
    part: int = 0
    models: frozenset[str] = frozenset()

    @property
    def amount(self) -> int:
        """The requested amount of cards, in thousandths."""
        return self.cards * self.part


class Machine(NamedTuple):
    """The capacity of an empty node: cpu (millicores), memory (MiB), cards, and their model."""

    cpu: int
    memory: int
    cards: int
    model: str


class Node:
    """The free part of a node. `rooms`: thousandths free on each card that has any, in order."""

    __slots__ = ("cpu", "machine", "memory", "rooms", "version")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.cpu, self.memory = machine.cpu, machine.memory
        self.rooms: tuple[int, ...] = (CARD,) * machine.cards
        self.version = 0

    def fits(self, shape: Shape) -> bool:
        """Whether the node takes this work now."""
        if self.cpu < shape.cpu or self.memory < shape.memory:
            return False
        if not shape.cards:
            return True
        if shape.models and self.machine.model not in shape.models:
            return False
        return sum(1 for room in self.rooms if room >= shape.part) >= shape.cards

    def take(self, shape: Shape, rooms: tuple[int, ...]) -> None:
        """Place work; `rooms` is what it leaves of the cards."""
        self.cpu -= shape.cpu
        self.memory -= shape.memory
        self.rooms = rooms
        self.version += 1


class Policy(Protocol):
    """Which of the nodes that fit is taken, and which of its cards. One policy object serves one cluster at a time."""

    def start(self, nodes: Sequence[Node]) -> None:
        """A new cluster: the nodes, in their order, empty."""

    def rate(self, node: Node, shape: Shape) -> tuple[float, tuple[int, ...]]:
        """What is lost if a node that fits takes this work, and the rooms that it then has. Depends on nothing else."""


def after(rooms: tuple[int, ...], shape: Shape, index: int) -> tuple[int, ...]:
    """The rooms once a part of the card at an index is taken, or, for whole cards, the first so many that are whole."""
    if shape.part < CARD:
        left = rooms[index] - shape.part
        return (*rooms[:index], left, *rooms[index + 1 :]) if left else (*rooms[:index], *rooms[index + 1 :])
    kept, wanted = [], shape.cards
    for room in rooms:
        if room == CARD and wanted:
            wanted -= 1
        else:
            kept.append(room)
    return tuple(kept)


def candidates(rooms: Sequence[int], part: int) -> Iterable[int]:
    """The cards that have room for a part, in their order: of those with equal room the first."""
    seen: set[int] = set()
    for index, room in enumerate(rooms):
        if room >= part and room not in seen:
            seen.add(room)
            yield index


class Packer:
    """Places work on machines, in their order, one piece after another."""

    def __init__(self, machines: Iterable[Machine], policy: Policy) -> None:
        self.nodes = [Node(machine) for machine in machines]
        self._policy = policy
        self._heaps: dict[Shape, list[tuple[float, int, int]]] = {}
        self._seen: dict[Shape, int] = {}
        self._changed: list[int] = []
        policy.start(self.nodes)

    def place(self, shape: Shape) -> int | None:
        """The index of the node that took the work; None if none fits."""
        heap = self._heap(shape)
        nodes = self.nodes
        while heap:
            _, index, version = heap[0]
            node = nodes[index]
            if node.version == version:
                node.take(shape, self._policy.rate(node, shape)[1] if shape.cards else node.rooms)
                self._changed.append(index)
                return index
            heapq.heappop(heap)
        return None

    def _heap(self, shape: Shape) -> list[tuple[float, int, int]]:
        """The nodes that fit, least loss first, and some that have changed since."""
        heap = self._heaps.get(shape)
        if heap is None:
            heap = self._heaps[shape] = []
            self._push(heap, shape, range(len(self.nodes)))
        else:
            self._push(heap, shape, set(self._changed[self._seen[shape] :]))
        self._seen[shape] = len(self._changed)
        return heap

    def _push(self, heap: list[tuple[float, int, int]], shape: Shape, indexes: Iterable[int]) -> None:
        nodes, rate, push = self.nodes, self._policy.rate, heapq.heappush
        cpu, memory = shape.cpu, shape.memory
        for index in indexes:
            node = nodes[index]
            if node.cpu >= cpu and node.memory >= memory and node.fits(shape):
                push(heap, (rate(node, shape)[0], index, node.version))
