"""List everything that decoding finds wrong with an object, not only the first fault.

`strict_decode` stops where a server stops: at the first value of the wrong JSON type. For people who mend a manifest
it is better to go on: such a value is left out, noted, and the rest is looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from haru.kube.decoding import TypeMismatchError, Walk
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.schema import Field, MessageType, message_type


class Fault(NamedTuple):
    """An unknown field, or a value of the wrong type."""

    path: str
    name: str
    """The field's own name."""
    owner: MessageType
    """The type that the field is (not) one of."""
    mismatch: str
    """What Go's decoder says of the value; empty for an unknown field."""
    wanted: str = ""
    """The type that the value should have, with `[]` or `{}` before it for a list or map."""


def examine(obj: Obj, kind: Kind) -> tuple[Obj, list[Fault]]:
    """The object without nulls, unknown fields and values of the wrong type; and what it had of the latter two."""
    target = message_type(kind.type_name)
    walk = _Examination()
    pruned: Obj = walk.message(obj, target, "", "", None)
    faults = [Fault(path, name, owner, "") for path, name, owner in walk.unknown] + walk.mismatches
    return pruned, faults


class _Examination(Walk):
    """A walk that notes what it cannot take, and goes on without it."""

    def __init__(self) -> None:
        super().__init__()
        self.mismatches: list[Fault] = []
        self._owners: list[MessageType] = []

    def message(self, value: Any, target: MessageType, path: str, go_path: str, owner: str | None) -> Obj:
        self._owners.append(target)
        try:
            pruned = super().message(value, target, path, go_path, owner)
        finally:
            self._owners.pop()
        return {name: inner for name, inner in pruned.items() if inner is not None}

    def field(self, value: Any, field: Field, path: str, go_path: str, owner: str) -> Any:
        try:
            return super().field(value, field, path, go_path, owner)
        except TypeMismatchError as mismatch:
            wanted = {"one": "", "list": "[]", "map": "{}"}[field.container] + field.type
            self.mismatches.append(Fault(path, field.name, self._owners[-1], str(mismatch), wanted))
            return None

    def item(self, value: Any, field: Field, path: str, go_path: str, owner: str) -> Any:
        try:
            return super().item(value, field, path, go_path, owner)
        except TypeMismatchError as mismatch:
            if not field.is_message:
                raise
            self.mismatches.append(Fault(path, field.name, self._owners[-1], str(mismatch), field.type))
            return {}
