"""The view of a cluster in which the objects of hidden namespaces have no names.

It follows the whole view: each version costs the objects that have changed. Devices are shared with it, since they
belong to no namespace. Whatever page is made from such a view cannot name what is hidden: it is not in there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from haru.cluster_view import ClusterView
from haru.dashboard.redaction.objects import Redaction
from haru.engine import SchedulerCache, Snapshot
from haru.engine.state import NodeInfo, PodInfo, differing
from haru.kube.meta import Obj


class RedactedCluster:
    """The views of one cluster for one set of shown namespaces. For one thread at a time."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._cache = SchedulerCache()
        self._seen: dict[str, Mapping[str, Any]] = {}
        self._last: tuple[Snapshot, Snapshot] | None = None
        """The last snapshot, and what was made of it: pages compare snapshots by identity."""

    def view(self, whole: ClusterView) -> ClusterView:
        """Return a view without the names of hidden namespaces."""
        if self._last is None or self._last[0] is not whole.snapshot:
            self._follow(whole.snapshot)
            made = replace(self._cache.snapshot(), devices=whole.snapshot.devices, node_device_classes=None)
            self._last = whole.snapshot, made
        return replace(whole, snapshot=self._last[1], events=_ShownEvents(whole.events, self._redaction.shown))

    def _follow(self, whole: Snapshot) -> None:
        now: dict[str, Mapping[str, Any]] = {
            **whole.others,
            "Node": whole.nodes,
            "ResourceClaim": whole.claims,
            "Pod": whole.pods,
        }
        for kind in dict.fromkeys((*now, *self._seen)):
            new, old = now.get(kind) or {}, self._seen.get(kind) or {}
            for path in differing(new, old):
                self._replace(kind, _object(old.get(path)), _object(new.get(path)))
        self._seen = now

    def _replace(self, kind: str, old: Obj | None, new: Obj | None) -> None:
        if old is new:
            return
        shown = self._redaction.object(kind, new) if new is not None else None
        if shown is not None:
            self._cache.apply(shown if "kind" in shown else {**shown, "kind": kind})
        elif old is not None and (gone := self._redaction.object(kind, old)) is not None:
            self._cache.remove(gone if "kind" in gone else {**gone, "kind": kind})


def _object(found: Any) -> Obj | None:
    """The object behind an entry of a snapshot; None for a node of which only pods are known."""
    if isinstance(found, PodInfo):
        return found.obj
    if isinstance(found, NodeInfo):
        return found.spec.obj if found.present else None
    return found  # type: ignore[no-any-return]


class _ShownEvents(Sequence[Obj]):
    """The events of shown namespaces, chosen when they are read."""

    def __init__(self, events: Sequence[Obj], shown: frozenset[str]) -> None:
        self._events, self._shown = events, shown
        self._chosen: tuple[Obj, ...] | None = None

    def _all(self) -> tuple[Obj, ...]:
        if self._chosen is None:
            self._chosen = tuple(each for each in self._events if self._is_shown(each))
        return self._chosen

    def _is_shown(self, event: Obj) -> bool:
        about = event.get("involvedObject") or {}
        return {str(event["metadata"].get("namespace")), str(about.get("namespace"))} <= self._shown

    def __iter__(self) -> Iterator[Obj]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Obj: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Obj]: ...
    def __getitem__(self, index: int | slice) -> Obj | Sequence[Obj]:
        """Return one of them, or some."""
        return self._all()[index]
