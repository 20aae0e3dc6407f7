"""Connect DefaultPreemption to the scheduling framework."""

from __future__ import annotations

from haru.engine.framework.cluster_event import ClusterEvent


class DefaultPreemption:
    """Evict pods with less priority for a pod that fits nowhere.

    `haru.engine.preemption` is the implementation. A pod that was being bound was nobody's victim until then.
    """

    name = "DefaultPreemption"
    events = frozenset({ClusterEvent.POD_BOUND})
