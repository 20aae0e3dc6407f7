"""Score nodes by the weights of the preferred node affinity terms that they match.

Source: kube-scheduler's NodeAffinity plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from haru.engine.framework.interfaces import NodeScorer
from haru.engine.framework.scores import normalised
from haru.engine.state.decision import Obj
from haru.engine.state.node_info import NodeInfo
from haru.kube.selectors import node_selector_term_matches


class NodeAffinityScore(NodeScorer):
    """NodeAffinity: the weights of the preferred terms that hold, the pod's own and the profile's."""

    general = False

    def __init__(self, weight: int, terms: Sequence[Obj]) -> None:
        self.weight = weight
        self._terms = terms

    def key(self, node: NodeInfo) -> int:
        """The summed weights."""
        return raw_affinity(self._terms, node)

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Relative to the largest."""
        del sizes
        return normalised(keys)


def preferred_terms(affinity: Mapping[str, object] | None) -> tuple[Obj, ...]:
    """The preferred terms of a NodeAffinity."""
    listed = (affinity or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(listed)  # type: ignore[arg-type]


def raw_affinity(terms: Iterable[Obj], node: NodeInfo) -> int:
    """The summed weights of the preferred terms that the node matches."""
    return sum(
        int(term.get("weight") or 0)
        for term in terms
        if node_selector_term_matches(term.get("preference") or {}, node.name, node.labels)
    )
