"""Make the filters for one pod: all plugins of the profile, in kube-scheduler's order.

A plan is made once per pod shape and asked per node; the first filter that refuses a node says why. PodTopologySpread
and InterPodAffinity depend on where every other pod is, so they follow the overlay (`PreFilterState`); every filter of
a plan depends on the node alone. Source: kube-scheduler 1.36's default profile, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine.framework.interfaces import PASS, FilterRequest, NodeFilter
from haru.engine.framework.status import FilterFailure
from haru.engine.plugins.registry import FILTER_PLUGINS, PRE_FILTER_PLUGINS
from haru.engine.state.node_info import NodeInfo


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """Hold the filters for one pod, and the reason why no node can take it (`rejection`).

    `general`: the filters answer alike for nodes of one class (`Snapshot.node_classes`).
    """

    rejection: FilterFailure | None
    filters: tuple[NodeFilter, ...]
    general: bool = False

    def check(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Return why the node is refused; empty if it is not."""
        return first_failure(self.filters, node)


def first_failure(filters: Sequence[NodeFilter], node: NodeInfo) -> Sequence[FilterFailure]:
    """Return the failures of the first filter that refuses the node; empty if none does."""
    for check in filters:
        failures = check(node)
        if failures:
            return failures
    return PASS


def make_filter_plan(request: FilterRequest) -> FilterPlan:
    """Make the filters for a pod."""
    profile = request.profile
    made: list[NodeFilter] = []
    rejection: FilterFailure | None = None
    general = True
    for plugin in PRE_FILTER_PLUGINS:
        if plugin.name in profile.filters and rejection is None:
            rejection, nodes = plugin.pre_filter(request)
            if nodes is not None:
                made.append(nodes)
                general = False
    for filter_plugin in FILTER_PLUGINS:
        if filter_plugin.name in profile.filters:
            filters = [check for check in filter_plugin.filters(request) if check is not None]
            made += filters
            general = general and (filter_plugin.general or not filters)
    return FilterPlan(rejection, tuple(made), general=general)
