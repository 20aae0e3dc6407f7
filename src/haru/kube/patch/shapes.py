"""The shapes of types: what merging needs to know of them.

A `Shape` is an atomic leaf, an object with named fields, a map, a list with keys, a set, or a value of no declared
type. Sources: sigs.k8s.io/structured-merge-diff `schema`, KEP-555, as behaviour.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal

from haru.kube import schema
from haru.kube.errors import bad_request_error
from haru.kube.patch.fieldset import element_json
from haru.kube.schema import Field, MessageType

Style = Literal["leaf", "object", "map", "keyed", "set", "any"]


class Shape:
    """How values of one type take part in merging."""

    __slots__ = ("_fields", "element", "keys", "message", "of_texts", "style")

    def __init__(
        self,
        style: Style,
        message: MessageType | None = None,
        element: Shape | None = None,
        keys: tuple[tuple[str, Any], ...] = (),
        *,
        of_texts: bool = False,
    ) -> None:
        self.style = style
        self.message = message
        self.element = element
        self.keys = keys
        """Key fields of list items, each with its default (None without)."""
        self.of_texts = of_texts
        """Whether the values of a map are texts."""
        self._fields: dict[str, Shape] = {}

    def field(self, name: str) -> Shape:
        """The shape of a named field, or of a map's values."""
        if self.element is not None:
            return self.element
        found = self._fields.get(name)
        if found is None:
            declared = self.message.fields.get(name) if self.message is not None else None
            found = self._fields[name] = field_shape(declared) if declared is not None else ANY
        return found

    def names(self, name: str) -> bool:
        """Whether the type declares this field (in maps, keys are data and not declared)."""
        return self.style == "object" and self.message is not None and name in self.message.fields

    def allows(self, name: str) -> bool:
        """Whether an object may have this field."""
        return self.style != "object" or self.names(name)

    def never_absent(self, name: str) -> bool:
        """Whether every value of the type has the field, if only an empty one."""
        declared = self.message.fields.get(name) if self.message is not None else None
        if declared is None or not declared.written:
            return False
        return declared.is_message or declared.container != "one"

    def is_null(self, name: str) -> bool:
        """Whether the field is null in every new value of the type."""
        declared = self.message.fields.get(name) if self.message is not None else None
        return declared is not None and declared.written and declared.pointer

    def is_zero(self, name: str, value: Any) -> bool:
        """Whether a field has the value that it has in every new value of the type."""
        declared = self.message.fields.get(name) if self.message is not None else None
        if declared is None or not declared.written:
            return False
        if declared.pointer or declared.container != "one" or declared.type in ("bytes", "json"):
            return value is None
        if declared.is_message:
            return type(value) is dict and self.field(name).style == "leaf" and not any(value.values())
        zero = schema.SCALARS[declared.type].zero
        return bool(value == zero) and type(value) is type(zero)


LEAF: Final = Shape("leaf")
ANY: Final = Shape("any")


def shape_of(message: MessageType) -> Shape:
    """The shape of an object type; made once."""
    found: Shape | None = message.shape
    if found is None:
        style: Style = "leaf" if message.map_type == "atomic" else "object"
        found = message.shape = Shape(style, message)
    return found


def _element_shape(field: Field) -> Shape:
    return LEAF if field.type in schema.SCALARS else shape_of(schema.message_type(field.type))


def field_shape(field: Field) -> Shape:
    """The shape of a field's values."""
    if field.container == "list":
        if field.list_type == "set":
            return Shape("set", element=_element_shape(field))
        if field.list_type == "map" and field.type not in schema.SCALARS:
            message = schema.message_type(field.type)
            keys = tuple((key, _default_of(message, key)) for key in field.list_map_keys)
            return Shape("keyed", element=shape_of(message), keys=keys)
        return LEAF
    if field.map_type == "atomic":
        return LEAF
    if field.container == "map":
        return Shape("map", element=_element_shape(field), of_texts=field.type == "string")
    return _element_shape(field)


def _default_of(message: MessageType, key: str) -> Any:
    """What a key is where an item does not say: its default; nothing, of its type, if it has to be said."""
    declared = message.fields.get(key)
    if declared is None or declared.default is not None or not declared.required or declared.is_message:
        return declared.default if declared is not None else None
    return schema.SCALARS[declared.type].zero


def item_element(shape: Shape, item: Any) -> str:
    """The path element of a list item: by its keys, or by its value."""
    if shape.style == "set":
        return "v:" + element_json(item)
    keys = {}
    if isinstance(item, dict):
        if len(shape.keys) == 1:
            name, value = shape.keys[0][0], item.get(shape.keys[0][0])
            if type(value) is str:
                return _named_item(name, value)
        for key, default in shape.keys:
            value = item.get(key, default)
            if value is not None or key in item:
                keys[key] = value
    if not keys:
        names = ", ".join(f'"{key}"' for key, _ in shape.keys)
        raise bad_request_error(f"an item of an associative list omits its key fields ({names})")
    return "k:" + element_json(keys)


@lru_cache(maxsize=1024)
def _named_item(key: str, value: str) -> str:
    """The element of an item that is found by one text, as most are."""
    return "k:" + element_json({key: value})
