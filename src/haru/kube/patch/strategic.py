"""Strategic merge patch: a merge patch that knows the fields' merge keys.

Lists with a merge key are merged item by item, and a few directives say what a plain overlay cannot:
`$patch: delete|replace`, `$retainKeys`, `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>`. In a
merged list the items named by the patch stand in the patch's order and the others in the object's, interleaved by the
latter as far as both can be kept. Source: k8s.io/apimachinery `util/strategicpatch`, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from haru.kube import schema
from haru.kube.errors import StatusError, bad_request_error
from haru.kube.go_values import LARGE
from haru.kube.meta import Obj
from haru.kube.schema import Field, MessageType

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def apply_strategic_merge_patch(obj: Obj, patch: Obj, message: MessageType) -> Obj:
    """The object of type `message` with the patch laid over it."""
    if not isinstance(patch, dict):
        raise bad_request_error("a strategic merge patch must be a JSON object")
    return _merge_map(obj, patch, message)


def with_whole_numbers(value: Any) -> Any:
    """The value with 3 for 3.0, which fits a field of integers as well."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < LARGE else value
    if isinstance(value, dict):
        return {key: with_whole_numbers(item) for key, item in value.items()}
    return [with_whole_numbers(item) for item in value] if isinstance(value, list) else value


def _unprocessable(message: str) -> StatusError:
    return StatusError(422, "Invalid", message)


def _text(value: Any) -> str:
    """A value in a message, as Go shows it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_text, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def _merge_map(original: Obj, patch: Obj, message: MessageType | None) -> Obj:
    """Lay `patch` over `original`; a directive in the patch speaks for the whole map."""
    if _PATCH in patch:
        return _directed_map(patch)
    result = dict(original)
    _retain_keys(result, patch)
    done = {_RETAIN}
    for key in patch:
        if key.startswith(_ORDER):
            done |= {key, _set_order(result, patch, key.removeprefix(_ORDER), message)}
    for key, value in patch.items():
        if key in done:
            continue
        if key.startswith(_DELETE_FROM):
            _delete_from_primitives(result, key.removeprefix(_DELETE_FROM), value)
        elif value is None:
            result.pop(key, None)
        else:
            _merge_key(result, key, value, _field_of(message, key))
    return result


def _directed_map(patch: Obj) -> Obj:
    directive = patch[_PATCH]
    rest = {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "replace":
        return rest if not rest else _without_directives(rest)
    if directive == "delete":
        return {}
    raise bad_request_error(f"unknown patch type found: {directive}")


def _field_of(message: MessageType | None, key: str) -> Field | None:
    return message.fields.get(key) if message is not None else None


def _message_of(field: Field | None) -> MessageType | None:
    if field is None or field.type in schema.SCALARS:
        return None
    return schema.message_type(field.type)


def _merge_key(result: Obj, key: str, value: Any, field: Field | None) -> None:
    present = result.get(key)
    replace = field is not None and "replace" in field.patch_strategies
    if isinstance(value, dict) and isinstance(present, dict) and not replace:
        inner = _merge_value_map if field is not None and field.container == "map" else _merge_map
        result[key] = inner(present, value, _message_of(field))
    elif isinstance(value, list) and isinstance(present, list) and _merges(field):
        result[key] = _merge_list(present, value, field)
    else:
        # What replaces something of its own type is taken with its nulls, and judged with them, as in 1.36.
        cleaned = _without_directives(value, nulls=type(value) is type(present))
        if cleaned is _DELETED:
            result.pop(key, None)
        else:
            result[key] = cleaned


def _merge_value_map(original: Obj, patch: Obj, message: MessageType | None) -> Obj:
    """A map whose keys are data: its values are of type `message`, or scalars."""
    if _PATCH in patch or message is None:
        return _merge_map(original, patch, None)
    result = dict(original)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merge_map(result[key], value, message)
        else:
            result[key] = _without_directives(value)
    return result


def _merges(field: Field | None) -> bool:
    return field is not None and "merge" in field.patch_strategies


class _Deleted:
    """What remains of a value that says of itself that it is to be deleted."""


_DELETED: Final = _Deleted()


def _without_directives(value: Any, nulls: bool = False) -> Any:
    """The value as it is stored where nothing was before: what has a directive goes with it, and nulls go.

    With `nulls` they stay.
    """
    if not isinstance(value, dict | list):
        return value
    text = orjson.dumps(value)
    # Texts may have these as well, and are looked at again.
    return value if b'"$' not in text and (nulls or b"null" not in text) else _cleaned(value, nulls)


def _cleaned(value: Any, nulls: bool) -> Any:
    if isinstance(value, dict):
        if _PATCH in value:
            return _DELETED
        kept = {}
        for key, item in value.items():
            if key == _RETAIN or key.startswith((_DELETE_FROM, _ORDER)) or (item is None and not nulls):
                continue
            cleaned = _cleaned(item, nulls)
            if cleaned is not _DELETED:
                kept[key] = cleaned
        return kept
    if isinstance(value, list):
        cleaned_items = (_cleaned(item, nulls) for item in value)
        return [item for item in cleaned_items if item is not _DELETED]
    return value


def _retain_keys(result: Obj, patch: Obj) -> None:
    if _RETAIN not in patch:
        return
    retained = patch[_RETAIN]
    given = {key for key, value in patch.items() if not key.startswith("$") and value is not None}
    if not isinstance(retained, list) or not given <= {key for key in retained if isinstance(key, str)}:
        raise bad_request_error("invalid patch format of retainKeys")
    for key in [key for key in result if key not in retained]:
        del result[key]


def _delete_from_primitives(result: Obj, key: str, values: Any) -> None:
    if not isinstance(values, list):
        raise bad_request_error("invalid patch format of primitive list")
    present = result.get(key)
    if isinstance(present, list):
        result[key] = [item for item in present if item not in values]


def _set_order(result: Obj, patch: Obj, key: str, message: MessageType | None) -> str:
    """Merge the list `key` and bring it into the order that the patch gives; answers the key, now dealt with."""
    order = patch[_ORDER + key]
    if not isinstance(order, list):
        raise bad_request_error("invalid patch format of setElementOrder list")
    field = _field_of(message, key)
    merge_key = field.patch_merge_key if field is not None else ""
    for item in order if merge_key else ():
        if isinstance(item, dict) and merge_key not in item:
            raise _unprocessable(f"map: {_text(item)} does not contain declared merge key: {merge_key}")
    identity = _identity(field, order)
    present, items = result.get(key), patch.get(key)
    if items is not None:
        if not isinstance(items, list):
            raise bad_request_error(f"invalid patch format: {key} has an order, so it must be a list")
        _check_order(items, order, identity)
    if present is None and items is None:
        return key
    original = present if isinstance(present, list) else []
    if items is None:
        merged = original
    elif isinstance(present, list) and _merges(field):
        merged = _merge_list(original, items, field)
    else:
        merged = _without_directives(items)
    deleted = patch.get(_DELETE_FROM + key)
    if isinstance(deleted, list):
        merged = [item for item in merged if item not in deleted]
    result[key] = _ordered(merged, original, [identity(item) for item in order], identity)
    return key


def _identity(field: Field | None, items: Sequence[Any]) -> Callable[[Any], Any]:
    """How an item of the list is told from another: by its merge key, or by its value."""
    key = field.patch_merge_key if field is not None else ""
    if key and any(isinstance(item, dict) for item in items):
        return lambda item: _hashable(item.get(key)) if isinstance(item, dict) else None
    return _hashable


def _hashable(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else (type(value), value)


def _check_order(items: Any, order: list[Any], identity: Callable[[Any], Any]) -> None:
    named = [identity(item) for item in order]
    position = 0
    if not order:
        return
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get(_PATCH) in ("delete", "replace"):
            continue
        try:
            position = named.index(identity(item), position) + 1
        except ValueError:
            raise bad_request_error(
                f"The order in patch list:\n{_text(items)}\n doesn't match $setElementOrder list:\n{_text(order)}\n"
            ) from None


def _merge_list(original: list[Any], patch: list[Any], field: Field | None) -> list[Any]:
    if not any(isinstance(item, dict) for item in (*original, *patch)):
        merged = list({_hashable(item): item for item in (*original, *patch)}.values())
        return _ordered(merged, original, [_hashable(item) for item in patch], _hashable)
    if field is None or not field.patch_merge_key:
        raise _unprocessable(f"cannot merge lists without merge key for {field.name if field else 'an unknown field'}")
    key = field.patch_merge_key
    kept, changes = _special_items(original, patch, key)
    message = _message_of(field)
    merged = list(kept)
    where = dict[Any, int]()
    for number, item in enumerate(merged):
        if isinstance(item, dict):
            where.setdefault(_hashable(item.get(key)), number)
    for item in changes:
        if not isinstance(item, dict) or key not in item:
            raise _unprocessable(f"map: {_text(item)} does not contain declared merge key: {key}")
        index = where.get(_hashable(item[key]))
        if index is None:
            where[_hashable(item[key])] = len(merged)
            merged.append(_without_directives(item, nulls=True))
        else:
            merged[index] = _merge_map(merged[index], item, message)
    return _ordered(merged, kept, [_hashable(item[key]) for item in changes], lambda item: _hashable(item.get(key)))


def _special_items(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Items with a `$patch` directive act on the list: what is left of the list, and the ordinary items."""
    kept, changes, replace = list(original), [], False
    for item in patch:
        directive = item.get(_PATCH) if isinstance(item, dict) else None
        if directive is None:
            changes.append(item)
        elif directive == "delete":
            if key not in item:
                raise _unprocessable(f"map: {_text(item)} does not contain declared merge key: {key}")
            kept = [present for present in kept if not isinstance(present, dict) or present.get(key) != item[key]]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise bad_request_error("merging lists cannot yet be specified in the patch")
        else:
            raise bad_request_error(f"unknown patch type found: {directive}")
    return ([] if replace else kept), changes


def _ordered(
    merged: list[Any], original: Sequence[Any], order: Sequence[Any], identity: Callable[[Any], Any]
) -> list[Any]:
    """Items in `order` first among themselves, the others placed by their position in the original list."""
    rank = {name: index for index, name in reversed(list(enumerate(order)))}
    place = {identity(item): index for index, item in reversed(list(enumerate(original)))}
    named = sorted((item for item in merged if identity(item) in rank), key=lambda item: rank[identity(item)])
    others = [item for item in merged if identity(item) not in rank]
    others.sort(key=lambda item: place.get(identity(item), len(place)))
    result: list[Any] = []
    waiting = iter(others)
    other = next(waiting, None)
    for item in named:
        here = place.get(identity(item))
        while here is not None and other is not None and place.get(identity(other), here) < here:
            result.append(other)
            other = next(waiting, None)
        result.append(item)
    if other is not None:
        result.append(other)
        result.extend(waiting)
    return result
