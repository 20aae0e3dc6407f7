"""A cluster without a free card, on which groups of mixed sizes run, and what comes to take their place.

Groups have 1 to 16 pods with 1 to 8 cards each (of cpu alone, for comparison, where nodes have no cards), one of ten
priorities, and every other one goes as a whole or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.decision_objects import RACK, Obj, claim_of, member, node_objects, pod_group
from benchmarks.device_objects import CLASSES
from haru.engine import SchedulerCache

NODE_CARDS = 8
CARD_CPU = 8
"""Whoever has a card has so much cpu with it; where there are no cards, this stands for one."""
SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 4), (4, 1), (4, 2), (8, 1), (2, 8), (4, 4), (16, 1))
LEVELS = 10
ABOVE_ALL = 100


class Kind(NamedTuple):
    """A sort of preemptor: `pods` with `cards` each; a single pod without a group if `pods` is 0."""

    name: str
    pods: int
    cards: int
    topology: str = ""


KINDS = (
    Kind("pod x 1", 0, 1),
    Kind("pod x 4", 0, 4),
    Kind("pod x 8", 0, 8),
    Kind("gang 2 x 8", 2, 8),
    Kind("gang 4 x 1", 4, 1),
    Kind("gang 8 x 4", 8, 4),
    Kind("gang 16 x 8", 16, 8),
    Kind("gang 64 x 1", 64, 1),
    Kind("gang 4 x 8, one rack", 4, 8, RACK),
    Kind("gang 16 x 1, one rack", 16, 1, RACK),
    Kind("gang 16 x 8, one rack", 16, 8, RACK),
)


@dataclass
class Full:
    """The cluster, and the objects of each running pod by its path: itself and its claim, if it has one."""

    cluster: SchedulerCache
    devices: bool
    objects: dict[str, list[Obj]] = field(default_factory=dict)
    free: dict[str, list[int]] = field(default_factory=dict)

    def preemptor(self, kind: Kind, number: int, priority: int) -> list[Obj]:
        """The objects of a preemptor, its PodGroup first if it has one."""
        name = f"preemptor-{number:05}"
        if not kind.pods:
            return self._pod(name, "", kind.cards, priority)
        made = [pod_group(name, kind.pods, kind.topology, priority=priority)]
        for index in range(kind.pods):
            made += self._pod(f"{name}-{index:03}", name, kind.cards, priority)
        return made

    def _pod(self, name: str, group: str, cards: int, priority: int) -> list[Obj]:
        made = member(name, group, cards if self.devices else 0, cpu=str(CARD_CPU * cards))
        made[0]["spec"]["priority"] = priority
        return made

    def run(self, name: str, group: str, node: str, cards: int, priority: int, start: int) -> None:
        """Let a pod of a group run on a node."""
        made = self._pod(name, group, cards, priority)
        pod = made[0]
        pod["spec"]["nodeName"] = node
        pod["status"] |= {"phase": "Running", "startTime": f"2026-11-01T{start // 60 % 24:02}:{start % 60:02}:00Z"}
        taken, self.free[node] = self.free[node][:cards], self.free[node][cards:]
        if self.devices:
            made[1] = claim_of(pod, cards, node, [f"gpu-{card}" for card in taken])
        self.objects[f"default/{name}"] = made
        for obj in made:
            self.cluster.apply(obj)


def full_cluster(nodes: int, groups: int, racks: int, *, devices: bool, seed: int = 1) -> Full:
    """A cluster on which so many groups run and leave nothing free."""
    rng = random.Random(seed)
    classes = [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **item} for item in CLASSES]
    full = Full(SchedulerCache.of(classes), devices)
    for number in range(nodes):
        node, *slices = node_objects(number, number * racks // nodes, NODE_CARDS if devices else 0)
        if not devices:
            node["status"]["allocatable"]["cpu"] = str(NODE_CARDS * CARD_CPU)
        for obj in (node, *slices):
            full.cluster.apply(obj)
    names = list(full.cluster.snapshot().node_names)
    full.free = {name: list(range(NODE_CARDS)) for name in names}
    rng.shuffle(names)
    wanted = [rng.choice(SHAPES) for _ in range(groups)]
    # Large pods first: later there is no room for them any more.
    for number in sorted(range(groups), key=lambda n: -wanted[n][1]):
        name, priority, start = f"running-{number:05}", number % LEVELS, rng.randrange(1440)
        full.cluster.apply(pod_group(name, 1, priority=priority, whole=bool(number // LEVELS % 2)))
        for index, place in enumerate(_nodes_for(full, names, *wanted[number])):
            full.run(f"{name}-{index:03}", name, place, wanted[number][1], priority, start)
    # What is left over goes to one group or another, card by card.
    left = [place for place in names for _ in full.free[place]]
    for index, place in enumerate(left):
        number = index % groups
        full.run(f"running-{number:05}-more-{index}", f"running-{number:05}", place, 1, number % LEVELS, 0)
    return full


def _nodes_for(full: Full, names: list[str], pods: int, cards: int) -> Iterator[str]:
    """The first nodes with so many cards free, one per pod; fewer if there are no more."""
    while names and not full.free[names[0]]:
        names.pop(0)
    for name in list(names):
        while pods and len(full.free[name]) >= cards:
            pods -= 1
            yield name
        if not pods:
            return
