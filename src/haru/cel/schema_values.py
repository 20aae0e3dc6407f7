"""Values that know more of themselves than their elements: lists that a schema calls sets or maps, objects with members
that it does not declare.

The order of a set or map list does not matter for `==`; `+` keeps the positions of the left list. In both, what stands
on the left decides: a list that an expression wrote compares and grows by position.
Source: KEP 2876 and apiextensions' values in CEL, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from haru.cel.values import OwnDict, OwnList, Value, equals

_MISSING = object()


class SetList(OwnList):
    """A list with `x-kubernetes-list-type: set`."""

    __slots__ = ()

    def same(self, other: Sequence[Value]) -> bool:
        """Whether the other one has as many elements, and all of them are here."""
        if len(self) != len(other):
            return False
        known = {_token(item) for item in self}
        return all(_token(item) in known for item in other)

    def plus(self, other: Sequence[Value]) -> SetList:
        """The union: what is only in the other one comes last, in its order."""
        found, known = SetList(self), {_token(item) for item in self}
        for item in other:
            token = _token(item)
            if token not in known:
                known.add(token)
                found.append(item)
        return found


class MapList(OwnList):
    """A list with `x-kubernetes-list-type: map`. `keys`: the members that tell items apart, as values have them."""

    __slots__ = ("keys",)

    def __init__(self, items: Iterable[Value], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def same(self, other: Sequence[Value]) -> bool:
        """Whether the other one has as many items, each equal to the one of its keys here."""
        if len(self) != len(other):
            return False
        known = {self._key(item): item for item in self}
        for item in other:
            own = known.get(self._key(item), _MISSING)
            if own is _MISSING or not equals(own, item):
                return False
        return True

    def plus(self, other: Sequence[Value]) -> MapList:
        """Both merged: an item of the other one takes the place of that with its keys, or comes last."""
        found = MapList(self, self.keys)
        places = {self._key(item): place for place, item in enumerate(self)}
        for item in other:
            place = places.get(self._key(item))
            if place is None:
                found.append(item)
            else:
                found[place] = item
        return found

    def _key(self, item: Value) -> Any:
        if not isinstance(item, dict):
            return ("no object",)
        return tuple([_token(item.get(key, _MISSING)) for key in self.keys])


class OpenObject(OwnDict):
    """An object with `unknown` members, which no expression sees, but which make it another one."""

    __slots__ = ("unknown",)

    def __init__(self, known: dict[str, Value], unknown: dict[str, Value]) -> None:
        super().__init__(known)
        self.unknown = unknown

    def same_unknown(self, other: dict[Any, Value]) -> bool:
        """Whether the other one has the same unknown members."""
        return isinstance(other, OpenObject) and equals(self.unknown, other.unknown)


def _token(value: Value) -> Any:
    """What is equal, and can be looked up, for values that are equal."""
    if value.__class__ is bool:
        return ("bool", value)
    if isinstance(value, SetList):
        return ("set", frozenset(map(_token, value)))
    if isinstance(value, list | tuple):
        return ("list", *map(_token, value))
    if isinstance(value, dict):
        unknown = _token(value.unknown) if isinstance(value, OpenObject) else None
        return ("map", frozenset((name, _token(inner)) for name, inner in value.items()), unknown)
    return value
