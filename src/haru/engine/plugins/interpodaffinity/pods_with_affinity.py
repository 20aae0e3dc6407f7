"""Keep the pods on nodes that have inter-pod affinity terms.

They are kept per cluster and follow its changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from haru.engine.state.change_cursor import ChangeCursor, present_nodes
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
