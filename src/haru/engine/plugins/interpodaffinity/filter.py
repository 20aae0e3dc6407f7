"""Rules between pods: affinity and anti-affinity in both directions, required and preferred.

A rule speaks of domains: the nodes with one value of a topology label. What counts are the pods as the overlay has
them, so members that were placed earlier in the same decision attract and repel later ones. Every node contributes
what its pods say about its domains; a placement costs the node it touched.
Source: kube-scheduler's InterPodAffinity plugin, as behaviour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from haru.engine.framework.interfaces import PASS
from haru.engine.framework.status import FilterFailure, refuse
from haru.engine.state.affinity_terms import AffinityTerm
from haru.engine.state.change_cursor import ChangeCursor, present_nodes
from haru.engine.state.decision import Obj
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo


class PodsWithAffinity:
    """The pods on nodes that have inter-pod terms, and the labels that these terms look at."""

    def __init__(self) -> None:
        self._follower = ChangeCursor()
        self._pods: dict[str, tuple[PodInfo, ...]] = {}
        self._labels: Counter[str] = Counter()

    def catch_up(self, overlay: Overlay) -> None:
        """Take in what has changed."""
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
        """What of a pod's labels any of the terms can see; None for a label that it lacks."""
        return tuple((key, labels.get(key)) for key in sorted(self._labels))


def _affine_nodes(overlay: Overlay) -> Iterator[tuple[str, NodeInfo]]:
    """The nodes with pods that have inter-pod terms, and perhaps some more."""
    touched = overlay.touched
    for lot in overlay.snapshot.lots:
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

Kind = Literal["company", "wanted", "avoided", "forbidden", "liked"]
Fact = tuple[Kind, str, str]
"""What a node contributes to: of a kind, about a topology label (a term's number for `wanted`) and its value.

`company` counts pods that match all terms of the incoming one, wherever they are.
"""
_COMPANY: Fact = ("company", "", "")


class AffinityChanges(NamedTuple):
    """Domains (label, value) for which a rule may say something else, and those for which a score may be another."""

    judged: set[tuple[str, str]]
    liked: set[tuple[str, str]]


class TopologyToAffinityTerms:
    """What the pods on nodes mean to one more pod, by domain.

    `hard_weight` is what a required term of an existing pod counts when nodes are scored; preferred terms of existing
    pods are left out if `ignore_preferred` is set and the pod has no terms itself.
    """

    def __init__(self, pod: PodInfo, hard_weight: int = 1, *, ignore_preferred: bool = False) -> None:
        self._pod = pod
        self._terms = pod.terms
        self._hard_weight = hard_weight
        self._ignore_preferred = ignore_preferred and not pod.terms
        self._suits_itself = False
        self._follower = ChangeCursor()
        self._namespaces: Mapping[str, Obj] = {}
        self._looks_at_namespaces = pod.terms.by_namespace_labels
        self._nodes: dict[str, Counter[Fact]] = {}
        self._facts: Counter[Fact] = Counter()
        self._forbidden: Counter[str] = Counter()
        self.liked: dict[str, dict[str, int]] = {}
        self.touched: AffinityChanges | None = None

    def catch_up(self, overlay: Overlay) -> None:
        """Take in what has changed; `touched` then says what that is (None: everything)."""
        changed = self._follower.catch_up(overlay)
        namespaces = overlay.snapshot.objects("Namespace")
        renamed = self._looks_at_namespaces and namespaces is not self._namespaces
        self._namespaces = namespaces
        if changed is None or renamed:
            changed = None
            self._nodes, self._facts, self.liked, self._forbidden = {}, Counter(), {}, Counter()
            self._suits_itself = all(self._own_match(term) for term in self._terms.near)
        alone, touched = self._alone, AffinityChanges(set(), set())
        for name, node in present_nodes(overlay, changed):
            self._put(name, node, touched)
        self.touched = None if changed is None or alone != self._alone else touched

    def check(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Why the required terms refuse a node."""
        alone = self._alone
        for number, term in enumerate(self._terms.near):
            value = node.labels.get(term.key)
            if value is None or not (alone or self._facts[("wanted", str(number), value)]):
                return _NO_AFFINITY
        for term in self._terms.away:
            if self._facts[("avoided", term.key, node.labels.get(term.key, ""))] and term.key in node.labels:
                return _OWN_ANTI
        for key in self._forbidden:
            if key in node.labels and self._facts[("forbidden", key, node.labels[key])]:
                return _THEIR_ANTI
        return PASS

    @property
    def restricts(self) -> bool:
        """Whether there is any rule that could refuse a node."""
        return bool(self._terms.near or self._terms.away or self._forbidden)

    @property
    def _alone(self) -> bool:
        """Nobody in the cluster is the company that the pod wants, and the pod would be it: it may be the first."""
        return not self._facts[_COMPANY] and self._suits_itself

    def _own_match(self, term: AffinityTerm) -> bool:
        return term.matches(self._pod.key.namespace, self._pod.labels, self._namespaces)

    def _put(self, name: str, node: NodeInfo | None, touched: AffinityChanges) -> None:
        old = self._nodes.pop(name, None)
        new = self._contributions(node) if node is not None else None
        if new:
            self._nodes[name] = new
        for fact in {*(old or ()), *(new or ())}:
            difference = (new[fact] if new else 0) - (old[fact] if old else 0)
            if difference:
                self._change(fact, difference, touched)

    def _change(self, fact: Fact, difference: int, touched: AffinityChanges) -> None:
        kind, key, value = fact
        before = self._facts[fact]
        after = self._facts[fact] = before + difference
        if not after:
            del self._facts[fact]
        if kind == "liked":
            self.liked.setdefault(key, {})[value] = after
            touched.liked.add((key, value))
        elif bool(before) != bool(after) and kind != "company":
            if kind == "forbidden":
                self._forbidden[key] += 1 if after else -1
                self._forbidden = +self._forbidden
            touched.judged.add((self._terms.near[int(key)].key if kind == "wanted" else key, value))

    def _contributions(self, node: NodeInfo) -> Counter[Fact]:
        facts: Counter[Fact] = Counter()
        for other in node.pods.values() if self._terms else ():
            for fact, amount in self._own(other, node):
                facts[fact] += amount
        for other in node.affine:
            for fact, amount in self._theirs(other, node):
                facts[fact] += amount
        return facts

    def _own(self, other: PodInfo, node: NodeInfo) -> Iterator[tuple[Fact, int]]:
        """What the pod's own terms say of another pod."""
        terms, labels = self._terms, node.labels
        if terms.near and all(self._speaks(term, other) for term in terms.near):
            for number, term in enumerate(terms.near):
                if term.key in labels:
                    yield ("wanted", str(number), labels[term.key]), 1
                    yield _COMPANY, 1
        for term in terms.away:
            if term.key in labels and self._speaks(term, other):
                yield ("avoided", term.key, labels[term.key]), 1
        for sign, weighted in ((1, terms.likes), (-1, terms.dislikes)):
            for term in weighted:
                if term.key in labels and self._speaks(term, other):
                    yield ("liked", term.key, labels[term.key]), sign * term.weight

    def _theirs(self, other: PodInfo, node: NodeInfo) -> Iterator[tuple[Fact, int]]:
        """What another pod's terms say of the pod."""
        terms = other.terms
        self._looks_at_namespaces = self._looks_at_namespaces or terms.by_namespace_labels
        yield from self._about_me("forbidden", terms.away, node, 1)
        yield from self._about_me("liked", terms.near, node, self._hard_weight)
        if not self._ignore_preferred:
            yield from self._about_me("liked", terms.likes, node, 1)
            yield from self._about_me("liked", terms.dislikes, node, -1)

    def _about_me(
        self, kind: Kind, terms: Iterable[AffinityTerm], node: NodeInfo, factor: int
    ) -> Iterator[tuple[Fact, int]]:
        for term in terms:
            if factor and term.key in node.labels and self._own_match(term):
                yield (kind, term.key, node.labels[term.key]), factor * term.weight

    def _speaks(self, term: AffinityTerm, other: PodInfo) -> bool:
        return term.matches(other.key.namespace, other.labels, self._namespaces)


def topology_to_affinity_terms(overlay: Overlay, pod: PodInfo) -> TopologyToAffinityTerms:
    """What the pods on nodes mean to one more pod, as things stand."""
    found = TopologyToAffinityTerms(pod)
    found.catch_up(overlay)
    return found


def inter_pod_rules(overlay: Overlay, pod: PodInfo) -> TopologyToAffinityTerms | None:
    """The required terms that hold for a pod as things stand, or None if there are none."""
    if not pod.terms and not any(True for _ in _affine(overlay)):
        return None
    found = topology_to_affinity_terms(overlay, pod)
    return found if found.restricts else None


def _affine(overlay: Overlay) -> Iterator[PodInfo]:
    """The pods on nodes whose required anti-affinity concerns others."""
    yield from overlay.snapshot.anti_affine.values()
    yield from (pod for pod in overlay.placed() if pod.has_required_anti_affinity)
