"""How full a domain would be with a group in it: the fullest one that takes the group is chosen.

NodeResourcesFit's formula for placements: per resource the share in use after the group is placed, over all nodes of
the domain, weighted as the profile says. Cpu and memory count what a pod without requests is taken for. Beside them
count the extended resources and the devices that the group asks for, by class: where cards are scheduled, they are what
fills a rack. PodGroupPodsCount adds how many members have a place, in percent of the most that any domain takes.
Source: KEP-5732 (placement scoring); that devices count is our own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from haru.engine.groups.aggregates import Aggregates, DeviceCounts
from haru.engine.pods import PodInfo
from haru.engine.profile import Profile

MAX_SCORE = 100
ACCELERATOR_WEIGHT = 98
"""Of an extended resource or a class of devices that the group asks for, unless the profile weighs the resource."""

Key = Hashable
Amounts = Mapping[Key, int]


class Fullness:
    """Scores domains for one group. Amounts are what placed members ask for: resources by name, devices by key."""

    def __init__(
        self,
        aggregates: Aggregates,
        devices: Mapping[Key, DeviceCounts],
        resources: Iterable[str],
        profile: Profile,
    ) -> None:
        self._aggregates = aggregates
        self._devices = devices
        self._weights: dict[str, int] = dict(profile.fit.resources)
        for name in resources:
            if "/" in name:
                self._weights.setdefault(name, ACCELERATOR_WEIGHT)
        self._fit = profile.placement_weights.get("NodeResourcesFit", 0)
        self._count = profile.placement_weights.get("PodGroupPodsCount", 0)

    def fit(self, domain: str, added: Amounts) -> int:
        """How full the domain is with these amounts in it, 0..100."""
        sums = self._aggregates.domains[domain]
        total = weights = 0
        for name, weight in self._weights.items():
            capacity = sums.capacity.get(name, 0)
            if capacity > 0:
                total += weight * _share(sums.used.get(name, 0) + added.get(name, 0), capacity)
                weights += weight
        for key, counts in self._devices.items():
            count = counts.of_domain(domain)
            if count.every > 0:
                total += ACCELERATOR_WEIGHT * _share(count.every - count.free + added.get(key, 0), count.every)
                weights += ACCELERATOR_WEIGHT
        return total // weights if weights else 0

    def total(self, fit: int, members: int, most: int) -> int:
        """The score of a domain in which so many of at `most` that many members have a place."""
        return self._fit * fit + self._count * (members * MAX_SCORE // most)


def _share(used: int, capacity: int) -> int:
    return max(0, min(used, capacity)) * MAX_SCORE // capacity


def amounts_of(pod: PodInfo, cards: Amounts) -> dict[Key, int]:
    """What a pod asks for as scores count it: its resources, and its devices by key."""
    cpu, memory = pod.scoring_requests
    found: dict[Key, int] = dict(pod.requests.items())
    found.update({"cpu": cpu, "memory": memory})
    found.update(cards)
    return found
