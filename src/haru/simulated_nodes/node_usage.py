"""What the admitted pods of a node take of it, kept as sums, so that admission does not add all of them up each time.

A pod that has changed is noted, and counted anew when somebody asks next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from haru.kube.meta import Obj, uid_of
from haru.kube.node_admission import has_host_ports, requested_amounts

Holder = Callable[[str], Obj | None]
"""By key: the pod with what it was allocated; None if it takes nothing of the node (any more)."""


class NodeUsage:
    """The sums of one node."""

    __slots__ = ("_amounts", "_changed", "_ports", "_totals")

    def __init__(self) -> None:
        self._amounts: dict[str, dict[str, int]] = {}
        self._totals: Counter[str] = Counter()
        self._ports: dict[str, Obj] = {}
        self._changed: dict[str, str] = {}

    def note(self, uid: str, key: str) -> None:
        """Count a pod anew: it, or what it was allocated, has changed."""
        self._changed[uid] = key

    def refresh(self, holder: Holder) -> None:
        """Count what has changed."""
        for uid, key in self._changed.items():
            for name, amount in self._amounts.pop(uid, {}).items():
                self._totals[name] -= amount
            self._ports.pop(uid, None)
            pod = holder(key)
            if pod is None or uid_of(pod) != uid:
                continue
            self._amounts[uid] = requested_amounts(pod)
            self._totals.update(self._amounts[uid])
            if has_host_ports(pod):
                self._ports[uid] = pod
        self._changed.clear()

    def pods_beside(self, uid: str) -> int:
        """How many pods other than this one there are."""
        return len(self._amounts) - (uid in self._amounts)

    def used_beside(self, uid: str, resource: str) -> int:
        """How much other pods than this one take of a resource, in thousandths."""
        return self._totals[resource] - self._amounts.get(uid, {}).get(resource, 0)

    def ports_beside(self, uid: str) -> Collection[Obj]:
        """The other pods that have ports of the node."""
        return [pod for other, pod in self._ports.items() if other != uid]
