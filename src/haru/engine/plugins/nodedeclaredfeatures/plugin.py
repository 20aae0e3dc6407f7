"""Connect NodeDeclaredFeatures to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter
from haru.engine.plugins.nodedeclaredfeatures.filter import declared_features


class NodeDeclaredFeatures:
    """Refuse nodes that do not declare the features which the pod uses."""

    name = "NodeDeclaredFeatures"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_DECLARED_FEATURE})
    general = True

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter, if the feature gate is on."""
        return (declared_features(request.pod),) if request.declared_features else ()
