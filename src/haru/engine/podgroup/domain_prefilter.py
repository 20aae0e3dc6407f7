"""Reject topology domains whose free totals cannot take a group; never reject a domain that could.

The checks are necessary conditions only: free resources, pod slots, and devices of every class and selector, against
what the `needed` members with the smallest requests ask for. A domain that passes still has to be tried.
Source: our own; KEP-5732 simulates the group in every domain.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from haru.engine.dra.model.model import Features
from haru.engine.podgroup.domain_totals import BOUNDLESS, DeviceTotals, DomainTotals, free_on
from haru.engine.podgroup.podgroup_request import MemberRequest, PodGroupRequest
from haru.engine.state.cache import Snapshot


class DomainPreFilter:
    """Compare the free totals of a label's domains with a group's request."""

    def __init__(
        self, snapshot: Snapshot, domain_totals: DomainTotals, request: PodGroupRequest, features: Features
    ) -> None:
        self._domain_totals = domain_totals
        self.request = request
        self._total = request.total
        self._resource_bounds, self._device_bounds = capacity_bounds_of(request)
        self.counts = {
            key: DeviceTotals.of(snapshot, domain_totals, ask, features) for key, ask in request.asks.items()
        }

    def max_members(self, domain: str) -> int:
        """Return an upper bound on how many members fit in a domain, from its totals."""
        max_members = self._total
        for key, bound in self._device_bounds.items():
            max_members = min(max_members, bound.max_members(self.counts[key].free(domain) - self.request.shared[key]))
        if not max_members:
            return 0
        free = self._domain_totals.domains[domain].free
        for name, bound in self._resource_bounds.items():
            max_members = min(max_members, bound.max_members(free.get(name, 0)))
        return max_members

    def max_members_by_node(self, domain: str) -> int:
        """Return the bound from each node's free amounts: a member cannot use free amounts of two nodes."""
        nodes = self._domain_totals.nodes_of(domain)
        left = [member_request.count for member_request in self.request.members]
        for name in nodes:
            free = free_on(self._domain_totals.node(name))
            for number, member_request in enumerate(self.request.members):
                if left[number]:
                    left[number] -= min(left[number], self._max_members_on_node(name, free, member_request))
        return self._total - sum(left)

    def _max_members_on_node(self, name: str, free: Mapping[str, int], member_request: MemberRequest) -> int:
        max_members = BOUNDLESS
        for resource, amount in member_request.resources.items():
            max_members = min(max_members, free.get(resource, 0) // amount)
        for key, amount in member_request.devices.items():
            max_members = min(max_members, self.counts[key].on(name) // amount)
        return max_members


class CapacityBound:
    """Bound how many members an amount suffices for, the smallest requests first."""

    def __init__(self, amounts: Iterable[tuple[int, int]]) -> None:
        self._steps: Sequence[tuple[int, int]] = sorted(amounts)

    def max_members(self, free: int) -> int:
        """Return how many members the free amount suffices for at most."""
        if free < 0:
            return 0
        found = 0
        for amount, count in self._steps:
            if not amount:
                found += count
                continue
            here = min(count, free // amount)
            found += here
            if here < count:
                break
            free -= here * amount
        return found


def capacity_bounds_of(request: PodGroupRequest) -> tuple[dict[str, CapacityBound], dict[Hashable, CapacityBound]]:
    """Return the bounds by resource name and by subrequest key."""
    members = request.members
    names = sorted({name for member_request in members for name in member_request.resources})
    resources = {name: CapacityBound((w.resources.get(name, 0), w.count) for w in members) for name in names}
    return resources, {key: CapacityBound((w.devices.get(key, 0), w.count) for w in members) for key in request.asks}
