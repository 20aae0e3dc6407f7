"""Ranges of sizes and costs, and how the estimates of functions see their operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from haru.cel.ast import Node
from haru.cel.types import Type

UNBOUNDED = (1 << 64) - 1
TRAVERSAL = 0.1
"""The cost of looking at one character."""
REGEX_LENGTH = 0.25
"""The cost per character of a regular expression."""
LIST_COST, MAP_COST, STRUCT_COST = 10, 30, 40

Path = tuple[str, ...]
SizeOf = Callable[[Path], "Range | None"]


class Range(NamedTuple):
    """The least and the most that something can be. Stays within unsigned 64 bits."""

    low: int
    high: int

    def plus(self, other: Range) -> Range:
        """Sum."""
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        low, high = self.low + other.low, self.high + other.high
        return Range(low if low < UNBOUNDED else UNBOUNDED, high if high < UNBOUNDED else UNBOUNDED)

    def times(self, other: Range) -> Range:
        """Product."""
        return Range(_cap(self.low * other.low), _cap(self.high * other.high))

    def scaled(self, factor: float) -> Range:
        """Product with a factor, rounded up."""
        return Range(_scale(self.low, factor), _scale(self.high, factor))

    def union(self, other: Range) -> Range:
        """Return the smallest range that covers both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def _cap(value: int) -> int:
    return min(value, UNBOUNDED)


def _scale(value: int, factor: float) -> int:
    # In floating point, as the reference does: the results must be the same to the last digit.
    number = float(value)
    if number > 0 and factor > 0 and number > float(UNBOUNDED) / factor:
        return UNBOUNDED
    scaled = math.ceil(number * factor)
    return min(scaled, UNBOUNDED) if scaled < 1 << 64 else UNBOUNDED


def exactly(value: int) -> Range:
    """A range of one number."""
    return Range(value, value)


UNKNOWN = Range(0, UNBOUNDED)
ONE, NOTHING = exactly(1), exactly(0)


class Estimate(NamedTuple):
    """The cost of a call without its arguments, and the size of its result where that is known."""

    cost: Range
    size: Range | None = None


class Steps:
    """A path that grows as slices do in the reference: two that were grown from one may share their memory.

    There is room for 1, 2, 4, 8, … steps. Growing within the room writes into the memory of the shorter path, so what
    was grown from it before ends in the same step from then on. That decides sizes inside nested macros in 1.36, and
    with them whether an expression is accepted. (It shows only where a variable of a macro is selected from: a name
    that is declared begins with memory of its own.)
    """

    __slots__ = ("_length", "_memory")

    def __init__(self, *steps: str) -> None:
        self._memory: list[str] = list(steps)
        self._length = len(steps)

    def then(self, step: str) -> Steps:
        """The path with one more step."""
        found = Steps()
        found._length = self._length + 1
        memory, room = self._memory, 1
        while room < self._length:
            room *= 2
        if not self._length or self._length == room:
            memory = [*memory[: self._length], step]
        elif len(memory) == self._length:
            memory.append(step)
        else:
            memory[self._length] = step
        found._memory = memory
        return found

    def path(self) -> Path:
        """The steps as they are now."""
        return tuple(self._memory[: self._length])


class Operand:
    """An operand as the estimates of functions see it."""

    __slots__ = ("_size_of", "node", "path", "size", "type")

    def __init__(self, node: Node | None, path: Path, static: Type, size: Range | None, size_of: SizeOf) -> None:
        self.node = node
        self.path = path
        self.type = static
        self.size = size
        self._size_of = size_of

    def size_or_unknown(self) -> Range:
        """The size: computed, declared, or unknown."""
        if self.size is not None:
            return self.size
        return (self._size_of(self.path) if self.path else None) or UNKNOWN

    def element(self) -> Operand | None:
        """An element of a list, or nothing where the type says nothing of elements."""
        if not self.type.params:
            return None
        path = (*self.path, "@items") if self.path else ()
        return Operand(None, path, self.type.params[0], None, self._size_of)


Estimator = Callable[[str, "Operand | None", list[Operand]], "Estimate | None"]
"""Given the overload, the target and the arguments; None where the general rules hold."""
