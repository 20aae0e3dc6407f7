"""What a structural schema does to an object before it is judged: unknown members go, defaults come.

Nulls where null is no value are absent, as for built-in kinds; a default fills what is then missing. `apiVersion`,
`kind` and `metadata` of the object and of embedded resources are known without being declared.
Source: apiextensions pruning and defaulting, as behaviour.
"""

from __future__ import annotations

from typing import Any

from haru.kube.cloning import clone
from haru.kube.custom.structural import Structural
from haru.kube.decoding import embedded_metadata
from haru.kube.meta import Obj

TYPE_META = ("apiVersion", "kind", "metadata")


def pruned(value: Obj, schema: Structural) -> tuple[Obj, list[str]]:
    """The object without what the schema does not know, and the paths of what went; unchanged parts are shared.

    Raises TypeMismatchError for metadata of an embedded object with fields of wrong types.
    """
    unknown: list[str] = []
    found: Obj = _prune(value, schema, "", unknown, resource=True)
    return found, unknown


def unknown_members(value: Any, schema: Structural) -> list[str]:
    """The paths of what a schema does not know about a value of any type."""
    unknown: list[str] = []
    _prune(value, schema, "", unknown)
    return unknown


def _prune(value: Any, schema: Structural, path: str, unknown: list[str], *, resource: bool = False) -> Any:
    if isinstance(value, list):
        if schema.items is None and (schema.open or schema.preserves_unknown):
            return value
        items = [
            _prune(item, schema.items or _OF_NOTHING, f"{path}[{index}]", unknown) for index, item in enumerate(value)
        ]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    found: Obj = {}
    for name, inner in value.items():
        below = f"{path}.{name}" if path else name
        is_type = (resource or schema.embedded) and name in TYPE_META
        if is_type:
            kept = inner
            if name == "metadata" and not resource:
                kept, more = embedded_metadata(inner, below)
                unknown += more
        else:
            kept = _member(name, inner, schema, below, unknown)
        if kept is not _GONE:
            found[name] = kept
    same = len(found) == len(value) and all(found[name] is value[name] for name in value)
    return value if same else found


_GONE = object()
_OF_NOTHING = Structural()
"""What a schema of another type says of the items of a list."""


def _member(name: str, value: Any, schema: Structural, path: str, unknown: list[str]) -> Any:
    declared = schema.properties.get(name) or schema.additional
    if declared is not None:
        return _prune(value, declared, path, unknown)
    if schema.open or schema.preserves_unknown:
        return value
    unknown.append(path)
    return _GONE


def defaulted(value: Obj, schema: Structural, *, keep_nulls: bool = False) -> Obj:
    """The object with the schema's defaults; the object itself where nothing was missing.

    `keep_nulls`: a null that means nothing, and has no default, stays.
    """
    found: Obj = _default(value, schema, keep_nulls)
    return found


def _default(value: Any, schema: Structural, keep_nulls: bool) -> Any:
    if isinstance(value, dict):
        return _default_members(value, schema, keep_nulls)
    if isinstance(value, list) and schema.items is not None:
        items = [_filled(item, schema.items, keep_nulls) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _filled(value: Any, schema: Structural, keep_nulls: bool) -> Any:
    """A value; a null that means nothing is the default, if there is one."""
    if value is None and not schema.nullable and schema.has_default:
        value = clone(schema.default)
    return _default(value, schema, keep_nulls)


def _default_members(value: Obj, schema: Structural, keep_nulls: bool) -> Obj:
    found = dict(value)
    for name, inner in schema.properties.items():
        absent = name not in found or (found[name] is None and not inner.nullable)
        if absent and inner.has_default:
            found[name] = clone(inner.default)
    for name, inner in list(found.items()):
        declared = schema.properties.get(name) or schema.additional
        if declared is None:
            continue
        found[name] = _filled(inner, declared, keep_nulls)
        if found[name] is None and not declared.nullable and not keep_nulls:
            del found[name]
    same = len(found) == len(value) and all(name in value and found[name] is value[name] for name in found)
    return value if same else found
