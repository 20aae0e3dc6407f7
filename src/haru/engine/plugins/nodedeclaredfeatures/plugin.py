"""Refuse nodes that do not declare the features which the pod uses (KEP-5328).

Source: kube-scheduler 1.36's NodeDeclaredFeatures plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterFailure, FilterRequest, NodeFilter, refuse
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo

PLUGIN = "NodeDeclaredFeatures"


def declared_features(pod: PodInfo) -> NodeFilter | None:
    """Refuse nodes that do not declare a feature which the pod uses (KEP-5328)."""
    needed = frozenset(pod.needed_features)
    if not needed:
        return None
    message = "node(s) didn't match Pod's required features"

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        missing = sorted(needed - node.spec.features)
        if not missing:
            return PASS
        return (refuse(PLUGIN, "FeaturesMissing", message, {"features": missing}),)

    return check


class NodeDeclaredFeatures:
    """Refuse nodes that do not declare the features which the pod uses."""

    name = PLUGIN
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_DECLARED_FEATURE})
    general = True

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter, if the feature gate is on."""
        return (declared_features(request.pod),) if request.declared_features else ()
