"""Connect NodeAffinity to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter, PreFilterResult, Scorer
from haru.engine.plugins.nodeaffinity.filter import added_node_affinity, conflicting_names, named_nodes, node_affinity
from haru.engine.plugins.nodeaffinity.score import NodeAffinityScore, preferred_terms
from haru.engine.plugins.score_request import ScoreRequest


class NodeAffinity:
    """Refuse and score nodes by nodeSelector and node affinity."""

    name = "NodeAffinity"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL})
    general = False

    def pre_filter(self, request: FilterRequest) -> PreFilterResult:
        """Reject a pod whose terms name different nodes; leave out the nodes that it does not name."""
        return PreFilterResult(conflicting_names(request.pod), named_nodes(request.pod))

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filters for the profile's affinity and the pod's own."""
        return (added_node_affinity(request.profile.added_affinity), node_affinity(request.pod))

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer; None if neither the pod nor the profile has preferred terms."""
        own, added = request.pod.affinity("nodeAffinity"), request.profile.added_affinity
        terms = (*preferred_terms(added), *preferred_terms(own))
        weight = request.profile.weight(self.name)
        return NodeAffinityScore(weight, terms) if terms and weight else None
