"""The least of several changes that is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def smallest(items: Sequence[T], fits: Callable[[Sequence[T]], bool]) -> list[T]:
    """A set of items with which it fits and none of which can be done without; empty if all of them do not help."""
    if not items or not fits(items):
        return []
    kept = list(items)
    step = max(1, len(kept) // 2)
    while True:
        index = 0
        while index < len(kept):
            fewer = kept[:index] + kept[index + step :]
            if fewer and fits(fewer):
                kept = fewer
            else:
                index += step
        if step == 1:
            return kept
        step //= 2
