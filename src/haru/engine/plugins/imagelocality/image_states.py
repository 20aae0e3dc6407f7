"""Count the nodes that have each image.

The counts are kept per cluster and follow its changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from haru.engine.state.change_cursor import ChangeCursor, present_nodes
from haru.engine.state.node_info import NO_IMAGES
from haru.engine.state.overlay import Overlay


class ImageStates:
    """On how many nodes each image is, and how many nodes there are."""

    def __init__(self) -> None:
        self._follower = ChangeCursor()
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
