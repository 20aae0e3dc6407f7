"""Keep the nodes of each topology domain.

The domains are kept per cluster and follow its changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from haru.engine.state.overlay import ChangeCursor, Overlay, present_nodes

HOSTNAME = "kubernetes.io/hostname"


class TopologyDomains:
    """The nodes by their value of one label; nodes without the label are in no domain."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._follower = ChangeCursor()
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
