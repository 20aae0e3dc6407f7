"""Score nodes by the sizes of the pod's images that they have.

Source: kube-scheduler's ImageLocality plugin, as behaviour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import MAX_SCORE, Scorer
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.state.node_info import NO_IMAGES, NodeInfo
from haru.engine.state.overlay import ChangeCursor, Overlay, present_nodes
from haru.engine.state.pod_info import PodInfo


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
            lots = [lot for lot in snapshot.node_classes if lot.first.images]
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


_MEBI = 1024 * 1024
_IMAGE_MIN = 23 * _MEBI
_IMAGE_MAX_PER_CONTAINER = 1000 * _MEBI


class ImageLocalityScore:
    """The sizes of the pod's images that the node has; what they count depends on how common they are."""

    alone = True

    def __init__(self, weight: int, pod: PodInfo, images: ImageStates) -> None:
        self.weight = weight
        self._names = pod.images
        self._images = images
        self._known = False

    @property
    def general(self) -> bool:
        """Only images tell nodes of one lot apart."""
        return not self._known

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """All keys change when the first of the images comes to a node, or the last one goes."""
        self._images.catch_up(overlay)
        before, self._known = self._known, self._images.known(self._names)
        return set() if before == self._known else None

    def key(self, node: NodeInfo) -> tuple[int, ...]:
        """The size of each image, 0 if the node does not have it."""
        return tuple(node.images.get(name, 0) for name in self._names) if self._known else ()

    def scores(self, keys: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[int]:
        """Sizes weighted by how common the images are; not normalised."""
        del sizes
        shares = [self._images.share(name) for name in self._names]
        return [image_score(key, shares) if key else 0 for key in keys]


def image_score(sizes: Sequence[int], shares: Sequence[float]) -> int:
    """What the images on a node save: each size (0: not there) weighted by the share of nodes that have the image."""
    found = sum(int(float(size) * share) for size, share in zip(sizes, shares, strict=True) if size)
    most = _IMAGE_MAX_PER_CONTAINER * len(sizes)
    return MAX_SCORE * (min(max(found, _IMAGE_MIN), most) - _IMAGE_MIN) // (most - _IMAGE_MIN)


class ImageLocality:
    """Score nodes by the images that they have."""

    name = "ImageLocality"
    events: frozenset[ClusterEvent] = frozenset()

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer."""
        weight = request.profile.weight(self.name)
        if not weight:
            return None
        return ImageLocalityScore(weight, request.pod, request.indexes.get_or_compute("images", None, ImageStates))
