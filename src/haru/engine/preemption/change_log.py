"""Record which nodes changed, so that what follows them computes only these again.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Iterable

_MOST_CHANGES = 20_000


class ChangeLog:
    """Hold the names of the last changes. Each reader keeps the position up to which it has read."""

    __slots__ = ("_first", "_names")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._first = 0

    @property
    def position(self) -> int:
        """Return the position after all changes so far."""
        return self._first + len(self._names)

    def since(self, position: int) -> set[str] | None:
        """Return the names that changed since a position; None for all."""
        return set(self._names[position - self._first :]) if position >= self._first else None

    def add(self, names: Iterable[str]) -> None:
        """Record that these changed."""
        self._names += names
        if len(self._names) > _MOST_CHANGES:
            self.add_all()

    def add_all(self) -> None:
        """Record that everything may have changed."""
        self._first = self.position + 1
        self._names = []
