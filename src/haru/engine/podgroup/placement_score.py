"""Score topology domains by how full the group would make them: the fullest domain that takes the group wins.

The score is NodeResourcesFit's formula for placements: per resource the share in use after the group is placed, over
all nodes of the domain, weighted as the profile says. Cpu and memory count kube-scheduler's defaults for pods without
requests. Extended resources and devices that the group requests count too, by class, because cards are what fills an
accelerator rack. PodGroupPodsCount adds the number of placed members, in percent of the most that any domain takes.
Source: KEP-5732 (placement scoring); that devices count is our own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from haru.engine.framework.profile import Profile
from haru.engine.podgroup.domain_totals import DeviceTotals, DomainTotals
from haru.engine.state.pod_info import PodInfo

MAX_SCORE = 100
ACCELERATOR_WEIGHT = 98
"""Weight of an extended resource or device class that the group requests, unless the profile sets one."""

Key = Hashable
Amounts = Mapping[Key, int]


class PlacementScore:
    """Score domains for one group. Amounts are the placed members' requests: resources by name, devices by key."""

    def __init__(
        self,
        domain_totals: DomainTotals,
        devices: Mapping[Key, DeviceTotals],
        resources: Iterable[str],
        profile: Profile,
    ) -> None:
        self._domain_totals = domain_totals
        self._devices = devices
        self._weights: dict[str, int] = dict(profile.fit.resources)
        for name in resources:
            if "/" in name:
                self._weights.setdefault(name, ACCELERATOR_WEIGHT)
        self._fit = profile.placement_weights.get("NodeResourcesFit", 0)
        self._count = profile.placement_weights.get("PodGroupPodsCount", 0)

    def fit(self, domain: str, added: Amounts) -> int:
        """Return how full the domain is with these amounts added, 0..100."""
        sums = self._domain_totals.domains[domain]
        total = weights = 0
        for name, weight in self._weights.items():
            capacity = sums.capacity.get(name, 0)
            if capacity > 0:
                total += weight * _share(sums.used.get(name, 0) + added.get(name, 0), capacity)
                weights += weight
        for key, counts in self._devices.items():
            count = counts.node_local_count(domain)
            if count.total > 0:
                total += ACCELERATOR_WEIGHT * _share(count.total - count.free + added.get(key, 0), count.total)
                weights += ACCELERATOR_WEIGHT
        return total // weights if weights else 0

    def total(self, fit: int, members: int, most: int) -> int:
        """Return the score of a domain that places `members`, where the best domain places `most`."""
        return self._fit * fit + self._count * (members * MAX_SCORE // most)


def _share(used: int, capacity: int) -> int:
    return max(0, min(used, capacity)) * MAX_SCORE // capacity


def amounts_of(pod: PodInfo, cards: Amounts) -> dict[Key, int]:
    """Return a pod's requests as scores count them: resources by name, and devices by key."""
    cpu, memory = pod.scoring_requests
    found: dict[Key, int] = dict(pod.requests.items())
    found.update({"cpu": cpu, "memory": memory})
    found.update(cards)
    return found
