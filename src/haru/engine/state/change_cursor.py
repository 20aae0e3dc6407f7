"""The nodes that have changed from one overlay to another, for results that are kept per node.

It costs what has changed: nodes that differ between two snapshots, and nodes that tentative placements touched, on the
overlay that was followed last and on this one.
"""

from __future__ import annotations

from collections.abc import Iterable

from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay


class ChangeCursor:
    """The position of one reader. The first use returns all nodes."""

    __slots__ = ("_overlay", "_seen", "devices_changed")

    def __init__(self) -> None:
        self._overlay: Overlay | None = None
        self._seen = 0
        self.devices_changed = False

    def catch_up(self, overlay: Overlay) -> set[str] | None:
        """Return the names of nodes that may have changed, came or went; None for all.

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
    """Yield the nodes of these names (None: all) on the overlay; None for those that do not exist."""
    if names is None:
        return overlay.present_nodes()
    return ((name, present_node(overlay, name)) for name in sorted(names))


def present_node(overlay: Overlay, name: str) -> NodeInfo | None:
    """Return a node on the overlay; None if it does not exist."""
    try:
        info = overlay.node(name)
    except KeyError:
        return None
    return info if info.present else None
