"""PersistentVolumes and claims as the scheduler leaves them, until the watch shows that somebody has bound them.

Source: the assume caches of kube-scheduler's volume binder, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.meta import Obj, annotations_of, uid_of
from haru.kube.volume_binding import SELECTED_NODE

VOLUME_KINDS = frozenset({"PersistentVolume", "PersistentVolumeClaim"})
Key = tuple[str, str]
"""Kind and path."""


class AssumedVolumes:
    """What is assumed, each with what the watch shows of it."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[Obj, Obj]] = {}

    def __iter__(self) -> Iterator[Obj]:
        return (assumed for assumed, _ in self._known.values())

    def put(self, key: Key, assumed: Obj, live: Obj) -> None:
        """Assume an object; `live` is what the watch shows."""
        known = self._known.get(key)
        self._known[key] = (assumed, live if known is None else known[1])

    def shown(self, key: Key, live: Obj) -> Obj:
        """Take in what the watch shows; return what counts."""
        known = self._known.get(key)
        if known is None:
            return live
        assumed = known[0]
        if uid_of(live) != uid_of(assumed) or _is_claimed(live):
            del self._known[key]
            return live
        self._known[key] = (assumed, live)
        return assumed

    def drop(self, key: Key) -> Obj | None:
        """End an assumption; return what the watch shows instead, None without an assumption."""
        known = self._known.pop(key, None)
        return known[1] if known is not None else None


def _is_claimed(live: Obj) -> bool:
    """Whether somebody's write says what becomes of the object: then that counts."""
    spec = live.get("spec") or {}
    if live["kind"] == "PersistentVolume":
        return bool(spec.get("claimRef"))
    return bool(spec.get("volumeName")) or SELECTED_NODE in annotations_of(live)
