"""Constraints between the devices of one claim, as immutable values, so that going back is forgetting.

A match constraint holds what all devices so far have in common; a distinct constraint what has been used up. With
list attributes a scalar is a list of one: match keeps the intersection, distinct demands that nothing repeats.
A device without the attribute satisfies neither.
Source: KEP-4381 (match), KEP-5075 (distinct), KEP-5491 (lists).
"""

from __future__ import annotations

from haru.engine.dra.model.model import LIST_KINDS, SCALAR_KINDS, Shape

Values = tuple[str, frozenset[str | int | bool]]
"""The kind and the values of an attribute."""

State = Values | frozenset[tuple[str, str | int | bool]] | None
"""Where a constraint stands: nothing chosen, what is common (match), or what is used (distinct)."""


def attribute_values(shape: Shape, name: str, lists: bool) -> Values | None:
    """The values that count for a constraint on this attribute; None: the device cannot satisfy it."""
    attribute = shape.by_name.get(name) or shape.attribute(name)
    if attribute is None:
        return None
    if attribute.kind in SCALAR_KINDS:
        return attribute.kind, frozenset((attribute.value,))  # type: ignore[arg-type]
    if lists and attribute.kind in LIST_KINDS and isinstance(attribute.value, tuple) and attribute.value:
        return LIST_KINDS[attribute.kind], frozenset(attribute.value)
    return None


def add_match(state: Values | None, values: Values | None) -> Values | None:
    """What stays in common when a device with these values joins; None when nothing does."""
    if values is None or state is None:
        return values
    if values[0] != state[0]:
        return None
    common = state[1] & values[1]
    return (state[0], common) if common else None


def add_distinct(
    state: frozenset[tuple[str, str | int | bool]], values: Values | None
) -> frozenset[tuple[str, str | int | bool]] | None:
    """What is used up when a device with these values joins; None when something of it is already."""
    if values is None:
        return None
    own = frozenset((values[0], value) for value in values[1])
    return None if own & state else state | own
