"""Room that is promised: pending pods that are nominated to a node count there for pods that are no more important.

Members that a running gang still lacks count for everybody: whoever took their room would leave half a gang for good.
Source: kube-scheduler's treatment of nominated pods when it filters, as behaviour (KEP-5278); ADR 2 for gangs.
"""

from __future__ import annotations

from collections.abc import Hashable

from haru.engine.cluster import Snapshot
from haru.engine.groups.quorum import min_count
from haru.engine.nodeinfo import NodeInfo
from haru.engine.pods import PodInfo


class Promises:
    """The nominations of a snapshot, by node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nominated: dict[str, list[PodInfo]] = {}
        self._firm: set[str] = set()
        for path in sorted(snapshot.nominated):
            pod = snapshot.nominated[path]
            self._nominated.setdefault(pod.nominated_node, []).append(pod)
            if is_half_placed(snapshot, pod):
                self._firm.add(path)

    def on(self, node: NodeInfo, pod: PodInfo) -> NodeInfo:
        """The node as a pod must see it: with those on it that it is promised to, members of its own group excepted."""
        for other in self._nominated.get(node.name, ()):
            own = other.key.path == pod.key.path or (other.group is not None and other.group == pod.group)
            counts = other.priority >= pod.priority or other.key.path in self._firm
            if counts and not own and other.key.path not in node.pods:
                node = node.with_pod(other.bound_to(node.name))
        return node

    def view(self, pod: PodInfo) -> Hashable:
        """Equal for pods to which the same promises apply."""
        if not self._nominated:
            return None
        return pod.priority, pod.group, pod.key.path if pod.nominated_node else ""


def is_half_placed(snapshot: Snapshot, pod: PodInfo) -> bool:
    """Whether the pod's gang has members with a place, but fewer than it needs."""
    if pod.group is None:
        return False
    minimum = min_count(snapshot.pod_group(pod.group))
    return minimum is not None and 0 < len(snapshot.group_state(pod.group).scheduled) < minimum
