"""Refuse and score nodes by the pod's nodeSelector and node affinity.

Source: kube-scheduler 1.36's NodeAffinity plugin and the validation of its arguments, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import (
    PASS,
    FilterRequest,
    NodeFilter,
    NodeScorer,
    PreFilterResult,
    Scorer,
    normalised,
    refuse,
)
from haru.engine.framework.profile import Profile
from haru.engine.plugins.helper.node_rules import REQUIRED, matches_node_affinity
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.errors import invalid
from haru.kube.meta import Obj
from haru.kube.selectors import node_selector_matches, node_selector_term_matches


def node_affinity(pod: PodInfo) -> NodeFilter | None:
    """Refuse nodes outside of `nodeSelector` and required node affinity."""
    required = pod.affinity("nodeAffinity").get(REQUIRED)
    if not pod.spec.get("nodeSelector") and required is None:
        return None
    failure = (refuse("NodeAffinity", "NodeAffinityMismatch", "node(s) didn't match Pod's node affinity/selector"),)
    return lambda node: PASS if matches_node_affinity(pod, node.name, node.labels) else failure


def added_node_affinity(added: Obj | None) -> NodeFilter | None:
    """Refuse nodes outside of the node affinity that the profile adds to every pod's."""
    required = (added or {}).get(REQUIRED)
    if required is None:
        return None
    message = "node(s) didn't match scheduler-enforced node affinity"
    failure = (refuse("NodeAffinity", "NodeAffinityMismatch", message),)
    return lambda node: PASS if node_selector_matches(required, node.name, node.labels) else failure


def named_nodes(pod: PodInfo) -> frozenset[str] | None:
    """Return the nodes that a pod's required node affinity names, as a DaemonSet's pods do; None if it names none.

    Few other pods, if any, ask for the same nodes.
    """
    required = pod.affinity("nodeAffinity").get(REQUIRED) or {}
    found: set[str] = set()
    for term in required.get("nodeSelectorTerms") or ():
        fields = [f for f in term.get("matchFields") or () if f.get("key") == "metadata.name" and f["operator"] == "In"]
        if not fields:
            return None
        found |= set[str].intersection(*(set(field.get("values") or ()) for field in fields))
    return frozenset(found) if required.get("nodeSelectorTerms") else None


_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


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


class NodeAffinity:
    """Refuse and score nodes by nodeSelector and node affinity."""

    name = "NodeAffinity"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL})
    general = False

    def pre_filter(self, request: FilterRequest) -> PreFilterResult:
        """Reject a pod whose terms name different nodes; leave out the nodes that it does not name."""
        names = named_nodes(request.pod)
        if names == frozenset():
            return PreFilterResult(refuse(self.name, "NodeAffinityMismatch", "pod affinity terms conflict"))
        return PreFilterResult(nodes=names)

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filters for the profile's affinity and the pod's own."""
        return (added_node_affinity(request.profile.added_affinity), node_affinity(request.pod))

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer; None if neither the pod nor the profile has preferred terms."""
        own, added = request.pod.affinity("nodeAffinity"), request.profile.added_affinity
        terms = (*preferred_terms(added), *preferred_terms(own))
        weight = request.profile.weight(self.name)
        return NodeAffinityScore(weight, terms) if terms and weight else None

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Return the profile with the node affinity that every pod has besides its own."""
        added = arguments.part("addedAffinity")
        affinity: dict[str, Any] = {}
        if added.has(REQUIRED):
            selector = added.take(REQUIRED)
            affinity[REQUIRED] = selector
            added.check_node_selector(added.at(REQUIRED), selector)
        for entry in added.parts(_PREFERRED):
            weight, preference = entry.integer("weight", 0) or 0, entry.take("preference") or {}
            entry.done()
            if not 1 <= weight <= 100:
                entry.findings.append(invalid(entry.at("weight"), weight, "must be in the range 1-100"))
            entry.check_node_selector_term(entry.at("preference"), preference)
            affinity.setdefault(_PREFERRED, []).append({"weight": weight, "preference": preference})
        added.done()
        return replace(profile, added_affinity=affinity or None)
