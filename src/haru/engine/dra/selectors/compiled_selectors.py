"""Which devices a class and a request select, evaluated once per distinct device and remembered.

A selection is named by its expressions, so a changed class is another selection and nothing has to be invalidated.
Its results are kept per combination of what the expression reads, per shape and, as a column, per table of devices.
An error is a result like any other: it counts only when the search comes upon the device.
Source: KEP-4381; errors are worded as kube-scheduler 1.36 does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeVar

from haru.cel.device import DeviceSelector, DeviceView, compile_device_selector, device_value
from haru.cel.errors import CompileError, EvaluationError
from haru.engine.dra.model.model import Attribute, Features, Shape
from haru.engine.dra.pools.device_table import DeviceTable
from haru.engine.dra.pools.pools import PoolView
from haru.engine.dra.selectors.columnar_selectors import Column, DeviceColumns, Part, parts_of
from haru.engine.dra.selectors.selector_fields import Names, Spelled, names_read
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity

Key = tuple[Attribute | str | None, ...]
"""What is read of a device: attributes by (domain, id), then the texts of capacities; None for what it lacks."""

Cell = tuple[dict[str, Any], str, bool]
"""Where a part is written, and whether it is a capacity."""


class ReusableCelDevice:
    """For devices of one driver without attributes that may be faulty."""

    __slots__ = ("_cells", "_value", "_written")

    def __init__(self, driver: str, shareable: bool, names: Names) -> None:
        attributes: dict[str, dict[str, Any]] = {}
        amounts: dict[str, dict[str, Any]] = {}
        self._cells = _cells(attributes, names.attributes, False) + _cells(amounts, names.capacity, True)
        self._written: Key = (None,) * len(self._cells)
        self._value = device_value(driver, attributes, amounts, shareable)

    def judge(self, selector: DeviceSelector, keys: Iterable[Key], known: MutableMapping[Hashable, bool | str]) -> None:
        """Evaluate a selector for each key: true, false, or the text of an error."""
        matches, cells, written = selector.on(self._value), self._cells, self._written
        for key in keys:
            for (held, name, is_amount), entry, last in zip(cells, key, written, strict=True):
                if entry is last:
                    continue
                if entry is None:
                    del held[name]
                elif is_amount:
                    held[name] = parse_quantity(entry)  # type: ignore[arg-type]
                else:
                    held[name] = entry.value  # type: ignore[union-attr]
            written = key
            try:
                known[key] = matches()
            except EvaluationError as error:
                known[key] = f"CEL runtime error: {error}"
        self._written = written


def _cells(table: dict[str, dict[str, Any]], names: Iterable[tuple[str, str]], amount: bool) -> list[Cell]:
    return [(table.setdefault(domain, {}), name, amount) for domain, name in sorted(names)]


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
            result = reader.verdict(shape)
            if result is not True:
                return SelectionError(of_class, number, result) if isinstance(result, str) else False
        return True


SelectorClass = tuple[Spelled, Spelled, dict[Hashable, bool | str], ReusableCelDevice | None]


class Reader:
    """One expression, and what it says of what it reads of a device."""

    __slots__ = ("_consumable", "_expression", "_lists", "_parts", "_sorts", "names")

    def __init__(self, expression: str | None, lists: bool, consumable: bool) -> None:
        self._expression = expression
        self._lists = lists
        self._consumable = consumable
        self.names = None if expression is None else names_read(expression, lists, consumable)
        """The names that it reads; None if it may see everything."""
        self._sorts: dict[Hashable, SelectorClass] = {}
        self._parts: dict[tuple[str, bool], Part] = {}

    def verdict(self, shape: Shape) -> bool | str:
        """True, false, or the text of an error."""
        if self.names is None:
            return self._evaluate(shape, self.compile())
        attributes, amounts, known, slate = self._sort_of(shape)
        by_name, by_amount = shape.by_name.get, shape.amounts.get
        key: Key = tuple([by_name(name) or by_name(full) for name, full in attributes])
        if amounts:
            key += tuple([(c := by_amount(name) or by_amount(full)) and c.text for name, full in amounts])
        found = known.get(key)
        if found is None:
            if slate is None:
                known[key] = self._evaluate(shape, self.compile())
            else:
                self._judge(slate, (key,), known)
            found = known[key]
        return found

    def column(self, shapes: Sequence[Shape]) -> Column:
        """The verdicts on shapes of one sort (see `Table.uniform`), or the one on all of them."""
        sheet = DeviceColumns(shapes)
        part = None if self.names is None else self._part(sheet)
        return [self.verdict(shape) for shape in shapes] if part is None else part.column(sheet)

    def _part(self, sheet: DeviceColumns) -> Part | None:
        """What judges shapes like these at once; None if they have to be judged one by one."""
        sort = (sheet.driver, sheet.shareable)
        part = self._parts.get(sort)
        if part is None:
            selector = self.compile()
            part = None if isinstance(selector, str) else parts_of(selector, sheet)
            if part is not None:
                self._parts[sort] = part
        return part

    def _judge(self, slate: ReusableCelDevice, keys: Sequence[Key], known: dict[Hashable, bool | str]) -> None:
        selector = self.compile()
        if isinstance(selector, str):
            known.update(dict.fromkeys(keys, selector))
        else:
            slate.judge(selector, keys, known)

    def _sort_of(self, shape: Shape) -> SelectorClass:
        """For shapes of one sort: the names to look at, and what is known."""
        sort = (shape.driver, shape.shareable, shape.faulty)
        found = self._sorts.get(sort)
        if found is None or len(found[2]) >= _MAX_RESULTS:
            assert self.names is not None
            slate = None if shape.faulty else ReusableCelDevice(shape.driver, shape.shareable, self.names)
            found = self._sorts[sort] = (*self.names.published(shape.driver), {}, slate)
        return found

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

    def _evaluate(self, shape: Shape, selector: DeviceSelector | str) -> bool | str:
        if isinstance(selector, str):
            return selector
        try:
            return selector.matches(self._view(shape))
        except EvaluationError as error:
            return f"CEL runtime error: {error}"

    def _view(self, shape: Shape) -> DeviceView:
        """What the expression sees of a shape. Where a driver publishes a name in both spellings, the short one."""
        attributes, capacity = shape.attributes, shape.capacity
        if self.names is not None:
            read, amounts, *_ = self._sort_of(shape)
            found = _present(shape.by_name, read)
            attributes = tuple(sorted({*found, *shape.faulty})) if shape.faulty else found
            capacity = _present(shape.amounts, amounts)
        return DeviceView(
            shape.driver,
            {name: attribute.raw for name, attribute in attributes},
            {name: {"value": amount.text} for name, amount in capacity},
            shape.shareable,
        )


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
    return tuple((selector.get("cel") or {}).get("expression") for selector in selectors or ())


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
