"""JSON merge patch: an object laid over an object, null removes (RFC 7386)."""

from __future__ import annotations

from typing import Any

from haru.kube.errors import bad_request_error
from haru.kube.meta import Obj


def apply_merge_patch(obj: Obj, patch: Obj) -> Obj:
    """The object with the patch laid over it; lists are replaced as a whole."""
    if not isinstance(patch, dict):
        raise bad_request_error("a merge patch must be a JSON object")
    return _merge(obj, patch)


def _merge(target: Obj, patch: Obj) -> Obj:
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            present = result.get(key)
            result[key] = _merge(present if isinstance(present, dict) else {}, value)
        else:
            result[key] = _without_nulls(value) if isinstance(value, list) else value
    return result


def _without_nulls(values: list[Any]) -> list[Any]:
    """A list whose objects have lost members that are null, as the library of 1.36 has it."""
    return [
        _merge({}, value) if isinstance(value, dict) else _without_nulls(value) if isinstance(value, list) else value
        for value in values
    ]
