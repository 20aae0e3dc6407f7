"""Device selectors compiled for shapes: what an expression reads of a device is read of its `Shape`.

CEL sees a device as maps of maps. Hardly any expression handles such a map; nearly all read entries by their names
(`selector_fields`), and those are read of a shape as they are published, so that no maps have to be made. A comparison
of an entry with a constant is one function. What such an expression wants besides (`has`, `in`, `.?`) gets maps of the
names that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from haru.cel.ast import Call, Ident, Node
from haru.cel.closures import Code
from haru.cel.compiler import Compiler
from haru.cel.device import DeviceSelector, compile_device_selector, device_value, domains, not_bool
from haru.cel.environment import Environment
from haru.cel.errors import EvaluationError
from haru.cel.operations import Frame, Run
from haru.cel.program import TOO_DEEP
from haru.cel.values import Value, equals, no_such_key
from haru.engine.dra.model.model import VERSION, Shape, version_of
from haru.engine.dra.selectors.selector_fields import Names, names_read
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity

Verdict = bool | str
"""True, false, or the text of an error."""

DEVICE = 1
"""The slot of the variable `device`, where a shape is."""

_ORDER: dict[str, Callable[[Any, Any], bool]] = {"_<_": lt, "_<=_": le, "_>_": gt, "_>=_": ge}
_SIGNED: dict[str, Callable[[Any, Any], bool]] = {"isGreaterThan": gt, "isLessThan": lt}
_DIRECT = (str, int, bool)


class _Entry(NamedTuple):
    """An attribute or a capacity by domain and id."""

    domain: str
    id: str

    @property
    def full(self) -> str:
        """Its name with the domain, which a driver may leave out if it is its own."""
        return f"{self.domain}/{self.id}"

    def of(self, shape: Shape, table: Mapping[str, Any]) -> Any:
        """What a shape has there; None if nothing. Where it is published in both spellings, the short one."""
        return (table.get(self.id) if shape.driver == self.domain else None) or table.get(self.full)


class ShapeCompiler(Compiler):
    """Compiles an expression in which all entries of the device that it reads are named."""

    def __init__(self, environment: Environment, names: Names) -> None:
        super().__init__(environment, ("device",))
        self._names = names
        self._attributes: dict[Run, _Entry] = {}
        self._amounts: dict[Run, _Entry] = {}
        self._compared: dict[Run, tuple[_Entry, int]] = {}
        """Entries that some code reads, or compares with a constant quantity in billionths."""

    def ident(self, node: Ident) -> Code:
        """Code for a name."""
        slot = None if node.constant is not None else self.slot(node)
        if slot is None or slot.number != DEVICE:
            return super().ident(node)
        names = self._names
        return Code(lambda frame: _device(names, frame[DEVICE]))

    def read(self, number: int, keys: list[str]) -> Run:
        """How constant keys below a variable are read."""
        if number != DEVICE:
            return super().read(number, keys)
        table, *below = keys
        if len(below) == 2:
            entry = _Entry(*below)
            run = (_attribute if table == "attributes" else _amount)(entry)
            (self._attributes if table == "attributes" else self._amounts)[run] = entry
            return run
        if table == "driver":
            return _driver
        if table == "allowMultipleAllocations":
            return lambda frame: frame[DEVICE].shareable
        names, made = self._names, (_attributes if table == "attributes" else _capacities)
        if not below:
            return lambda frame: made(names, frame[DEVICE])
        (domain,) = below
        return lambda frame: made(names, frame[DEVICE])[domain]

    def equal(self, codes: Sequence[Code], types: Sequence[Any]) -> Run:
        """Code for the operator `==`."""
        one, other = codes
        if one.run is _driver and other.constant:
            known = other.value
            return lambda frame: frame[DEVICE].driver == known  # both are strings: equal to nothing else
        entry = self._attributes.get(one.run)
        if entry is None or not other.constant or other.value.__class__ not in _DIRECT:
            return super().equal(codes, types)
        return _attribute_equals(entry, other.value)

    def compare(self, function: str, codes: Sequence[Code], types: Sequence[Any]) -> Run:
        """Code for an operator of order."""
        known = self._compared.get(codes[0].run)
        if known is None or codes[1].value.__class__ is not int or codes[1].value:
            return super().compare(function, codes, types)
        return _compare_amount(*known, _ORDER[function])

    def apply(self, node: Call, codes: list[Code]) -> Run:
        """Code for a call that evaluates its operands in order."""
        run = super().apply(node, codes)
        entry = self._amounts.get(codes[0].run) if len(codes) == 2 else None
        if entry is None or codes[1].value.__class__ is not Quantity:
            return run
        limit: int = codes[1].value.nano
        if node.function in _SIGNED:
            return _compare_amount(entry, limit, _SIGNED[node.function])
        if node.function == "compareTo":
            self._compared[run] = entry, limit
        return run


def _driver(frame: Frame) -> str:
    driver: str = frame[DEVICE].driver
    return driver


# What `_Entry.of` does is written out where it is done for every device that is looked at.
def _attribute(entry: _Entry) -> Run:
    domain, id, full = entry.domain, entry.id, entry.full

    def run(frame: Frame) -> Value:
        shape = frame[DEVICE]
        found = (shape.by_name.get(id) if shape.driver == domain else None) or shape.by_name.get(full)
        if found is None:
            raise no_such_key(id)
        return found[1] if found[0] != VERSION else version_of(found[1])

    return run


def _attribute_equals(entry: _Entry, known: Value) -> Run:
    domain, id, full, kind = entry.domain, entry.id, entry.full, known.__class__

    def run(frame: Frame) -> bool:
        shape = frame[DEVICE]
        found = (shape.by_name.get(id) if shape.driver == domain else None) or shape.by_name.get(full)
        if found is None:
            raise no_such_key(id)
        value = found[1] if found[0] != VERSION else version_of(found[1])
        return value == known if value.__class__ is kind else equals(value, known)

    return run


def _amount(entry: _Entry) -> Run:
    def run(frame: Frame) -> Quantity:
        found = entry.of(frame[DEVICE], frame[DEVICE].amounts)
        if found is None:
            raise no_such_key(entry.id)
        return parse_quantity(found.text)

    return run


def _compare_amount(entry: _Entry, limit: int, order: Callable[[Any, Any], bool]) -> Run:
    domain, id, full = entry.domain, entry.id, entry.full

    def run(frame: Frame) -> bool:
        shape = frame[DEVICE]
        found = (shape.amounts.get(id) if shape.driver == domain else None) or shape.amounts.get(full)
        if found is None:
            raise no_such_key(id)
        return order(found[0], limit)

    return run


def _present(names: Iterable[tuple[str, str]], shape: Shape, table: Mapping[str, Any]) -> Iterable[tuple[_Entry, Any]]:
    entries = (_Entry(*name) for name in names)
    return ((entry, found) for entry in entries if (found := entry.of(shape, table)) is not None)


def _attributes(names: Names, shape: Shape) -> dict[str, Obj]:
    """The attributes of these names as CEL has them: by domain and id."""
    found: dict[str, Obj] = {}
    for entry, attribute in _present(names.attributes, shape, shape.by_name):
        value = attribute.value if attribute.kind != VERSION else version_of(attribute.value)
        found.setdefault(entry.domain, {})[entry.id] = value
    return domains(found)


def _capacities(names: Names, shape: Shape) -> dict[str, Obj]:
    found: dict[str, Obj] = {}
    for entry, capacity in _present(names.capacity, shape, shape.amounts):
        found.setdefault(entry.domain, {})[entry.id] = parse_quantity(capacity.text)
    return domains(found)


def _device(names: Names, shape: Shape) -> Obj:
    return device_value(shape.driver, _attributes(names, shape), _capacities(names, shape), shape.shareable)


class ShapeProgram:
    """A compiled expression that takes shapes without faulty attributes."""

    __slots__ = ("_run", "_spare", "code", "root")

    def __init__(self, selector: DeviceSelector, names: Names) -> None:
        compiler = ShapeCompiler(selector.environment, names)
        self.root: Node = selector.root
        self.code = compiler.compile(self.root)
        self._run = self.code.run
        self._spare: Frame = [None] * (compiler.size - 2)

    def frame(self, shape: Shape) -> Frame:
        """Return the frame on which the code, or a term of it, runs."""
        return [None, shape, *self._spare]

    def verdict(self, shape: Shape) -> Verdict:
        """True, false, or the text of an error."""
        try:
            value = self._run([None, shape, *self._spare])
        except (EvaluationError, RecursionError) as error:
            return failed(error)
        return value if value is True or value is False else f"CEL runtime error: {not_bool(value)}"


def failed(error: EvaluationError | RecursionError) -> str:
    """The verdict where an evaluation failed."""
    return f"CEL runtime error: {TOO_DEEP if isinstance(error, RecursionError) else error}"


class ReadExpression(NamedTuple):
    """What an expression reads of devices (None: it may see everything), and how it takes their shapes (None: not)."""

    names: Names | None
    program: ShapeProgram | None


@lru_cache(maxsize=1024)
def read_expression(expression: str, lists: bool, consumable: bool) -> ReadExpression:
    """Compile an expression for shapes. One whose cost has to be counted has no program, nor has one with faults."""
    names = names_read(expression, lists, consumable)
    if names is None:
        return ReadExpression(None, None)
    selector = compile_device_selector(expression, consumable_capacity=consumable, list_attributes=lists, new=False)
    return ReadExpression(names, ShapeProgram(selector, names) if selector.is_cheap else None)


def forget_selectors() -> None:
    """Forget every compiled expression, for who measures how long it takes to compile one."""
    for known in (compile_device_selector, names_read, read_expression):
        known.cache_clear()
