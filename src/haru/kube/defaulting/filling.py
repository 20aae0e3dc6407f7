"""Small helpers that change a dict in place: the fillers own the copy that they work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj

Fillers = Mapping[tuple[str, str], Callable[[Obj, FeatureGates], None]]
"""By group and kind, what fills in an object, which it may change."""


def fill(obj: Obj, **values: Any) -> None:
    """Set each value whose field is absent, null, empty text or zero (what Go calls the zero value)."""
    for name, value in values.items():
        present = obj.get(name)
        if present is None or present == "" or (present == 0 and not isinstance(present, bool)):
            obj[name] = value


def fill_unset(obj: Obj, **values: Any) -> None:
    """Set each value whose field is absent or null: pointers, where zero is a value of its own."""
    for name, value in values.items():
        if obj.get(name) is None:
            obj[name] = value


def section(obj: Obj, name: str) -> Obj:
    """The object at `name`, made when absent."""
    value = obj.get(name)
    if not isinstance(value, dict):
        value = obj[name] = {}
    return value


def part(obj: Obj | None, *path: str) -> Obj | None:
    """The object at `path`, or None."""
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


def items(obj: Obj | None, name: str) -> Iterator[Obj]:
    """The objects in the list at `name`."""
    for item in (obj or {}).get(name) or ():
        if isinstance(item, dict):
            yield item


def agree_on_first(holder: Obj, single: str, several: str, key: str = "") -> None:
    """Let an old member of one value and its successor, a list, say the same; where they differ the old one counts."""
    first, values = holder.get(single), holder.get(several) or []
    named = (values[0].get(key) or "" if key else values[0]) if values else ""
    if first and first != named:
        holder[several] = [{key: first} if key else first]
    elif named and not first:
        holder[single] = named
