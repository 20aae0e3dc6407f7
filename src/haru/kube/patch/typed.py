"""Values read through their schema: which fields they set, how two differ, how one is laid over another.

Sources: sigs.k8s.io/structured-merge-diff `typed`, KEP-555, as behaviour.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType
from typing import Any, Final, NamedTuple

import orjson
from cachetools import FIFOCache

from haru.kube.errors import StatusError, bad_request_error
from haru.kube.patch.fieldset import FieldSet, SetBuilder, element_text
from haru.kube.patch.shapes import ANY, LEAF, Shape, item_element

_CONTAINERS: Final = (dict, list)
_CONTAINER_TYPES: Final = frozenset(_CONTAINERS)
_LIST_OR_NONE: Final = (list, NoneType)
_DICT_OR_NONE: Final = (dict, NoneType)
_ANY_MAP: Final = Shape("map", element=ANY)


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


def _element_of(shape: Shape, item: Any) -> str:
    """As `item_element`, for an item that need not have keys: validation refuses it, in its own words."""
    try:
        return item_element(shape, item)
    except StatusError:
        return "k:{}"


@dataclass
class _Repeated:
    """The items of a list that have the same keys: one leaf, as long as there are several."""

    items: list[Any]


def _items(shape: Shape, value: list[Any]) -> dict[str, Any]:
    """Path element -> item, or all items that have its keys."""
    found: dict[str, Any] = {}
    for item in value:
        element = _element_of(shape, item)
        if element not in found:
            found[element] = item
        elif type(before := found[element]) is _Repeated:
            before.items.append(item)
        else:
            found[element] = _Repeated([before, item])
    return found


def _distinct_items(shape: Shape, value: list[Any], path: str) -> dict[str, Any]:
    """Path element -> item; none may be there twice."""
    found: dict[str, Any] = {}
    for item in value:
        element = item_element(shape, item)
        if element in found:
            raise bad_request_error(f"{path}: duplicate entries for key {element_text(element)}")
        found[element] = item
    return found


def field_set(value: Any, shape: Shape, path: str = "") -> FieldSet:
    """The fields that a configuration sets; lists may not name an item twice."""
    builder = SetBuilder()
    if shape.style in ("keyed", "set"):
        for element, item in _distinct_items(shape, value, path).items():
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
        before, after = _items(shape, old or []), _items(shape, new or [])
        inner = shape.element or ANY
        for element, item in after.items():
            if element not in before or _number_changed(before[element], item):
                _add_all(changed, element, item, inner)
            else:
                _compare_present(element, before[element], item, inner, found)
        for element, item in before.items():
            if element not in after or _number_changed(item, after[element]):
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


def _number_changed(old: Any, new: Any) -> bool:
    """Whether one item has become several of its keys, or the other way round: what is owned of them is another."""
    return (type(old) is _Repeated) != (type(new) is _Repeated)


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
        for name, item in _items(shape, value).items():
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
        if not shape.never_absent(key) or not _is_merged(inner, item) or item == []:
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
    items, inner = _items(shape, value), shape.element or ANY
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

    What is twice in the live list stays so, unless it is applied: then nothing of it is left.
    """
    named = [(_element_of(shape, item), item) for item in live]
    theirs = {name: None if type(item) is _Repeated else item for name, item in _items(shape, live).items()}
    ours = {name: item.items[0] if type(item) is _Repeated else item for name, item in _items(shape, applied).items()}
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
