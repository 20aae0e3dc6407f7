"""Score nodes by the sizes of the pod's images that they have.

Source: kube-scheduler's ImageLocality plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.scores import MAX_SCORE
from haru.engine.plugins.imagelocality.image_states import ImageStates
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo

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
