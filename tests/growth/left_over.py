"""Find what reference counts do not free: what only a garbage collection finds, and what is kept ever longer."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_PLAIN = (tuple, dict)
"""Of these a collection stops watching those that hold plain values: they become fewer, but are not freed."""


def objects_by_type() -> Counter[str]:
    """How many objects live, by the module and name of their type."""
    kinds = Counter(map(type, gc.get_objects()))
    return Counter({f"{kind.__module__}.{kind.__qualname__}": number for kind, number in kinds.items()})


@contextmanager
def left_to_a_collection() -> Iterator[Counter[str]]:
    """Collect nothing meanwhile; what a collection frees at the end, by type.

    Live objects are counted: those that hang on suspended generators are not among what a collection says it has found.
    """
    found: Counter[str] = Counter()
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield found
        before = objects_by_type()
        gc.collect()
        found.update(before - objects_by_type())
    finally:
        if was_enabled:
            gc.enable()
    for kind in _PLAIN:
        found.pop(f"builtins.{kind.__name__}", None)
