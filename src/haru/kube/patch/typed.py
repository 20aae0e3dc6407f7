"""Values read through their schema: which fields they set, how two differ, how one is laid over another.

A `Shape` is what merging needs to know of a type: an atomic leaf, an object with named fields, a map, a list with keys,
a set, or a value of no declared type. Sources: sigs.k8s.io/structured-merge-diff `typed`, KEP-555, as behaviour.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from types import NoneType
from typing import Any, Final, Literal, NamedTuple

import orjson
from cachetools import FIFOCache

from haru.kube import schema
from haru.kube.errors import StatusError, bad_request_error
from haru.kube.patch.fieldset import FieldSet, SetBuilder, compact, element_text
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


_CONTAINERS: Final = (dict, list)
_CONTAINER_TYPES: Final = frozenset(_CONTAINERS)
_LIST_OR_NONE: Final = (list, NoneType)
_DICT_OR_NONE: Final = (dict, NoneType)
LEAF: Final = Shape("leaf")
ANY: Final = Shape("any")
_ANY_MAP: Final = Shape("map", element=ANY)


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


def _deduced(shape: Shape, *values: Any) -> Shape:
    """The shape of a value whose type is not declared: maps merge, all else is a leaf."""
    if shape.style != "any":
        return shape
    present = [value for value in values if value is not None]
    return _ANY_MAP if present and all(isinstance(value, dict) for value in present) else LEAF


def _is_merged(shape: Shape, value: Any, other: Any = None) -> bool:
    """Whether values are merged part by part; one of the wrong JSON type is a leaf."""
    if shape.style == "leaf":
        return False
    wanted = _LIST_OR_NONE if shape.style in ("keyed", "set") else _DICT_OR_NONE
    return isinstance(value, wanted) and isinstance(other, wanted)


def item_element(shape: Shape, item: Any) -> str:
    """The path element of a list item: by its keys, or by its value."""
    if shape.style == "set":
        return "v:" + compact(item)
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
    return "k:" + compact(keys)


@lru_cache(maxsize=8192)
def _named_item(key: str, value: str) -> str:
    """The element of an item that is found by one text, as most are."""
    return "k:" + compact({key: value})


def _element_of(shape: Shape, item: Any) -> str:
    """As `item_element`, for an item that need not have keys: validation refuses it, in its own words."""
    try:
        return item_element(shape, item)
    except StatusError:
        return "k:{}"


def _items(shape: Shape, value: list[Any], path: str, strict: bool) -> dict[str, Any]:
    """Path element -> item; of items with the same keys the first counts, or none may be when `strict`."""
    found: dict[str, Any] = {}
    for item in value:
        element = item_element(shape, item) if strict else _element_of(shape, item)
        if element in found and strict:
            text = element_text(element)
            raise bad_request_error(f"{path}: duplicate entries for key {text}")
        found.setdefault(element, item)
    return found


def field_set(value: Any, shape: Shape, path: str = "") -> FieldSet:
    """The fields that a configuration sets; lists may not name an item twice."""
    builder = SetBuilder()
    if shape.style in ("keyed", "set"):
        for element, item in _items(shape, value, path, strict=True).items():
            builder.add(element)
            inner = _deduced(shape.element or ANY, item)
            if inner.style != "leaf" and _is_merged(inner, item):
                builder.below(element, field_set(item, inner, path + element_text(element)))
        return builder.build()
    for key, item in value.items():
        element = "f:" + key
        inner = _deduced(shape.field(key), item)
        if item is None or not _is_merged(inner, item):
            builder.add(element)
            continue
        if item == {} or not shape.names(key):
            builder.add(element)
        builder.below(element, field_set(item, inner, f"{path}.{key}"))
    return builder.build()


class Comparison(NamedTuple):
    """The difference between two values: fields added or changed, and fields removed."""

    changed: FieldSet
    removed: FieldSet


class _Differences(NamedTuple):
    """A Comparison while it is made."""

    changed: SetBuilder
    removed: SetBuilder


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    """How `new` differs from `old`, both of a merged shape (objects, maps, lists with keys)."""
    found = _Differences(SetBuilder(), SetBuilder())
    changed, removed = found
    if shape.style in ("keyed", "set"):
        before = _items(shape, old or [], "", strict=False)
        after = _items(shape, new or [], "", strict=False)
        inner = shape.element or ANY
        for element, item in after.items():
            if element in before:
                _compare_present(element, before[element], item, inner, found)
            else:
                _add_all(changed, element, item, inner)
        for element, item in before.items():
            if element not in after:
                _add_all(removed, element, item, inner)
        return Comparison(changed.build(), removed.build())
    if old is None:  # nothing of it is there, so that nothing in it has the value of a new one
        for key, item in (new or {}).items():
            _add_all(changed, "f:" + key, item, shape.field(key))
        return Comparison(changed.build(), removed.build())
    old, new = old or {}, new or {}
    for key, item in new.items():
        if key in old:
            if old[key] is not item:
                _compare_present("f:" + key, old[key], item, shape.field(key), found)
        elif shape.never_absent(key) and _is_merged(inner := shape.field(key), item):
            changed.below("f:" + key, compare(None if shape.is_null(key) else {}, item, inner).changed)
        else:
            _add_all(changed, "f:" + key, item, shape.field(key))
    for key, item in old.items():
        if key not in new:
            _add_all(removed, "f:" + key, item, shape.field(key))
    return Comparison(changed.build(), removed.build())


def _compare_present(element: str, old: Any, new: Any, shape: Shape, found: _Differences) -> None:
    if old is new or (old == new and type(old) is type(new)):
        return
    shape = _deduced(shape, old, new)
    if _is_merged(shape, old, new):
        inner = compare(old, new, shape)
        found.changed.below(element, inner.changed)
        found.removed.below(element, inner.removed)
    else:
        found.changed.add(element)


def _add_all(builder: SetBuilder, element: str, value: Any, shape: Shape) -> None:
    """The element and everything below it that the value sets."""
    builder.add(element)
    if type(value) not in _CONTAINERS:
        return
    shape = _deduced(shape, value)
    if not _is_merged(shape, value):
        return
    inner = SetBuilder()
    if shape.style in ("keyed", "set"):
        for name, item in _items(shape, value, "", strict=False).items():
            _add_all(inner, name, item, shape.element or ANY)
    elif _CONTAINER_TYPES.isdisjoint(map(type, value.values())):
        builder.below(element, _named(tuple(value)))
        return
    else:
        for key, item in value.items():
            _add_all(inner, "f:" + key, item, shape.field(key))
    builder.below(element, inner.build())


@lru_cache(maxsize=4096)
def _named(names: tuple[str, ...]) -> FieldSet:
    """The fields of these names, without any below them."""
    return FieldSet(frozenset("f:" + name for name in names))


def new_fields(value: Any, shape: Shape) -> dict[str, Any]:
    """All that a value which was not there before sets, as FieldsV1 in the order of its elements.

    It is what `compare` with an empty value of the type finds changed.
    """
    if shape.style in ("keyed", "set"):
        return _items_set_by(value or [], shape)
    found: dict[str, Any] = {}
    for key in sorted(value or ()):
        item = value[key]
        if (not item or item == "0" or type(item) is dict) and shape.is_zero(key, item):
            continue
        if type(item) is str:
            found["f:" + key] = {}
            continue
        inner = shape.field(key)
        if not shape.never_absent(key) or not _is_merged(inner, item):
            found["f:" + key] = _set_by(item, inner)
        elif below := _set_by(item, inner) if shape.is_null(key) else new_fields(item, inner):
            found["f:" + key] = {element: set_by for element, set_by in below.items() if element != "."}
    return found


def _set_by(value: Any, shape: Shape) -> dict[str, Any]:
    """An element that a value sets, with everything below it."""
    if type(value) not in _CONTAINERS:
        return {}
    shape = _deduced(shape, value)
    if not value or not _is_merged(shape, value):
        return {}
    if shape.style in ("keyed", "set"):
        return _list_set_by(value, shape)
    below: dict[str, Any] = {".": {}}
    for key in sorted(value):
        item = value[key]
        below["f:" + key] = {} if type(item) is str else _set_by(item, shape.field(key))
    return below


def _list_set_by(value: list[Any], shape: Shape) -> dict[str, Any]:
    """The same of a list with keys. Pods of one template have the same containers: theirs are worked out once."""
    key = shape, orjson.dumps(value)
    found = _set_by_lists.get(key)
    if found is None:
        found = {".": {}, **_items_set_by(value, shape)}
        if len(key[1]) <= _KEPT_BYTES:
            _set_by_lists[key] = found
    return found


_KEPT_LISTS: Final = 512
_KEPT_BYTES: Final = 4096
_set_by_lists: FIFOCache[tuple[Shape, bytes], dict[str, Any]] = FIFOCache(_KEPT_LISTS)
"""What lists set that were met lately; many objects share it: do not change it."""


def _items_set_by(value: list[Any], shape: Shape) -> dict[str, Any]:
    items, inner = _items(shape, value, "", strict=False), shape.element or ANY
    return {element: _set_by(items[element], inner) for element in sorted(items)}


def merge(live: Any, applied: Any, shape: Shape) -> Any:
    """The live value with the applied one laid over it, as server-side apply does. A null is no value of parts."""
    if live is None:
        return applied
    if applied is None:
        return live if live and _is_merged(_deduced(shape, live), live) else None
    shape = _deduced(shape, live, applied) if shape.style == "any" else shape
    if shape.style in ("keyed", "set"):
        both = isinstance(live, list) and isinstance(applied, list)
        return _merge_lists(live, applied, shape) if both else applied
    if shape.style == "leaf" or not (isinstance(live, dict) and isinstance(applied, dict)):
        return applied
    result = dict(live)
    for key, item in applied.items():
        if item is not None and not isinstance(item, _CONTAINERS):
            result[key] = item
        else:
            result[key] = merge(result.get(key), item, shape.field(key))
    return result


def _merge_lists(live: list[Any], applied: list[Any], shape: Shape) -> list[Any]:
    """Applied items in their order; live-only items stay before the live item that followed them.

    What is twice in the live list stays so, unless it is applied.
    """
    named = [(_element_of(shape, item), item) for item in live]
    theirs = dict(reversed(named))
    ours = _items(shape, applied, "", strict=False)
    element = shape.element or ANY
    result = []
    waiting = deque(ours)
    shared = deque(name for name in ours if name in theirs)
    for name, item in named:
        if name not in ours:
            result.append(item)
        elif shared and shared[0] == name:
            shared.popleft()
            following = ""
            while following != name:
                following = waiting.popleft()
                result.append(merge(theirs.get(following), ours[following], element))
    result.extend(merge(theirs.get(name), ours[name], element) for name in waiting)
    return result


class _Gone:
    """Nothing is left of a value."""


def prune(value: Any, last: FieldSet, keep: FieldSet, shape: Shape) -> Any:
    """The value without the fields in `last` that are not in `keep`; a named field counts with what is below it."""
    result = _prune(value, last, keep, shape)
    return {} if result is _Gone else result


def _prune(value: Any, last: FieldSet, keep: FieldSet, shape: Shape) -> Any:
    shape = _deduced(shape, value)
    if not value or not _is_merged(shape, value):
        return value
    if shape.style in ("keyed", "set"):
        items = []
        for item in value:
            left = _prune_part(item_element(shape, item), item, last, keep, shape.element or ANY, named=False)
            if left is not _Gone:
                items.append(left)
        return items or _Gone
    result = {}
    for key, item in value.items():
        left = _prune_part("f:" + key, item, last, keep, shape.field(key), named=shape.names(key))
        if left is not _Gone:
            result[key] = left
    return result or _Gone


def _prune_part(element: str, value: Any, last: FieldSet, keep: FieldSet, shape: Shape, *, named: bool) -> Any:
    below = last.children.get(element)
    if element in last.members or (named and below is not None):
        kept = element in keep.members or (named and element in keep.children)
        if not kept:
            return _Gone
    if below is None:
        return value
    left = _prune(value, below, keep.child(element), shape)
    return type(value)() if left is _Gone and element in keep.members else left
