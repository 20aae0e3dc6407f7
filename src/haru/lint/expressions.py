"""What a device selector reads and compares, and what it has made sure of before.

`&&` and `||` absorb errors from either side, so what any other conjunct asks for guards a read, wherever it stands.
A fact is what must hold for a read to matter: the device's driver, that an attribute is there, or its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from haru.cel import ast
from haru.cel.device import environment
from haru.cel.errors import CompileError
from haru.cel.program import parse_and_check

Table = Literal["attributes", "capacity"]
Fact = tuple[str, ...]
"""("driver", d), ("has", table, domain, id) or ("is", domain, id, value)."""
Facts = frozenset[Fact]
_NOTHING: Facts = frozenset()
_COMPARE = {"_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_MIRROR = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_METHODS = {"compareTo": "", "isGreaterThan": ">", "isLessThan": "<"}


class Read(NamedTuple):
    """One look at an attribute or capacity. A safe one asks whether it is there, and cannot fail."""

    table: Table
    domain: str
    name: str
    facts: Facts
    safe: bool

    def guarded(self) -> bool:
        """Whether the selector made sure that it is there."""
        return self.safe or ("has", self.table, self.domain, self.name) in self.facts

    def __str__(self) -> str:
        return f'device.{self.table}["{self.domain}"].{self.name}'


class Comparison(NamedTuple):
    """A read compared with literals: of CEL's own types, or wrapped in semver() or quantity()."""

    read: Read
    operator: str
    """`==` and so on, `in`, or empty for a compareTo that is used otherwise."""
    wrapped: str
    """`semver`, `quantity`, or empty."""
    method: bool
    """Whether compareTo, isGreaterThan or isLessThan does it."""
    values: tuple[Any, ...]


class Made(NamedTuple):
    """`semver("8.0")`: a value made of a literal."""

    function: str
    text: str


@dataclass(slots=True)
class Analysis:
    """All that lint wants to know of an expression."""

    reads: list[Read] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    facts: Facts = _NOTHING
    """What holds for every device that the expression selects."""


@lru_cache(maxsize=256)
def analyse(expression: str) -> Analysis | None:
    """None for an expression that does not compile."""
    try:
        root = parse_and_check(expression, environment(True, True, True))
    except CompileError:
        return None
    analysis = Analysis(facts=_true(root))
    _visit(root, _NOTHING, analysis)
    return analysis


# --- walking


def _visit(node: ast.Node, facts: Facts, out: Analysis) -> None:
    read = _read(node, facts)
    if read is not None:
        out.reads.append(read)
        return
    if isinstance(node, ast.Call):
        _note(node, facts, out)
        if node.function in ("_&&_", "_||_"):
            sides = list(_flat(node, node.function))
            of = _true if node.function == "_&&_" else _false
            known = [of(side) for side in sides]
            for index, side in enumerate(sides):
                others = (fact for at, some in enumerate(known) if at != index for fact in some)
                _visit(side, facts.union(others), out)
            return
        if node.function == "_?_:_":
            test, then, otherwise = node.operands()
            _visit(test, facts, out)
            _visit(then, facts | _true(test), out)
            _visit(otherwise, facts | _false(test), out)
            return
    for child in node.children():
        _visit(child, facts, out)


def _flat(node: ast.Node, function: str) -> Iterator[ast.Node]:
    if isinstance(node, ast.Call) and node.function == function:
        for operand in node.operands():
            yield from _flat(operand, function)
    else:
        yield node


def _true(node: ast.Node) -> Facts:
    """What holds when the node is true."""
    if isinstance(node, ast.Call):
        operands = node.operands()
        if node.function == "_&&_":
            return _true(operands[0]) | _true(operands[1])
        if node.function == "_||_":
            return _true(operands[0]) & _true(operands[1])
        if node.function == "!_":
            return _false(operands[0])
        if node.function == "_==_":
            return _equal(operands[0], operands[1]) | _equal(operands[1], operands[0])
    read = _read(node, _NOTHING)
    return frozenset({("has", read.table, read.domain, read.name)}) if read is not None and read.safe else _NOTHING


def _false(node: ast.Node) -> Facts:
    """What holds when the node is false."""
    if isinstance(node, ast.Call):
        operands = node.operands()
        if node.function == "_||_":
            return _false(operands[0]) | _false(operands[1])
        if node.function == "_&&_":
            return _false(operands[0]) & _false(operands[1])
        if node.function == "!_":
            return _true(operands[0])
        if node.function == "_!=_":
            return _equal(operands[0], operands[1]) | _equal(operands[1], operands[0])
    return _NOTHING


def _equal(left: ast.Node, right: ast.Node) -> Facts:
    if not isinstance(right, ast.Literal) or not isinstance(right.value, str):
        return _NOTHING
    if isinstance(left, ast.Select) and left.field == "driver" and _is_device(left.operand):
        return frozenset({("driver", right.value)})
    read = _read(left, _NOTHING)
    if read is None:
        return _NOTHING
    return frozenset({("is", read.domain, read.name, right.value), ("has", read.table, read.domain, read.name)})


# --- reads


def _read(node: ast.Node, facts: Facts) -> Read | None:
    if isinstance(node, ast.Call) and node.function == "@in":
        key, container = node.args
        name = key.value if isinstance(key, ast.Literal) and isinstance(key.value, str) else None
        place, safe = _domain(container), True
    else:
        operand, name, safe = _access(node)
        place = _domain(operand) if operand is not None else None
    return None if place is None or name is None else Read(*place, name, facts, safe)


def _domain(node: ast.Node) -> tuple[Table, str] | None:
    operand, name, _ = _access(node)
    if name is None or not isinstance(operand, ast.Select) or not _is_device(operand.operand):
        return None
    if operand.field == "attributes":
        return "attributes", name
    return ("capacity", name) if operand.field == "capacity" else None


def _access(node: ast.Node) -> tuple[ast.Node | None, str | None, bool]:
    """Operand, constant key, and whether the access cannot fail."""
    if isinstance(node, ast.Select):
        return node.operand, node.field, node.test_only
    if isinstance(node, ast.Call) and node.function in ("_[_]", "_[?_]", "_?._"):
        operand, key = node.operands()
        if isinstance(key, ast.Literal) and isinstance(key.value, str):
            return operand, key.value, node.function != "_[_]"
    return None, None, False


def _is_device(node: ast.Node) -> bool:
    return isinstance(node, ast.Ident) and node.name == "device" and not node.local


# --- comparisons


def _note(node: ast.Call, facts: Facts, out: Analysis) -> None:
    operands = node.operands()
    if node.function in ("semver", "quantity", "isGreaterThan", "isLessThan") and len(operands) == 1:
        wrapped = operands[0]
        if isinstance(wrapped, ast.Literal) and isinstance(wrapped.value, str):
            out.made.append(Made(node.function, wrapped.value))
    elif node.function in _COMPARE:
        operator = _COMPARE[node.function]
        left, right = operands
        if not (_compare(left, operator, right, facts, out) or _compare(right, _MIRROR[operator], left, facts, out)):
            _threshold(left, operator, right, facts, out)
    elif node.function == "@in" and isinstance(operands[1], ast.ListLiteral):
        _compare(operands[0], "in", operands[1], facts, out)
    elif node.function in _METHODS and len(operands) == 2:
        _method(node, _METHODS[node.function], facts, out)


def _compare(left: ast.Node, operator: str, right: ast.Node, facts: Facts, out: Analysis) -> bool:
    read = _read(left, facts)
    if read is None or (isinstance(left, ast.Call) and left.function == "@in"):
        return False
    if isinstance(right, ast.ListLiteral):
        values = tuple(item.value for item in right.elements if isinstance(item, ast.Literal))
        out.comparisons.append(Comparison(read, operator, "", False, values))
        return True
    wrapped, value = _constant(right)
    if value is not None:
        out.comparisons.append(Comparison(read, operator, wrapped, False, (value,)))
    return value is not None


def _constant(node: ast.Node) -> tuple[str, Any]:
    """(wrapper, value) of a literal, or of one in semver() or quantity()."""
    if isinstance(node, ast.Literal):
        return "", node.value
    if isinstance(node, ast.Call) and node.function in ("semver", "quantity") and node.args:
        inner = node.args[0]
        if isinstance(inner, ast.Literal):
            return node.function, inner.value
    return "", None


def _threshold(left: ast.Node, operator: str, right: ast.Node, facts: Facts, out: Analysis) -> None:
    """`x.compareTo(quantity("…")) >= 0`."""
    is_zero = isinstance(right, ast.Literal) and type(right.value) is int and right.value == 0
    if is_zero and isinstance(left, ast.Call) and left.function == "compareTo":
        _method(left, operator, facts, out)


def _method(node: ast.Call, operator: str, facts: Facts, out: Analysis) -> None:
    target, argument = node.operands()
    read = _read(target, facts)
    wrapped, value = _constant(argument)
    if read is not None and value is not None:
        out.comparisons.append(Comparison(read, operator, wrapped, True, (value,)))
