"""Score nodes by how empty their topology domains are.

Source: kube-scheduler's PodTopologySpread plugin, as behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from haru.engine.framework.scores import MAX_SCORE, rounded
from haru.engine.plugins.helper.topology_domains import HOSTNAME
from haru.engine.plugins.podtopologyspread.filter import Constraint, SpreadCounts
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo


class PodTopologySpreadScore:
    """PodTopologySpread: nodes in emptier domains are better, the more domains the more so.

    A host counts by itself; other domains are kept by value. Nodes without one of the labels are the worst, unless
    the constraints are the built-in ones (`everywhere`).
    """

    alone = general = False

    def __init__(self, weight: int, pod: PodInfo, constraints: Sequence[Constraint], *, everywhere: bool) -> None:
        self.weight = weight
        self._constraints = constraints
        self._counts = SpreadCounts(pod, constraints, everywhere=everywhere)

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Counts are looked up when keys are compared; a host's own are part of its key."""
        self._counts.catch_up(overlay)
        return set()

    def key(self, node: NodeInfo) -> tuple[int | str | None, ...] | None:
        """Per constraint the pods on the host, or the domain; None for a node that does not count."""
        if not self._counts.has_labels(node):
            return None
        return tuple(
            self._counts.on(node.name, number) if c.key == HOSTNAME and HOSTNAME in node.labels
            # Nodes without the label are a domain of their own, in which nothing is counted.
            else node.labels.get(c.key)
            for number, c in enumerate(self._constraints)
        )  # fmt: skip

    def scores(self, keys: Sequence[tuple[int | str | None, ...] | None], sizes: Sequence[int]) -> list[int]:
        """Pods in the domains, weighted by the number of domains, fewer being better."""
        counted = sum(size for key, size in zip(keys, sizes, strict=True) if key is not None)
        factors: list[float] = []
        for number, constraint in enumerate(self._constraints):
            domains = len({key[number] or "" for key in keys if key is not None})
            factors.append(math.log(float((counted if constraint.key == HOSTNAME else domains) + 2)))
        return skew_normalised([None if key is None else self._raw(key, factors) for key in keys])

    def _raw(self, key: tuple[int | str | None, ...], factors: Sequence[float]) -> int:
        total = 0.0
        for number, (seen, factor) in enumerate(zip(key, factors, strict=True)):
            if seen is not None:
                pods = seen if isinstance(seen, int) else self._counts.counts[number].of(seen)
                total += float(pods) * factor + float(self._constraints[number].max_skew - 1)
        return rounded(total)


def skew_normalised(raw: Sequence[int | None]) -> list[int]:
    """Fewer is better: the largest is the worst, the smallest is 100; None (a node that does not count) is 0."""
    counted = [value for value in raw if value is not None]
    low, high = min(counted, default=0), max(counted, default=0)
    if high == 0:
        return [0 if value is None else MAX_SCORE for value in raw]
    return [0 if value is None else MAX_SCORE * (high + low - value) // high for value in raw]
