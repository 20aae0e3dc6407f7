"""Let decoded objects share their equal parts: thousands of pods differ in names, times and addresses, and little else.

A decoded pod takes five times the memory of its JSON, most of it for parts that others of its Job have as well. What
is shared must not be changed by anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any, Final

import orjson

from haru.kube.meta import Obj

_MOST: Final = 4096
_MOST_BYTES: Final = 1024 * 1024
"""Of their JSON: what differs in each object, as the devices of a node, would be kept here for nothing."""
_PER_MEMBER: Final = frozenset(
    {"containers", "initContainers", "volumes", "containerStatuses", "initContainerStatuses", "allocation"}
)
"""Lists and objects that are different as a whole, but whose parts are often equal."""
_PER_ITEM: Final = frozenset({"conditions", "ownerReferences"})


def interned(value: Any) -> Any:
    """Return an equal value of which equal texts are one in the process."""
    if type(value) is str:
        return intern(value)
    if type(value) is dict:
        # Most of it are texts: a call for each would cost more than the rest.
        return {key: intern(item) if type(item) is str else interned(item) for key, item in value.items()}
    if type(value) is list:
        return [intern(item) if type(item) is str else interned(item) for item in value]
    return value


class SharedParts:
    """Keep parts that were met lately by their JSON. `kept` makes what is kept of one, such as a copy."""

    def __init__(self, kept: Callable[[Any], Any] = lambda value: value) -> None:
        self._kept = kept
        self._known: dict[bytes, Any] = {}
        self._earlier: dict[bytes, Any] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._known) + len(self._earlier)

    def members(self, fields: Obj, before: Any = None) -> Obj:
        """Return equal fields whose parts are those of earlier objects where they are equal.

        `before` came from here, if it is fields and no other value: what it has in common with the fields stays.
        """
        known = before if type(before) is dict else {}
        return {
            name: value if value is known.get(name) and value is not None else self._member(name, value)
            for name, value in fields.items()
        }

    def part(self, value: Any) -> Any:
        """Return the value, or an equal one that others have."""
        if type(value) not in (dict, list):
            return interned(value)
        try:
            key = orjson.dumps(value)
        except orjson.JSONEncodeError:
            return value  # a number, or a depth, beyond what is encoded here
        known = self._known.get(key)
        if known is None:
            known = self._earlier.get(key)
            # A copy: orjson's own bytes keep the memory of its buffer.
            known = self._keep(bytes(bytearray(key)), self._kept(value) if known is None else known)
        return known

    def _keep(self, key: bytes, part: Any) -> Any:
        if len(self._known) >= _MOST or self._bytes + len(key) > _MOST_BYTES:
            # What was not met since the last time goes.
            self._earlier, self._known, self._bytes = self._known, {}, 0
        self._known[key] = part
        self._bytes += len(key)
        return part

    def _member(self, name: str, value: Any) -> Any:
        if name in _PER_MEMBER and type(value) is dict:
            return self._parts_of(value)
        if name in _PER_MEMBER and type(value) is list:
            return [self._parts_of(item) for item in value]
        if name in _PER_ITEM and type(value) is list:
            return [self.part(item) for item in value]
        return self.part(value)

    def _parts_of(self, item: Any) -> Any:
        return {name: self.part(value) for name, value in item.items()} if type(item) is dict else item
