"""Rules between pods: required affinity and anti-affinity, in both directions.

A rule speaks of domains: the nodes with one value of a topology label. What counts are the pods as the overlay has
them, so members that were placed earlier in the same decision attract and repel later ones.
Source: kube-scheduler's InterPodAffinity plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes.basic import PASS
from haru.engine.nodes.failure import Failure, refuse
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo
from haru.kube.selectors import label_selector_from

PLUGIN = "InterPodAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_Pair = tuple[str, str]

_NO_AFFINITY = (refuse(PLUGIN, "PodAffinity", "node(s) didn't match pod affinity rules"),)
_OWN_ANTI = (refuse(PLUGIN, "PodAntiAffinity", "node(s) didn't match pod anti-affinity rules", resolvable=True),)
_THEIR_ANTI = (
    refuse(
        PLUGIN,
        "ExistingPodAntiAffinity",
        "node(s) didn't satisfy existing pods anti-affinity rules",
        resolvable=True,
    ),
)


class Term:
    """One required term of one pod: which pods it speaks of, and by which label nodes make domains."""

    def __init__(self, owner: PodInfo, term: Mapping[str, Any], namespaces: Mapping[str, Mapping[str, Any]]) -> None:
        self.key: str = term.get("topologyKey") or ""
        self._labels = label_selector_from(term.get("labelSelector"))
        named = frozenset(term.get("namespaces") or ())
        spaces = term.get("namespaceSelector")
        if not named and spaces is None:
            named = frozenset((owner.key.namespace,))
        self._every_namespace = spaces is not None and not any(spaces.values())
        if spaces is not None and not self._every_namespace:
            wanted = label_selector_from(spaces)
            named |= {n for n, obj in namespaces.items() if wanted.matches(obj["metadata"].get("labels") or {})}
        self._namespaces = named

    def matches(self, pod: PodInfo) -> bool:
        """Whether the term speaks of a pod."""
        return (self._every_namespace or pod.key.namespace in self._namespaces) and self._labels.matches(pod.labels)


def _terms(overlay: Overlay, pod: PodInfo, kind: str) -> list[Term]:
    namespaces = overlay.snapshot.objects("Namespace")
    return [Term(pod, term, namespaces) for term in pod.affinity(kind).get(_REQUIRED) or ()]


def placed_pods(overlay: Overlay) -> Iterator[tuple[PodInfo, NodeInfo]]:
    """Every pod that is on a node, tentative ones included, with its node."""
    for name in overlay.snapshot.node_names:
        node = overlay.node(name)
        for pod in node.pods.values():
            yield pod, node


@dataclass(frozen=True, slots=True)
class InterPodRules:
    """The domains that one pod must be in, must avoid, and is kept out of."""

    wanted: tuple[tuple[str, frozenset[str]], ...]
    first_of_its_kind: bool
    avoided: frozenset[_Pair]
    forbidden: frozenset[_Pair]

    def check(self, node: NodeInfo) -> Sequence[Failure]:
        """Why the rules refuse a node."""
        for key, values in self.wanted:
            value = node.labels.get(key)
            if value is None or not (value in values or self.first_of_its_kind):
                return _NO_AFFINITY
        if any(node.labels.get(key) == value for key, value in self.avoided):
            return _OWN_ANTI
        if any(node.labels.get(key) == value for key, value in self.forbidden):
            return _THEIR_ANTI
        return PASS


def inter_pod_rules(overlay: Overlay, pod: PodInfo) -> InterPodRules | None:
    """The rules that hold for a pod as things stand, or None if there are none."""
    forbidden = frozenset(_forbidden(overlay, pod))
    affinity, anti = _terms(overlay, pod, "podAffinity"), _terms(overlay, pod, "podAntiAffinity")
    if not (affinity or anti or forbidden):
        return None
    wanted: list[set[str]] = [set() for _ in affinity]
    avoided: set[_Pair] = set()
    company = False
    for other, node in placed_pods(overlay) if affinity or anti else ():
        if affinity and all(term.matches(other) for term in affinity):
            for values, term in zip(wanted, affinity, strict=True):
                if term.key in node.labels:
                    values.add(node.labels[term.key])
                    company = True
        for term in anti:
            if term.key in node.labels and term.matches(other):
                avoided.add((term.key, node.labels[term.key]))
    alone = not company and all(term.matches(pod) for term in affinity)
    pairs = tuple((term.key, frozenset(values)) for term, values in zip(affinity, wanted, strict=True))
    return InterPodRules(pairs, alone, frozenset(avoided), forbidden)


def _forbidden(overlay: Overlay, pod: PodInfo) -> Iterator[_Pair]:
    tentative = [other for other in overlay.placed() if other.has_required_anti_affinity]
    for other in [*overlay.snapshot.anti_affine.values(), *tentative]:
        if other.node not in overlay.snapshot.nodes:
            continue
        labels = overlay.node(other.node).labels
        for term in _terms(overlay, other, "podAntiAffinity"):
            if term.key in labels and term.matches(pod):
                yield term.key, labels[term.key]
