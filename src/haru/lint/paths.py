"""Paths as the API writes them, followed through objects.

`spec.devices[0].attributes[gpu.nvidia.com/x]` and `spec.devices[0].attributes.gpu.nvidia.com` name keys with dots in
them, so a path alone is ambiguous: it is read along the object that it belongs to, longest key first.
"""

from __future__ import annotations

from typing import Any

Keys = tuple[str | int, ...]


def resolve(value: Any, path: str) -> tuple[Keys, str]:
    """The keys that lead as far as the object goes, and the rest of the path (empty if all of it is there)."""
    keys: list[str | int] = []
    while path:
        step = _index(value, path) if isinstance(value, list) else _key(value, path)
        if step is None:
            break
        key, path = step
        value = value[key]
        keys.append(key)
    return tuple(keys), path


def get(value: Any, path: str) -> Any:
    """What is at a path; None when nothing is."""
    keys, rest = resolve(value, path)
    if rest:
        return None
    for key in keys:
        value = value[key]
    return value


def last_name(path: str) -> str:
    """The last name in a path: `count` of `spec.requests[0].count`."""
    return path.rpartition(".")[2]


def parent(path: str) -> str:
    """The path above the last name."""
    return path.rpartition(".")[0]


def _index(value: list[Any], path: str) -> tuple[int, str] | None:
    number, close, rest = path[1:].partition("]")
    if path[0] != "[" or not close or not number.isascii() or not number.isdigit() or len(number) > 9:
        return None
    return (int(number), rest) if int(number) < len(value) else None


def _key(value: Any, path: str) -> tuple[str, str] | None:
    if not isinstance(value, dict):
        return None
    if path.startswith("["):
        key, close, rest = path[1:].partition("]")
        return (key, rest) if close and key in value else None
    path = path.removeprefix(".")
    fitting = [key for key in value if isinstance(key, str) and _begins(path, key)]
    if not fitting:
        return None
    key = max(fitting, key=len)
    return key, path[len(key) :]


def _begins(path: str, key: str) -> bool:
    return path.startswith(key) and path[len(key) : len(key) + 1] in ("", ".", "[")
