"""What the admitted pods of a node take of it, kept as sums, so that admission does not add all of them up each time.

A pod that has changed is noted, and counted anew when somebody asks next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from haru.kube.meta import Obj, uid_of
from haru.kube.node_admission import Shortage, has_host_ports, requested_amounts, shortages

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

    def shortages(self, pod: Obj, allocatable: Mapping[str, int]) -> Iterator[Shortage]:
        """What there is too little of for a pod beside the others; amounts in thousandths."""
        own = self._amounts.get(uid_of(pod))
        others = len(self._amounts) - (own is not None)
        return shortages(pod, others, lambda name: self._totals[name] - (own or {}).get(name, 0), allocatable)

    def ports_beside(self, uid: str) -> Collection[Obj]:
        """The other pods that have ports of the node."""
        return [pod for other, pod in self._ports.items() if other != uid]
