"""Following the nodes from one moment to the next: what has changed since somebody last looked.

Whoever keeps an answer per node asks a `Follower` which answers may be out of date. That costs what has changed: nodes
that were exchanged between two snapshots, and nodes that tentative placements touched, on the overlay that was looked
at before and on the one that is looked at now.
"""

from __future__ import annotations

from collections.abc import Iterable

from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay


class ChangeCursor:
    """One reader's place. The first look finds all."""

    __slots__ = ("_overlay", "_seen", "devices_changed")

    def __init__(self) -> None:
        self._overlay: Overlay | None = None
        self._seen = 0
        self.devices_changed = False

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """The names of nodes that may have changed, came or went; None for all of them.

        `devices_changed` then says whether devices changed that more than one node sees.
        """
        last, seen = self._overlay, self._seen
        self._overlay, self._seen = overlay, len(overlay.changes)
        if last is None:
            self.devices_changed = True
            return None
        if last is overlay:
            return self._named(overlay.changes[seen:])
        return self._named([*last.changes, *overlay.changes]) | overlay.changed_since(last.snapshot.nodes)

    def _named(self, changes: list[str | None]) -> set[str]:
        self.devices_changed = None in changes
        return {name for name in changes if name is not None}


def present_nodes(overlay: Overlay, names: set[str] | None) -> Iterable[tuple[str, NodeInfo | None]]:
    """The nodes of these names (of all, for None) as they are on the overlay; None for those that are not there."""
    if names is None:
        return overlay.present_nodes()
    return ((name, present_node(overlay, name)) for name in sorted(names))


def present_node(overlay: Overlay, name: str) -> NodeInfo | None:
    """A node as it is on the overlay; None if it does not exist (any more)."""
    try:
        info = overlay.node(name)
    except KeyError:
        return None
    return info if info.present else None
