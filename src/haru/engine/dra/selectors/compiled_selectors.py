"""Which devices a class and a request select, evaluated once per distinct device and remembered.

A selection is named by its expressions, so a changed class is another selection and nothing has to be invalidated.
Its results are kept per combination of what the expression reads, per shape and, as a column, per table of devices.
An error is a result like any other: it counts only when the search comes upon the device.
Source: KEP-4381; errors are worded as kube-scheduler 1.36 does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from haru.cel.device import DeviceSelector, DeviceView, compile_device_selector
from haru.cel.errors import CompileError, EvaluationError
from haru.engine.dra.model.model import Features, Shape
from haru.engine.dra.pools.device_table import DeviceTable
from haru.engine.dra.pools.pools import PoolView
from haru.engine.dra.selectors.columnar_selectors import Column, DeviceColumns, Part, part_of
from haru.engine.dra.selectors.selector_fields import Names, Projection, Spelled, whole
from haru.engine.dra.selectors.shape_program import ShapeProgram, read_expression
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.kube.meta import Obj

T = TypeVar("T")

_MAX_COLUMNS = 256
_MAX_RESULTS = 65536
_MAX_READINGS = 4096
_BOOLEANS = frozenset((True, False))


class SelectionError(NamedTuple):
    """A selector that cannot be compiled or failed on a device: which one, of the class or the request, and why."""

    of_class: bool
    number: int
    message: str


Verdict = bool | SelectionError


class Selection(NamedTuple):
    """The selectors that a device has to satisfy: first those of the class, then the request's."""

    class_expressions: tuple[str | None, ...]
    request_expressions: tuple[str | None, ...]
    lists: bool
    consumable: bool

    def column(self, view: PoolView) -> Sequence[Verdict]:
        """The verdict for each device of a pool view."""
        table = view.table
        compute = lambda: compiled_selector_of(self, table.tables.cache).verdicts(table)  # noqa: E731
        return table.cache.get_or_compute("selected devices", self, compute, _MAX_COLUMNS)


class CompiledSelector:
    """What a selection says of shapes, as far as it was asked."""

    __slots__ = ("_known", "_looked_up", "_met", "_names", "_readings", "_steps")

    def __init__(self, selection: Selection, cache: DecisionCache) -> None:
        flags = (selection.lists, selection.consumable)
        self._known: dict[Shape, Verdict] = {}
        self._steps = [
            (of_class, number, reader_of(expression, *flags, cache))
            for of_class, selectors in ((True, selection.class_expressions), (False, selection.request_expressions))
            for number, expression in enumerate(selectors)
        ]
        self._readings: dict[Hashable, Sequence[Verdict]] = {}
        self._names: dict[str, tuple[tuple[str, ...], bool] | None] = {}
        self._looked_up = self._met = 0

    def verdict(self, shape: Shape) -> Verdict:
        """Whether devices of this shape are selected."""
        found = self._known.get(shape)
        if found is None:
            if len(self._known) >= _MAX_RESULTS:
                self._known.clear()
            found = self._known[shape] = self._judge(shape)
        return found

    def verdicts(self, table: DeviceTable) -> Sequence[Verdict]:
        """Whether each device of a table is selected; of tables that it reads alike, once."""
        if not table.uniform:
            return tuple(map(self.verdict, table.shape_of))
        names = self._read_of(table.shape_of[0].driver)
        # Where hardly two tables are read alike, to compare them is in vain.
        if names is None or self._looked_up > 2 * self._met + _MAX_COLUMNS:
            return self._verdicts(table)
        reading = table.reading(*names)
        known = self._readings.get(reading)
        self._looked_up += 1
        if known is not None:
            self._met += 1
            return known
        if len(self._readings) >= _MAX_READINGS:
            self._readings.clear()
        verdicts = self._readings[reading] = tuple(self._verdicts(table))
        return verdicts

    def _read_of(self, driver: str) -> tuple[tuple[str, ...], bool] | None:
        """The attributes that are read of a driver's devices, and whether capacities are; None if all may be."""
        if driver not in self._names:
            read = [reader.names for _, _, reader in self._steps]
            spelled = [names.published(driver) for names in read if names is not None]
            attributes = dict.fromkeys(text for pairs, _ in spelled for pair in pairs for text in pair)
            amounts = any(pairs for _, pairs in spelled)
            self._names[driver] = (tuple(attributes), amounts) if len(spelled) == len(read) else None
        return self._names[driver]

    def _verdicts(self, table: DeviceTable) -> Sequence[Verdict]:
        found = self._column(table.shapes)
        if len(table.shapes) == len(table.shape_of):
            return found
        return list(map(dict(zip(table.shapes, found, strict=True)).__getitem__, table.shape_of))

    def learn(self, table: DeviceTable) -> None:
        """Judge all shapes of a table at once, where the devices are of one sort."""
        known = self._known
        left = [shape for shape in table.shapes if shape not in known] if known else table.shapes
        if not table.uniform or not left:
            return
        if len(known) + len(left) > _MAX_RESULTS:
            known.clear()
            left = table.shapes
        known.update(zip(left, self._column(left), strict=True))

    def _column(self, shapes: Sequence[Shape]) -> list[Verdict]:
        """The verdicts on shapes of one sort (see `Table.uniform`)."""
        result: list[Verdict] | None = None
        if not shapes:
            return []
        for of_class, number, reader in self._steps:
            column = reader.column(shapes)
            if column is True:
                continue
            own: list[Verdict]
            if isinstance(column, list):
                texts = set(column) - _BOOLEANS
                errors = {text: SelectionError(of_class, number, text) for text in texts if isinstance(text, str)}
                own = [errors.get(value, value) for value in column] if errors else column  # type: ignore[arg-type,assignment]
            else:
                own = [SelectionError(of_class, number, column) if isinstance(column, str) else column] * len(shapes)
            result = own if result is None else [b if a is True else a for a, b in zip(result, own, strict=True)]
        return [True] * len(shapes) if result is None else result

    def _judge(self, shape: Shape) -> Verdict:
        for of_class, number, reader in self._steps:
            program = reader.program
            result = reader.verdict(shape) if program is None or shape.faulty else program.verdict(shape)
            if result is not True:
                return SelectionError(of_class, number, result) if isinstance(result, str) else False
        return True


class Reader:
    """One expression, and what it says of what it reads of a device."""

    __slots__ = ("_consumable", "_expression", "_known", "_lists", "_parts", "names", "program")

    def __init__(self, expression: str | None, lists: bool, consumable: bool) -> None:
        self._expression = expression
        self._lists = lists
        self._consumable = consumable
        self.names: Names | None = None
        """The names that it reads; None if it may see everything."""
        self.program: ShapeProgram | None = None
        if expression is not None:
            self.names, self.program = read_expression(expression, lists, consumable)
        self._known: dict[Projection, bool | str] = {}
        """Verdicts on what cannot be taken as a shape."""
        self._parts: dict[tuple[str, bool], Part] = {}

    def verdict(self, shape: Shape) -> bool | str:
        """True, false, or the text of an error."""
        if self.program is not None and not shape.faulty:
            return self.program.verdict(shape)
        seen = self._seen(shape)
        if self.names is None:
            return self._evaluate(seen)
        found = self._known.get(seen)
        if found is None:
            if len(self._known) >= _MAX_RESULTS:
                self._known.clear()
            found = self._known[seen] = self._evaluate(seen)
        return found

    def column(self, shapes: Sequence[Shape]) -> Column:
        """The verdicts on shapes of one sort (see `Table.uniform`), or the one on all of them."""
        if self.program is None:
            return [self.verdict(shape) for shape in shapes]
        sheet = DeviceColumns(shapes)
        sort = (sheet.driver, sheet.shareable)
        part = self._parts.get(sort)
        if part is None:
            part = self._parts[sort] = part_of(self.program, sheet)
        return part.column(sheet)

    def compile(self) -> DeviceSelector | str:
        """The compiled expression, or why it is none."""
        if self._expression is None:
            return "CEL expression empty (unsupported selector type?)"
        try:
            # What is stored is not compiled as new: what an older server let in stays valid.
            return compile_device_selector(
                self._expression, consumable_capacity=self._consumable, list_attributes=self._lists, new=False
            )
        except CompileError as error:
            return f"CEL compile error: {error}"

    def _evaluate(self, seen: Projection) -> bool | str:
        selector = self.compile()
        if isinstance(selector, str):
            return selector
        try:
            return selector.matches(
                DeviceView(
                    seen.driver,
                    {name: attribute.raw for name, attribute in seen.attributes},
                    {name: {"value": amount.text} for name, amount in seen.capacity},
                    seen.shareable,
                )
            )
        except EvaluationError as error:
            return f"CEL runtime error: {error}"

    def _seen(self, shape: Shape) -> Projection:
        """What the expression sees of a shape. Where a driver publishes a name in both spellings, the short one."""
        if self.names is None:
            return whole(shape)
        read, amounts = self.names.published(shape.driver)
        found = _present(shape.by_name, read)
        attributes = tuple(sorted({*found, *shape.faulty})) if shape.faulty else found
        return Projection(shape.driver, attributes, _present(shape.amounts, amounts), shape.shareable)


def _present(table: Mapping[str, T], names: Spelled) -> tuple[tuple[str, T], ...]:
    """The entries of a table that names stand for."""
    chosen = [name if name in table else full for name, full in names]
    return tuple([(name, table[name]) for name in chosen if name in table])


def compiled_selector_of(selection: Selection, cache: DecisionCache) -> CompiledSelector:
    """Return the compiled selectors of a selection, with their verdicts so far."""
    return cache.get_or_compute(
        "compiled selectors", selection, lambda: CompiledSelector(selection, cache), _MAX_COLUMNS
    )


def expressions(selectors: Iterable[Mapping[str, Any]] | None) -> tuple[str | None, ...]:
    """The CEL expressions of a list of selectors; None stands for a selector of another kind."""
    return tuple([(selector.get("cel") or {}).get("expression") for selector in selectors]) if selectors else ()


def reader_of(expression: str | None, lists: bool, consumable: bool, cache: DecisionCache) -> Reader:
    """Return the reader of an expression, with its verdicts so far. The expression need not compile."""
    key = (expression, lists, consumable)
    return cache.get_or_compute("selector expressions", key, lambda: Reader(*key), _MAX_COLUMNS)


def evaluate(expression: str | None, shape: Shape, lists: bool, consumable: bool, cache: DecisionCache) -> bool | str:
    """Return what one expression says of a shape: true, false, or the text of an error."""
    return reader_of(expression, lists, consumable, cache).verdict(shape)


def compile_selectors(classes: Iterable[Obj], claims: Iterable[Obj], features: Features) -> None:
    """Compile what these claims select with, ahead of the first question; faulty selectors fail only there."""
    asks: list[Obj] = []
    for claim in claims:
        for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
            asks += [request.get("exactly") or {}, *(request.get("firstAvailable") or ())]
    named = {ask.get("deviceClassName") for ask in asks}
    asks += [c.get("spec") or {} for c in classes if (c.get("metadata") or {}).get("name") in named]
    for expression in {e for ask in asks for e in expressions(ask.get("selectors")) if e is not None}:
        Reader(expression, features.ListTypeAttributes, features.ConsumableCapacity).compile()
