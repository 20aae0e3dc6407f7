"""The compiler that counts: the same values and errors as `compiler`, and what each evaluation costs.

It is used only where the static estimate cannot prove that an expression stays below its limit, and to report costs.
It follows the steps of cel-go's interpreter, because costs are counted per step: names and each selection cost one,
constants nothing, calls what `actual_costs` says, even when they fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from haru.cel.actual_costs import ACTUAL, OVERLOAD_ACTUAL, actual_size, regex_cost, traversed
from haru.cel.ast import Call, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral
from haru.cel.closures import Code, choose, constant, not_strictly_false
from haru.cel.compiler import Compiler, Slot
from haru.cel.errors import EvaluationError
from haru.cel.loops import pairs, singles
from haru.cel.operations import Frame, Run
from haru.cel.ranges import LIST_COST, MAP_COST, STRUCT_COST, TRAVERSAL
from haru.cel.values import Optional, Value, find, has_field, index, select

CONVERSIONS = frozenset(("bool", "bytes", "double", "dyn", "duration", "int", "string", "timestamp", "type", "uint"))
"""Functions that are applied to constants before the evaluation begins."""

_ATTRIBUTES = frozenset(("_[_]", "_[?_]", "_?._", "_?_:_"))
_PRIMITIVE: frozenset[type] = frozenset((bool, int, float, str))
_SCANNED = frozenset(
    ("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string", "strings_quote", "string_format")
)
_COMPARED = frozenset(
    f"{relation}_{kind}"
    for relation in ("less", "less_equals", "greater", "greater_equals")
    for kind in ("string", "bytes")
) | {"not_equals"}

Qualifier = Callable[[Frame, Value], Value]
Step = Qualifier | str
"""One step of a chain; a text is the selection of a field."""

Price = Callable[[Sequence[Value], Value], int]


class CostExceeded(Exception):
    """Not an EvaluationError while it travels: no operator may absorb it."""


class Meter:
    """The cost of an evaluation so far, in slot 0 of its frame."""

    __slots__ = ("cost", "limit")

    def __init__(self, limit: float = math.inf) -> None:
        self.cost = 0
        self.limit = limit

    def charge(self, cost: int) -> None:
        """Count; raise when it becomes too much."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostExceeded


class MeteringCompiler(Compiler):
    """Compiles one tree to closures that charge the meter in their frame."""

    def compile(self, node: Node) -> Code:
        """Code for any node."""
        if isinstance(node, Literal):
            return constant(node.value)
        if isinstance(node, Ident) and node.constant is not None:
            return constant(node.constant)
        if _is_attribute(node):
            return Code(self.attribute(node, own_cost=1))
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, ListLiteral | MapLiteral | StructLiteral):
            return self.literal(node)
        assert isinstance(node, Comprehension)
        return Code(self.comprehension(node))

    def literal(self, node: ListLiteral | MapLiteral | StructLiteral) -> Code:
        """Code for a list, map or message: constants were made before the evaluation, and cost nothing."""
        if isinstance(node, ListLiteral):
            made, cost = self.list_literal(node), LIST_COST
        elif isinstance(node, MapLiteral):
            made, cost = self.map_literal(node), MAP_COST
        else:
            made, cost = Code(self.struct_literal(node)), STRUCT_COST
        return made if made.constant else Code(_charged(made.run, cost))

    # Names, selections and indices

    def attribute(self, node: Node, own_cost: int) -> Run:
        """Code for a chain of selections. A branch of a conditional and a key have no cost of their own."""
        steps: list[Step] = []
        if isinstance(node, Select) and node.test_only:
            # Asking for presence takes the chain's own cost back.
            steps.append(_presence(node.field))
            node, own_cost = node.operand, 0
        while True:
            if isinstance(node, Select) and node.resolved is not None:
                node = node.resolved
            elif isinstance(node, Select) and not node.test_only:
                steps.append(node.field)
                node = node.operand
            elif isinstance(node, Call) and node.function in _ATTRIBUTES and node.function != "_?_:_":
                steps.append(self.key(node))
                node = node.args[0]
            else:
                break
        if isinstance(node, Call) and node.function == "_?_:_":
            return _chain(self.conditional(node), steps[::-1], 0)
        if isinstance(node, Ident) and node.constant is None:
            return _chain(self.ident(node).run, steps[::-1], own_cost)
        return _chain(self.compile(node).run, steps[::-1], own_cost)

    def key(self, node: Call) -> Qualifier:
        """Code for one index or optional selection."""
        if node.function == "_[_]":
            return _index(self.branch(node.args[1]))
        return _optional(self.branch(node.args[1]))

    def conditional(self, node: Call) -> Run:
        """The conditional operator: free itself."""
        truthy, falsy = self.branch(node.args[1]), self.branch(node.args[2])
        return choose(self.compile(node.args[0]).run, truthy, falsy)

    def branch(self, node: Node) -> Run:
        """Code for what is evaluated as a part of a chain: a name costs nothing there."""
        if _is_attribute(node) and not (isinstance(node, Ident) and node.constant is not None):
            return self.attribute(node, own_cost=0)
        return self.compile(node).run

    # Calls

    def call(self, node: Call) -> Code:
        """Code for a call or operator that is not a selection."""
        function = node.function
        if function in ("_&&_", "_||_"):
            return Compiler.call(self, node)
        codes = [self.compile(operand) for operand in node.operands()]
        overloads = self.overloads(node)
        overload = overloads[0].id if len(overloads) == 1 else ""
        if function == "@not_strictly_false":
            return Code(_charged(not_strictly_false(codes[0].run), 1))
        if overload in ("optional_or_optional", "optional_orValue_value"):
            return Code(self.apply(node, codes))
        if overload == "in_list" and codes[1].constant and _is_set(codes[1].value):
            return Code(self.apply(node, codes)) if codes[1].value else constant(False)
        impl = self.implementation(node, [operand.type for operand in node.operands()])
        if function in CONVERSIONS and len(codes) == 1 and codes[0].constant:
            value = codes[0].value
            return self.folded(lambda _frame: impl(value))
        return Code(_metered(impl, [code.run for code in codes], _price(function, overload)))

    # Comprehensions

    def comprehension(self, node: Comprehension) -> Run:
        """Code for a macro, step by step as it is expanded."""
        if node.macro == "bind":
            return self.bind(node)
        ranged = self.compile(node.iter_range).run
        first, second = self.new_slot(), self.new_slot() if node.iter_var2 else 0
        variables = {node.iter_var: Slot(first)}
        if node.iter_var2:
            variables[node.iter_var2] = Slot(second)
        init = self.compile(node.accu_init).run
        number = self.new_slot()
        self.scopes.append({node.accu_var: Slot(number, _accumulated(number))})
        self.scopes.append(variables)
        condition, step = self.compile(node.condition).run, self.compile(node.step).run
        self.scopes.pop()
        result = self.compile(node.result).run
        self.scopes.pop()
        elements = pairs(ranged) if second else singles(ranged)

        def run(frame: Frame) -> Value:
            accumulator = init(frame)
            for one, other in elements(frame):
                frame[number] = accumulator
                frame[first] = one
                if second:
                    frame[second] = other
                if condition(frame) is not True:
                    break
                try:
                    accumulator = step(frame)
                except EvaluationError as error:
                    accumulator = error
            frame[number] = accumulator
            return result(frame)

        return run


def _is_attribute(node: Node) -> bool:
    return isinstance(node, Ident | Select) or (isinstance(node, Call) and node.function in _ATTRIBUTES)


def _is_set(items: Value) -> bool:
    return all(item.__class__ in _PRIMITIVE for item in items)


def _accumulated(number: int) -> Run:
    """Reads an accumulator. An error stays in it until somebody asks."""

    def read(frame: Frame) -> Value:
        value = frame[number]
        if isinstance(value, EvaluationError):
            raise value
        return value

    return read


def _charged(run: Run, cost: int) -> Run:
    def charge(frame: Frame) -> Value:
        try:
            value = run(frame)
        except EvaluationError:
            frame[0].charge(cost)
            raise
        frame[0].charge(cost)
        return value

    return charge


# Qualifiers: one step of a chain. A step from an absent optional costs nothing.


def _chain(base: Run, steps: list[Step], own_cost: int) -> Run:
    plain = list(takewhile(lambda step: isinstance(step, str), steps))
    if plain:
        base, own_cost = _fields(base, [(field, _field(field)) for field in map(str, plain)], own_cost), 0
        if len(plain) == len(steps):
            return base
    qualifiers = [_field(step) if isinstance(step, str) else step for step in steps[len(plain) :]]

    def run(frame: Frame) -> Value:
        if own_cost:
            frame[0].charge(own_cost)
        value = base(frame)
        for qualify in qualifiers:
            value = qualify(frame, value)
        return value

    return run


def _fields(base: Run, fields: list[tuple[str, Qualifier]], own_cost: int) -> Run:
    """Fields below a value. Nearly all of them are those of plain dicts, which are paid for at once."""

    def run(frame: Frame) -> Value:
        meter = frame[0]
        if own_cost:
            meter.charge(own_cost)
        value = base(frame)
        for field, qualify in fields:
            if value.__class__ is not dict:
                value = qualify(frame, value)
                continue
            meter.cost += 1
            if meter.cost > meter.limit:
                raise CostExceeded
            value = select(value, field)
        return value

    return run


def _step(frame: Frame, value: Value, move: Callable[[], Value]) -> Value:
    if value.__class__ is not Optional:
        frame[0].charge(1)
        return move()
    found = move()
    if found.present:
        frame[0].charge(1)
    return found


def _field(field: str) -> Qualifier:
    def qualify(frame: Frame, value: Value) -> Value:
        if value.__class__ is Optional:
            return _step(frame, value, lambda: select(value, field))
        frame[0].charge(1)
        return select(value, field)

    return qualify


def _presence(field: str) -> Qualifier:
    def qualify(frame: Frame, value: Value) -> Value:
        frame[0].charge(1)
        return has_field(value, field)

    return qualify


def _index(key_run: Run) -> Qualifier:
    def qualify(frame: Frame, value: Value) -> Value:
        try:
            key = key_run(frame)
        except EvaluationError:
            frame[0].charge(1)
            raise
        return _step(frame, value, lambda: index(value, key))

    return qualify


def _optional(key_run: Run) -> Qualifier:
    def qualify(frame: Frame, value: Value) -> Value:
        found = find(value, key_run(frame))
        if found.present:
            frame[0].charge(1)
        return found

    return qualify


# Calls


def _price(function: str, overload: str) -> Price:
    """How the cost of a call follows from its operands and its result."""
    known = OVERLOAD_ACTUAL.get(overload)
    if known is not None:
        special = known
        # These look inside their operands: one that failed has no inside.
        return lambda values, result: 1 if _failed(values, result) else special(overload, values, result)
    known = ACTUAL.get(function)
    if known is not None:
        own = known
        return lambda values, result: own(overload, values, result)
    if overload in _SCANNED:
        return lambda values, _result: traversed(actual_size(values[0]))
    if overload == "in_list":
        return lambda values, _result: actual_size(values[1])
    if overload in _COMPARED:
        return lambda values, _result: traversed(min(actual_size(values[0]), actual_size(values[1])))
    if overload in ("add_string", "add_bytes"):
        return lambda values, _result: traversed(actual_size(values[0]) + actual_size(values[1]))
    if overload == "matches_string":
        return lambda values, _result: regex_cost(values[0], values[1])
    if overload == "contains_string":
        return lambda values, _result: traversed(actual_size(values[0]), TRAVERSAL) * traversed(actual_size(values[1]))
    return lambda _values, _result: 1


def _failed(values: Sequence[Value], result: Value) -> bool:
    """Whether an operand failed: then the call did, too."""
    return isinstance(result, EvaluationError) and any(isinstance(value, EvaluationError) for value in values)


def _metered(impl: Callable[..., Any], runs: list[Run], price: Price) -> Run:
    """A call. One or two operands are all evaluated, of more only those up to the first error."""
    if len(runs) == 2:
        return _metered_pair(impl, runs[0], runs[1], price)
    eager = len(runs) == 1

    def call(frame: Frame) -> Value:
        values: list[Value] = []
        for run in runs:
            try:
                values.append(run(frame))
            except EvaluationError as caught:
                if eager:
                    frame[0].charge(price((caught,), caught))
                raise
        return _paid(frame, impl, price, values)

    return call


def _metered_pair(impl: Callable[..., Any], first: Run, second: Run, price: Price) -> Run:
    def call(frame: Frame) -> Value:
        error: EvaluationError | None = None
        one: Value
        other: Value
        try:
            one = first(frame)
        except EvaluationError as caught:
            one = error = caught
        try:
            other = second(frame)
        except EvaluationError as caught:
            other, error = caught, error or caught
        values = (one, other)
        if error is not None:
            frame[0].charge(price(values, error))
            raise error
        return _paid(frame, impl, price, values)

    return call


def _paid(frame: Frame, impl: Callable[..., Any], price: Price, values: Sequence[Value]) -> Value:
    """The result of a call, which costs what it costs when it fails, too."""
    try:
        result = impl(*values)
    except EvaluationError as caught:
        frame[0].charge(price(values, caught))
        raise
    frame[0].charge(price(values, result))
    return result
