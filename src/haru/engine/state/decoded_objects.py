"""What several caches of one process decode of the objects that all of them are shown, once for all of them.

A cache that follows the cluster takes several times the memory of what it was shown. Most of that depends on the object
alone: the scheduler, the accounting and the pages of one process, each with a cache of its own, share it.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from haru.engine.dra.model.slice_decoder import SharedSliceDecoder
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj


class DecodedObjects:
    """For caches that are shown the same objects, which nobody changes. Keeps nothing that none of them has."""

    def __init__(self) -> None:
        self.slices = SharedSliceDecoder()
        self._pods: WeakValueDictionary[int, PodInfo] = WeakValueDictionary()

    def pod(self, obj: Obj) -> PodInfo:
        """Decode a Pod object, or return what was decoded of it."""
        # As long as what was decoded lives, the object does, and no other one has its id.
        found = self._pods.get(id(obj))
        if found is None:
            found = self._pods[id(obj)] = PodInfo.of(obj)
        return found
