"""What a schema declares of values, as server-side apply reads them: types, members, how list items are told apart.

Both kinds of schemas come down to this: the tables of built-in kinds here, those of custom resources in
`haru.kube.custom.merging`. Source: sigs.k8s.io/structured-merge-diff `schema`, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from haru.kube import schema
from haru.kube.kinds import Kind
from haru.kube.patch.shapes import LEAF, Shape, field_shape
from haru.kube.schema import Field, MessageType

JsonType = Literal["object", "map", "list", "string", "numeric", "boolean", "scalar", "any"]
"""`scalar` is any value but a list or map; `any` needs no type."""


class Declared:
    """What is declared of one value. Objects are looked into as far as somebody asks: types may contain themselves."""

    __slots__ = ("_find", "_members", "element", "keeps_unknown", "shape", "type")

    def __init__(
        self,
        type: JsonType,
        element: Declared | None = None,
        shape: Shape = LEAF,
        find: Callable[[str], Declared | None] = lambda name: None,
        *,
        keeps_unknown: bool = False,
    ) -> None:
        self.type = type
        self.element = element
        """What the items of a list, or the values of a map, are."""
        self.shape = shape
        """How the items of a list are told apart."""
        self.keeps_unknown = keeps_unknown
        """Whether an object may have members that are not declared."""
        self._find = find
        self._members: dict[str, Declared | None] = {}

    def member(self, name: str) -> Declared | None:
        """What a member of an object is; None for one that is not declared."""
        if name in self._members:
            return self._members[name]
        found = self._find(name)
        if found is not None:
            self._members[name] = found
        return found


ANY: Final = Declared("any")
STRING: Final = Declared("string")
NUMERIC: Final = Declared("numeric")
BOOLEAN: Final = Declared("boolean")
SCALAR: Final = Declared("scalar")
_SCALARS: Final = {
    "string": STRING, "bytes": STRING, "int32": NUMERIC, "int64": NUMERIC, "double": NUMERIC, "bool": BOOLEAN,
    "json": ANY, "fieldsV1": ANY, "intOrString": ANY, "stringList": Declared("list", STRING),
}  # fmt: skip
_messages: dict[str, Declared] = {}


def declared_by(message: MessageType) -> Declared:
    """What the type of a built-in kind declares; made once."""
    found = _messages.get(message.name)
    if found is None:

        def find(name: str) -> Declared | None:
            field = message.fields.get(name)
            return _declared(field) if field is not None else None

        found = _messages[message.name] = Declared("object", find=find)
    return found


def declared_of(kind: Kind) -> Declared:
    """What the schema of a kind, built in or custom, declares."""
    if kind.custom is not None:
        found: Declared = kind.custom.declared
        return found
    return declared_by(schema.type_of(kind))


def _declared(field: Field) -> Declared:
    if field.is_message:
        inner = declared_by(schema.message_type(field.type))
    else:
        inner = _SCALARS.get(field.type, SCALAR)
    if field.container == "one":
        return inner
    return Declared("map", inner) if field.container == "map" else Declared("list", inner, field_shape(field))
