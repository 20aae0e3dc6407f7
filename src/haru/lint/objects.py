"""Edits as they change an object: what an edited text must read as, and what an edit of data alone gives."""

from __future__ import annotations

from typing import Any

from haru.lint.findings import Edit, Insert, Remove, Rename, Replace, Unwrap, Wrap
from haru.lint.paths import Keys, resolve

Obj = dict[str, Any]


def edited(value: Any, edit: Edit, prefix: Keys = ()) -> tuple[Keys | None, Any]:
    """The keys of the place that an edit means, and the value with it done; no keys when it cannot be done."""
    below = value
    for key in prefix:
        below = below[key]
    keys, rest = resolve(below, edit.path)
    keys = (*prefix, *keys)
    if rest or (not keys and not isinstance(edit, Insert)):
        return None, value
    at = keys if isinstance(edit, Insert | Wrap) else keys[:-1]
    if isinstance(edit, Wrap) and not keys:
        return None, value
    try:
        return keys, _changed(value, at, edit, keys)
    except (KeyError, TypeError, IndexError):
        return None, value


def _changed(value: Any, at: Keys, edit: Edit, keys: Keys) -> Any:
    """A copy of the value in which what is at `at` was changed."""
    if at:
        copied: Any = dict(value) if isinstance(value, dict) else list(value)
        copied[at[0]] = _changed(value[at[0]], at[1:], edit, keys)
        return copied
    if isinstance(value, list):
        return _changed_list(value, edit, keys)
    return _changed_mapping(value, edit, keys)


def _changed_list(value: list[Any], edit: Edit, keys: Keys) -> list[Any]:
    if isinstance(edit, Insert) and not edit.key:
        return [*value, edit.value]
    index = keys[-1] if keys else None
    if not isinstance(index, int):
        raise TypeError(edit.path)
    if isinstance(edit, Replace):
        return [*value[:index], edit.value, *value[index + 1 :]]
    if isinstance(edit, Remove):
        return [*value[:index], *value[index + 1 :]]
    raise KeyError(edit.path)


def _changed_mapping(value: Any, edit: Edit, keys: Keys) -> Any:
    if value is not None and not isinstance(value, dict):
        raise TypeError(edit.path)
    if value is None:
        if not isinstance(edit, Insert):
            raise TypeError(edit.path)
        return {edit.key: edit.value} if edit.key else [edit.value]
    if isinstance(edit, Insert):
        if not edit.key or edit.key in value:
            raise KeyError(edit.key)
        return {**value, edit.key: edit.value}
    if isinstance(edit, Wrap):
        moved = {name: value[name] for name in edit.keys}
        if edit.key in value:
            raise KeyError(edit.key)
        return {**{name: inner for name, inner in value.items() if name not in edit.keys}, edit.key: moved}
    name = keys[-1]
    rest = {key: inner for key, inner in value.items() if key != name}
    if isinstance(edit, Replace):
        return {**value, name: edit.value}
    if isinstance(edit, Remove):
        return rest
    if isinstance(edit, Unwrap) and not isinstance(value[name], dict | None):
        raise TypeError(edit.path)
    added = {edit.key: value[name]} if isinstance(edit, Rename) else (value[name] or {})
    if any(key in rest for key in added):
        raise KeyError(name)
    return {**rest, **added}
