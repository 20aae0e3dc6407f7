"""Evaluate inter-pod affinity and anti-affinity in both directions, required and preferred.

A term selects domains: the nodes with one value of a topology label. It counts the pods of the overlay, so members
that were placed earlier in the same decision count for later ones. Every node contributes the terms of its pods for its
domains; a placement updates only the node that it changed.
Source: kube-scheduler's InterPodAffinity plugin, as behaviour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from haru.engine.framework.interfaces import PASS, FilterFailure, refuse
from haru.engine.state.affinity_terms import AffinityTerm
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import ChangeCursor, Overlay, present_nodes
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj


class PodsWithAffinity:
    """Keep the pods on nodes that have inter-pod terms, and the labels that these terms select by."""

    def __init__(self) -> None:
        self._follower = ChangeCursor()
        self._pods: dict[str, tuple[PodInfo, ...]] = {}
        self._labels: Counter[str] = Counter()

    def catch_up(self, overlay: Overlay) -> None:
        """Update to the overlay."""
        changed = self._follower.catch_up(overlay)
        if changed is None:
            self._labels = Counter()
            self._pods = {name: node.affine for name, node in _affine_nodes(overlay) if node.affine}
            for pods in self._pods.values():
                self._labels += _looked_at(pods)
            return
        for name, node in present_nodes(overlay, changed):
            found = node.affine if node is not None else ()
            before = self._pods.pop(name, ())
            if found:
                self._pods[name] = found
            if found is not before:
                self._labels -= _looked_at(before)
                self._labels += _looked_at(found)

    def __bool__(self) -> bool:
        return bool(self._pods)

    def relevant(self, labels: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
        """Return the pod's labels that any of the terms selects by; None for a label that it lacks."""
        return tuple((key, labels.get(key)) for key in sorted(self._labels))


def _affine_nodes(overlay: Overlay) -> Iterator[tuple[str, NodeInfo]]:
    """Yield the nodes with pods that have inter-pod terms, and perhaps some more."""
    touched = overlay.touched
    for lot in overlay.snapshot.node_classes:
        if lot.first.affine:
            yield from ((name, overlay.node(name)) for name in lot.names if name not in touched)
    yield from ((name, overlay.node(name)) for name in sorted(touched))


def _looked_at(pods: Iterable[PodInfo]) -> Counter[str]:
    return Counter(key for pod in pods for term in pod.terms for key in set(term.label_keys))


PLUGIN = "InterPodAffinity"
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

Kind = Literal["matching_pod", "affinity", "anti_affinity", "existing_anti_affinity", "preferred"]
Contribution = tuple[Kind, str, str]
"""What a node contributes to: of a kind, for a topology label (a term's number for `affinity`) and its value.

`matching_pod` counts pods that match all terms of the incoming one, wherever they are.
"""
_MATCHING_POD: Contribution = ("matching_pod", "", "")


class AffinityChanges(NamedTuple):
    """Domains (label, value) for which required terms, or scores, may have another result."""

    required: set[tuple[str, str]]
    preferred: set[tuple[str, str]]


class TopologyToAffinityTerms:
    """Hold the terms of one pod and of the pods on nodes that concern it, by domain.

    `hard_weight` is what a required term of an existing pod counts when nodes are scored; preferred terms of existing
    pods are left out if `ignore_preferred` is set and the pod has no terms itself.
    """

    def __init__(self, pod: PodInfo, hard_weight: int = 1, *, ignore_preferred: bool = False) -> None:
        self._pod = pod
        self._terms = pod.terms
        self._hard_weight = hard_weight
        self._ignore_preferred = ignore_preferred and not pod.terms
        self._matches_itself = False
        self._follower = ChangeCursor()
        self._namespaces: Mapping[str, Obj] = {}
        self._looks_at_namespaces = pod.terms.by_namespace_labels
        self._nodes: dict[str, Counter[Contribution]] = {}
        self._contributed: Counter[Contribution] = Counter()
        self._existing_anti_affinity: Counter[str] = Counter()
        self.preferred: dict[str, dict[str, int]] = {}
        self.touched: AffinityChanges | None = None

    def catch_up(self, overlay: Overlay) -> None:
        """Update to the overlay; `touched` has the changed domains (None: all)."""
        changed = self._follower.catch_up(overlay)
        namespaces = overlay.snapshot.objects("Namespace")
        renamed = self._looks_at_namespaces and namespaces is not self._namespaces
        self._namespaces = namespaces
        if changed is None or renamed:
            changed = None
            self._nodes, self._contributed, self.preferred, self._existing_anti_affinity = {}, Counter(), {}, Counter()
            self._matches_itself = all(self._matches_incoming(term) for term in self._terms.near)
        alone, touched = self._is_first, AffinityChanges(set(), set())
        for name, node in present_nodes(overlay, changed):
            self._put(name, node, touched)
        self.touched = None if changed is None or alone != self._is_first else touched

    def check(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Return why the required terms refuse a node."""
        alone = self._is_first
        for number, term in enumerate(self._terms.near):
            value = node.labels.get(term.key)
            if value is None or not (alone or self._contributed[("affinity", str(number), value)]):
                return _NO_AFFINITY
        for term in self._terms.away:
            if (
                self._contributed[("anti_affinity", term.key, node.labels.get(term.key, ""))]
                and term.key in node.labels
            ):
                return _OWN_ANTI
        for key in self._existing_anti_affinity:
            if key in node.labels and self._contributed[("existing_anti_affinity", key, node.labels[key])]:
                return _THEIR_ANTI
        return PASS

    @property
    def restricts(self) -> bool:
        """Tell whether any required term could refuse a node."""
        return bool(self._terms.near or self._terms.away or self._existing_anti_affinity)

    @property
    def _is_first(self) -> bool:
        """Tell whether no pod matches the required affinity but the pod itself would: it may be the first."""
        return not self._contributed[_MATCHING_POD] and self._matches_itself

    def _matches_incoming(self, term: AffinityTerm) -> bool:
        return term.matches(self._pod.key.namespace, self._pod.labels, self._namespaces)

    def _put(self, name: str, node: NodeInfo | None, touched: AffinityChanges) -> None:
        old = self._nodes.pop(name, None)
        new = self._contributions(node) if node is not None else None
        if new:
            self._nodes[name] = new
        for contribution in {*(old or ()), *(new or ())}:
            difference = (new[contribution] if new else 0) - (old[contribution] if old else 0)
            if difference:
                self._change(contribution, difference, touched)

    def _change(self, contribution: Contribution, difference: int, touched: AffinityChanges) -> None:
        kind, key, value = contribution
        before = self._contributed[contribution]
        after = self._contributed[contribution] = before + difference
        if not after:
            del self._contributed[contribution]
        if kind == "preferred":
            self.preferred.setdefault(key, {})[value] = after
            touched.preferred.add((key, value))
        elif bool(before) != bool(after) and kind != "matching_pod":
            if kind == "existing_anti_affinity":
                self._existing_anti_affinity[key] += 1 if after else -1
                self._existing_anti_affinity = +self._existing_anti_affinity
            touched.required.add((self._terms.near[int(key)].key if kind == "affinity" else key, value))

    def _contributions(self, node: NodeInfo) -> Counter[Contribution]:
        contributed: Counter[Contribution] = Counter()
        for other in node.pods.values() if self._terms else ():
            for contribution, amount in self._of_incoming_pod(other, node):
                contributed[contribution] += amount
        for other in node.affine:
            for contribution, amount in self._of_existing_pod(other, node):
                contributed[contribution] += amount
        return contributed

    def _of_incoming_pod(self, other: PodInfo, node: NodeInfo) -> Iterator[tuple[Contribution, int]]:
        """Yield the contributions of another pod to the incoming pod's terms."""
        terms, labels = self._terms, node.labels
        if terms.near and all(self._matches_other(term, other) for term in terms.near):
            for number, term in enumerate(terms.near):
                if term.key in labels:
                    yield ("affinity", str(number), labels[term.key]), 1
                    yield _MATCHING_POD, 1
        for term in terms.away:
            if term.key in labels and self._matches_other(term, other):
                yield ("anti_affinity", term.key, labels[term.key]), 1
        for sign, weighted in ((1, terms.likes), (-1, terms.dislikes)):
            for term in weighted:
                if term.key in labels and self._matches_other(term, other):
                    yield ("preferred", term.key, labels[term.key]), sign * term.weight

    def _of_existing_pod(self, other: PodInfo, node: NodeInfo) -> Iterator[tuple[Contribution, int]]:
        """Yield the contributions of an existing pod's terms that select the incoming pod."""
        terms = other.terms
        self._looks_at_namespaces = self._looks_at_namespaces or terms.by_namespace_labels
        yield from self._terms_for_incoming("existing_anti_affinity", terms.away, node, 1)
        yield from self._terms_for_incoming("preferred", terms.near, node, self._hard_weight)
        if not self._ignore_preferred:
            yield from self._terms_for_incoming("preferred", terms.likes, node, 1)
            yield from self._terms_for_incoming("preferred", terms.dislikes, node, -1)

    def _terms_for_incoming(
        self, kind: Kind, terms: Iterable[AffinityTerm], node: NodeInfo, factor: int
    ) -> Iterator[tuple[Contribution, int]]:
        for term in terms:
            if factor and term.key in node.labels and self._matches_incoming(term):
                yield (kind, term.key, node.labels[term.key]), factor * term.weight

    def _matches_other(self, term: AffinityTerm, other: PodInfo) -> bool:
        return term.matches(other.key.namespace, other.labels, self._namespaces)


def topology_to_affinity_terms(overlay: Overlay, pod: PodInfo) -> TopologyToAffinityTerms:
    """Return the terms for one more pod in the overlay's state."""
    found = TopologyToAffinityTerms(pod)
    found.catch_up(overlay)
    return found


def inter_pod_rules(overlay: Overlay, pod: PodInfo) -> TopologyToAffinityTerms | None:
    """Return the terms for a pod in the overlay's state; None if no required one concerns it."""
    if not pod.terms and not any(True for _ in _affine(overlay)):
        return None
    found = topology_to_affinity_terms(overlay, pod)
    return found if found.restricts else None


def _affine(overlay: Overlay) -> Iterator[PodInfo]:
    """Yield the pods on nodes with required anti-affinity."""
    yield from overlay.snapshot.pod_index.anti_affinity.values()
    yield from (pod for pod in overlay.placed() if pod.has_required_anti_affinity)
