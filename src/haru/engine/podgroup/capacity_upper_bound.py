"""Compute an upper bound on how many members of a group fit on some nodes.

The bound compares sums with what the members with the smallest requests need: free resources of all the nodes together,
and free devices of each class. It is a necessary condition only; the search still has to find the placements.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.plugins.helper.topology_domains import HOSTNAME
from haru.engine.podgroup.domain_prefilter import capacity_bounds_of
from haru.engine.podgroup.domain_totals import DeviceTotals, DomainTotals, free_on
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.podgroup.podgroup_request import podgroup_request_of
from haru.engine.state.cache import Snapshot


def capacity_upper_bound(snapshot: Snapshot, info: PodGroupInfo, nodes: Sequence[str]) -> int:
    """Return an upper bound on how many members fit on the nodes together."""
    request, _, _ = podgroup_request_of(snapshot, info)
    free = [free_on(snapshot.nodes[name]) for name in nodes]
    resources, devices = capacity_bounds_of(request)
    max_members = request.total
    for name, bound in resources.items():
        max_members = min(max_members, bound.max_members(sum(amounts.get(name, 0) for amounts in free)))
    domain_totals = DomainTotals.of(snapshot, HOSTNAME)
    for key, bound in devices.items():
        there = DeviceTotals.of(snapshot, domain_totals, request.asks[key], info.options.features).on_any(nodes)
        max_members = min(max_members, bound.max_members(there))
        if bound.max_members(there - request.shared[key]) < info.needed:
            max_members = min(max_members, info.needed - 1)  # fewer than needed may do without the shared claims
    return max_members
