"""The shortest JSON Patch (RFC 6902) and merge patch (RFC 7386) that make one JSON value of another."""

from __future__ import annotations

from typing import Any

from haru.kube.meta import Obj


def json_patch(before: Any, after: Any, path: str = "") -> list[Obj]:
    """Return the operations that make `after` of `before`, in an order in which all of them apply."""
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        return _members(before, after, path)
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        return _items(list(before), list(after), path)
    return [{"op": "replace", "path": path, "value": after}]


def _members(before: Obj, after: Obj, path: str) -> list[Obj]:
    found: list[Obj] = [{"op": "remove", "path": f"{path}/{escaped(key)}"} for key in before if key not in after]
    for key, value in after.items():
        place = f"{path}/{escaped(key)}"
        found += (
            json_patch(before[key], value, place) if key in before else [{"op": "add", "path": place, "value": value}]
        )
    return found


def _items(before: list[Any], after: list[Any], path: str) -> list[Obj]:
    """Items changed in place or added at the end; items left out one by one; else the list as a whole."""
    if len(after) >= len(before):
        changed = [op for n, old in enumerate(before) for op in json_patch(old, after[n], f"{path}/{n}")]
        return changed + [{"op": "add", "path": f"{path}/-", "value": item} for item in after[len(before) :]]
    kept, gone = iter(after), []
    wanted = next(kept, None)
    for number, item in enumerate(before):
        if wanted is not None and item == wanted:
            wanted = next(kept, None)
        else:
            gone.append(number)
    if wanted is not None or len(gone) != len(before) - len(after):
        return [{"op": "replace", "path": path, "value": after}]
    return [{"op": "remove", "path": f"{path}/{number}"} for number in reversed(gone)]


def merge_patch(before: Obj, after: Obj) -> Obj:
    """Return the merge patch: members that are gone are null, lists are written whole."""
    found: Obj = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            inner = merge_patch(old, value)
            found.update({key: inner} if inner else {})
        elif key not in before or old != value:
            found[key] = value
    return found


def escaped(key: str) -> str:
    """Return a key as part of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
