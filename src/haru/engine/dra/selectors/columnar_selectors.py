"""What an expression says of many devices at once: term by term, each term once per distinct value of what it reads.

`a && (b || c)` is three terms. Devices mostly agree in what most of them read, so that a term which tells all devices
apart (an index) does not make the others be evaluated for each of them. An error counts as in the whole expression: it
is absorbed where another term decides alone, and of several the first one stays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import repeat
from operator import is_, itemgetter
from typing import Any

from haru.cel.ast import Node
from haru.cel.closures import Code
from haru.cel.device import not_bool
from haru.cel.errors import EvaluationError
from haru.engine.dra.model.model import Shape
from haru.engine.dra.selectors.selector_fields import Names, names_below
from haru.engine.dra.selectors.shape_program import DEVICE, ShapeProgram, Verdict, failed

Column = Verdict | list[Verdict]
"""The verdict on each of several shapes, or the one on all of them."""

_MAX_KNOWN = 65536


class DeviceColumns:
    """Shapes of one driver and sort, side by side. A column in which all agree has one entry only."""

    __slots__ = ("_amounts", "_attributes", "driver", "shapes", "shareable")

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.shapes = shapes
        self.driver = shapes[0].driver
        self.shareable = shapes[0].shareable
        self._attributes: list[Mapping[str, Any]] | None = None
        self._amounts: list[Mapping[str, Any]] | None = None

    def attribute(self, name: str, full: str) -> list[Any]:
        """What the shapes have as an attribute, in either spelling; None for those that lack it."""
        if self._attributes is None:
            self._attributes = [shape.by_name for shape in self.shapes]
        return _entries(self._attributes, name, full)

    def capacity(self, name: str, full: str) -> list[Any]:
        """What they have as a capacity."""
        if self._amounts is None:
            self._amounts = [shape.amounts for shape in self.shapes]
        return _entries(self._amounts, name, full)


def _entries(tables: Sequence[Mapping[str, Any]], name: str, full: str) -> list[Any]:
    try:
        found = list(map(itemgetter(name), tables))
    except KeyError:
        found = [table.get(name) or table.get(full) for table in tables]
    first = found[0]
    # What is equal is mostly the same: values are interned.
    return [first] if first is found[-1] and all(map(is_, found, repeat(first))) else found


class Term:
    """A part of an expression that is evaluated as one, for devices of one driver and sort."""

    __slots__ = ("_attributes", "_capacity", "_frame", "_kept", "_known", "_run", "_unfit")

    def __init__(
        self, code: Code, program: ShapeProgram, names: Names, sheet: DeviceColumns, unfit: Callable[[Any], str] | None
    ) -> None:
        """`unfit` words what is wrong with a value that is no boolean."""
        self._attributes, self._capacity = names.published(sheet.driver)
        self._frame = program.frame(sheet.shapes[0])
        self._run = code.run
        self._unfit = unfit
        self._known: dict[Hashable, Verdict] = {}
        """By identity of what is read; `_kept` holds that, so that nothing else gets its place in memory."""
        self._kept: list[Any] = []

    def column(self, sheet: DeviceColumns) -> Column:
        """The verdict on each shape."""
        columns = [sheet.attribute(*spellings) for spellings in self._attributes]
        columns += [sheet.capacity(*spellings) for spellings in self._capacity]
        if len(columns) == 1:
            (entries,) = columns
            keys: list[Any] = list(map(id, entries))
        else:
            entries = _rows(columns)
            keys = [tuple(map(id, row)) for row in entries]
        known = self._known
        if len(known) > _MAX_KNOWN:
            known.clear()
            self._kept.clear()
        before = len(known)
        try:
            self._judge(keys, sheet.shapes)
        finally:
            if len(known) > before:
                self._kept.append(entries)
        return known[keys[0]] if len(keys) == 1 else list(map(known.__getitem__, keys))

    def _judge(self, keys: Sequence[Any], shapes: Sequence[Shape]) -> None:
        """Evaluate for each combination of what is read; one key is that of all shapes."""
        run, frame, known = self._run, self._frame, self._known
        for key, shape in zip(keys, shapes, strict=False):
            if key in known:
                continue
            frame[DEVICE] = shape
            try:
                value = known[key] = run(frame)
                if value is not True and value is not False:
                    known[key] = self._misfit(value)
            except (EvaluationError, RecursionError) as error:
                known[key] = failed(error)

    def _misfit(self, value: Any) -> str:
        return f"CEL runtime error: {'no such overload' if self._unfit is None else self._unfit(value)}"


def _rows(columns: Sequence[list[Any]]) -> list[tuple[Any, ...]]:
    """The combinations of values, shape by shape; one if all agree."""
    count = max(map(len, columns), default=1)
    return list(
        zip(*[column if len(column) == count else repeat(column[0], count) for column in columns], strict=True)
    ) or [()]


class Chain:
    """Terms that one logical operator joins: `decisive` is the verdict that one of them has alone."""

    __slots__ = ("_decisive", "_parts")

    def __init__(self, parts: Sequence[Part], decisive: bool) -> None:
        self._parts = parts
        self._decisive = decisive

    def column(self, sheet: DeviceColumns) -> Column:
        """The verdict on each shape."""
        decisive = self._decisive
        result: Column = not decisive
        for part in self._parts:
            column = part.column(sheet)
            if column is decisive:
                return decisive
            result = _joined(result, column, decisive)
        return result


Part = Term | Chain


def _joined(one: Column, other: Column, decisive: bool) -> Column:
    """Two columns joined; neither is `decisive` for all shapes."""
    neutral = not decisive
    if one is neutral:
        return other
    if other is neutral:
        return one
    if isinstance(one, str) and isinstance(other, str):
        return one
    if not isinstance(one, list):
        assert isinstance(other, list)
        return [decisive if right is decisive else one for right in other]
    if not isinstance(other, list):
        return [other if left is neutral else left for left in one]
    return [
        right if left is neutral else decisive if left is decisive or right is decisive else left
        for left, right in zip(one, other, strict=True)
    ]


def part_of(program: ShapeProgram, sheet: DeviceColumns) -> Part:
    """Return an expression for devices like these."""
    return _part(program.code, program.root, program, sheet, not_bool)


def _part(
    code: Code, node: Node, program: ShapeProgram, sheet: DeviceColumns, unfit: Callable[[Any], str] | None
) -> Part:
    if code.terms is None:
        names = names_below(node)
        assert names is not None
        return Term(code, program, names, sheet, unfit)
    chain = zip(code.terms.codes, code.terms.nodes, strict=True)
    return Chain([_part(*term, program, sheet, None) for term in chain], not code.terms.conjunction)
