"""Connect the allocator to the scheduling framework and score nodes by lists of alternatives (KEP-4816).

Source: kube-scheduler 1.36's DynamicResources plugin and the validation of its arguments, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import NodeScorer, Scorer, normalised
from haru.engine.framework.profile import Profile
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.state.node_info import NodeInfo
from haru.kube.errors import invalid


class DynamicResourcesScore(NodeScorer):
    """DynamicResources: how far up their lists of alternatives the claims are served; the key is that number."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def key(self, node: NodeInfo) -> int:
        """Nothing is seen of the node itself."""
        del node
        return 0

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Relative to the best."""
        del sizes
        return normalised(keys)


class DynamicResources:
    """Refuse and score nodes by devices for claims.

    The filter is the allocator (`haru.engine.dra.allocator`), asked after all other filters.
    """

    name = "DynamicResources"
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.POD_DELETE,
            ClusterEvent.DEVICES,
            ClusterEvent.DEVICE_CLASS,
        }
    )

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer, also where the weight is 0: keys begin with its part."""
        return DynamicResourcesScore(request.profile.weight(self.name))

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Check the timeouts and change nothing.

        Steps bound the search for devices, not time, and binding conditions are not waited for.
        """
        if arguments.seconds("filterTimeout", 10.0) < 0:
            arguments.findings.append(invalid(arguments.at("filterTimeout"), "", "must be zero or positive"))
        if arguments.seconds("bindingTimeout", 600.0) < 1:
            arguments.findings.append(invalid(arguments.at("bindingTimeout"), "", "must be at least 1 second"))
        return profile
