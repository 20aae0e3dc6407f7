"""Values told apart by identity: one small object for all that are equal, so that to compare them costs nothing.

Nothing but speed depends on a token's being found again: where there were too many, equal values get new ones.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Hashable

_MOST_KNOWN = 32_768


class InternedId:
    """Stands for one value, whatever that is."""

    __slots__ = ()


class InternTable:
    """The tokens of the values that were met."""

    def __init__(self) -> None:
        self._known: dict[Hashable, InternedId] = {}

    def get(self, value: Hashable) -> InternedId | None:
        """The token of a value that was met before."""
        return self._known.get(value)

    def of(self, value: Hashable) -> InternedId:
        """The token of a value."""
        return self._known.get(value) or self.put(value, InternedId())

    def put(self, value: Hashable, token: InternedId) -> InternedId:
        """Let a token stand for one more value; the token."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[value] = token
        return token


class NodeInterner:
    """The interned values of one cluster's nodes: what a node offers (`kinds`) and what is taken of it (`loads`).

    `heavier` has the load that a load becomes with one more pod, by the load and what the pod takes.
    """

    __slots__ = ("heavier", "kinds", "loads")

    def __init__(self) -> None:
        self.kinds, self.loads, self.heavier = InternTable(), InternTable(), InternTable()
