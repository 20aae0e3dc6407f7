"""Copies of plain JSON values.

Functions of this room never change what they are given; one that has to change much of an object works on a
copy of its own. Texts and numbers are shared, only the dicts and lists are new.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def clone(value: T) -> T:
    """A copy of a JSON value that shares no dict or list with it."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}  # type: ignore[return-value]
    if isinstance(value, list):
        return [clone(item) for item in value]  # type: ignore[return-value]
    return value
