"""Consumable capacity (KEP-5075): what a share takes of each capacity, and whether it still fits.

A device that allows multiple allocations is limited by its capacities alone. For an ordinary device nothing is ever
accumulated, so the same test reduces to "the request is no more than the value".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from haru.engine.dra.model.model import Capacity, Shape
from haru.engine.dra.model.quantities import UNIT, binary_text, whole

Wanted = tuple[tuple[str, int, str], ...]
"""What a request asks of capacities: name, billionths, text; sorted by name."""
_MAX_REQUESTS = 1024
_UNKNOWN: Any = object()


@lru_cache(maxsize=4096)
def consumed(capacity: Capacity, asked: int | None, asked_text: str) -> tuple[int, str]:
    """What a share takes, in billionths and as text, when `asked` (None: nothing named) is requested."""
    if asked is None:
        if capacity.default is not None:
            return capacity.default, capacity.default_text
        return capacity.value, capacity.text
    limits = capacity.valid_range
    if limits is not None:
        if asked < limits.minimum:
            return limits.minimum, binary_text(whole(limits.minimum))
        if limits.step is None:
            return asked, asked_text
        least, step = whole(limits.minimum), whole(limits.step)
        rounded = least + -((least - whole(asked)) // step) * step if step > 0 else whole(asked)
        return rounded * UNIT, binary_text(rounded)
    for value, text in capacity.valid_values:
        if value >= asked:
            return value, text
    return asked, asked_text


def violates(capacity: Capacity, taken: int) -> bool:
    """Whether the device's request policy forbids a share of this size."""
    if taken == capacity.default:
        return False
    limits = capacity.valid_range
    if limits is not None:
        if limits.maximum is not None and taken > limits.maximum:
            return True
        if limits.step is not None and whole(limits.step) > 0:
            return (whole(taken) - whole(limits.minimum)) % whole(limits.step) != 0
        return False
    if capacity.valid_values:
        return all(taken != value for value, _ in capacity.valid_values)
    return False


def share(shape: Shape, wanted: Wanted) -> tuple[tuple[int, str], ...] | None:
    """Return what a share takes of each capacity of the device, in their order; None if it never fits."""
    found: tuple[tuple[int, str], ...] | None = shape.shares.get(wanted, _UNKNOWN)
    if found is _UNKNOWN:
        if not shape.shares or len(shape.shares) >= _MAX_REQUESTS:
            shape.shares = {}
        found = shape.shares[wanted] = _share(shape, wanted)
    return found


def _share(shape: Shape, wanted: Wanted) -> tuple[tuple[int, str], ...] | None:
    asked = {name: (value, text) for name, value, text in wanted}
    taken = []
    for name, capacity in shape.capacity:
        value, text = asked.pop(name, (None, ""))
        amount, amount_text = consumed(capacity, value, text)
        if violates(capacity, amount) or amount > capacity.value:
            return None
        taken.append((amount, amount_text))
    return None if asked else tuple(taken)


def fits(shape: Shape, wanted: Wanted, used: Sequence[int] | None) -> bool:
    """Whether a share fits beside what is used of each capacity (None: nothing)."""
    if used is None and not wanted and not shape.policies:
        return True
    taken = share(shape, wanted)
    if taken is None:
        return False
    if used is None:
        return True
    return all(
        already + amount <= capacity.value
        for (_, capacity), (amount, _), already in zip(shape.capacity, taken, used, strict=True)
    )


def aligned(shape: Shape, consumption: Mapping[str, int]) -> tuple[int, ...]:
    """Consumption by name, in the order of the device's capacities."""
    return tuple(consumption.get(name, 0) for name, _ in shape.capacity)
