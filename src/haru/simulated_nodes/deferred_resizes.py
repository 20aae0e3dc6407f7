"""Pods of simulated nodes whose resize waits for room."""

from __future__ import annotations

from collections.abc import Collection


class DeferredResizes:
    """The keys of those pods, by node."""

    def __init__(self) -> None:
        self._keys: dict[str, set[str]] = {}

    def note(self, node: str, key: str, *, waits: bool) -> None:
        """A resize waits now, or no longer."""
        if waits:
            self._keys.setdefault(node, set()).add(key)
        elif node in self._keys:
            self._keys[node].discard(key)
            if not self._keys[node]:
                del self._keys[node]

    def of(self, node: str) -> Collection[str]:
        """The pods of a node."""
        return self._keys.get(node, ())
