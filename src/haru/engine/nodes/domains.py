"""What many pods' rules look at: the nodes of each topology domain, the pods with terms, the images on nodes.

Kept per cluster and brought up to date by what has changed. Source: our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from haru.engine.following import Follower, present_nodes
from haru.engine.nodeinfo import NO_IMAGES, NodeInfo
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo


class Domains:
    """The nodes by their value of one label; nodes without the label are in no domain."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._follower = Follower()
        self._value: dict[str, str] = {}
        self._nodes: dict[str, set[str]] = {}

    def catch_up(self, overlay: Overlay) -> None:
        """Take in what has changed."""
        changed = self._follower.catch_up(overlay)
        if changed is None:
            self._value, self._nodes = {}, {}
        for name, node in present_nodes(overlay, changed):
            self._put(name, node.labels.get(self.key) if node is not None else None)

    @property
    def count(self) -> int:
        """How many domains there are."""
        return sum(1 for nodes in self._nodes.values() if nodes)

    def nodes(self, values: Iterable[str]) -> set[str]:
        """The nodes of some domains."""
        found: set[str] = set()
        for value in values:
            found |= self._nodes.get(value, set())
        return found

    def _put(self, name: str, value: str | None) -> None:
        before = self._value.get(name)
        if before == value:
            return
        if before is not None:
            self._nodes[before].discard(name)
            del self._value[name]
        if value is not None:
            self._value[name] = value
            self._nodes.setdefault(value, set()).add(name)


class AffinePods:
    """The pods on nodes that have inter-pod terms, and the labels that these terms look at."""

    def __init__(self) -> None:
        self._follower = Follower()
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


class Images:
    """On how many nodes each image is, and how many nodes there are."""

    def __init__(self) -> None:
        self._follower = Follower()
        self._of: dict[str, Mapping[str, int]] = {}  # nodes without any are left out
        self._count = 0
        self._holders: Counter[str] = Counter()

    def catch_up(self, overlay: Overlay) -> None:
        """Take in what has changed."""
        changed = self._follower.catch_up(overlay)
        snapshot = overlay.snapshot
        self._count = len(snapshot.node_names)
        if changed is None:
            lots = [lot for lot in snapshot.lots if lot.first.images]
            self._of = {name: snapshot.nodes[name].images for lot in lots for name in lot.names}
            self._holders = Counter(image for images in self._of.values() for image in images)
            return
        for name, node in present_nodes(overlay, changed):
            images, before = node.images if node is not None else NO_IMAGES, self._of.get(name, NO_IMAGES)
            if images is not before:
                self._put(name, images, before)

    def share(self, image: str) -> float:
        """The share of nodes that have an image."""
        return self._holders[image] / self._count if self._count else 0.0

    def known(self, images: Iterable[str]) -> bool:
        """Whether any of the images is on any node."""
        return any(self._holders[image] for image in images)

    def _put(self, name: str, images: Mapping[str, int], before: Mapping[str, int]) -> None:
        self._of[name] = images
        self._holders.update(images.keys())
        self._holders.subtract(before.keys())
        if not images:
            del self._of[name]
