"""The compiler: a checked tree becomes one Python closure, made of closures.

A closure takes a frame: a list with a slot per variable (slot 0 belongs to the cost meter, see `metering`). What the
static types prove is not tested again while the expression runs; constants are computed once, here; a path such as
`device.attributes["d"].id` is one closure. This compiler counts no costs: `metering` has the one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from haru.cel.ast import Call, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral
from haru.cel.environment import Environment, Overload
from haru.cel.errors import EvaluationError
from haru.cel.libraries import arithmetic
from haru.cel.operations import Frame, Run, dispatcher, fits, is_exact
from haru.cel.types import struct
from haru.cel.values import (
    NUMBERS,
    Optional,
    Struct,
    Value,
    contains,
    equals,
    find,
    find_field,
    has_field,
    index,
    iterate,
    iterate_pairs,
    map_key,
    no_such_key,
    no_such_overload,
    select,
)

UNSET: Any = object()
"""In a slot: a `cel.bind` variable whose value nobody has asked for yet."""

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": arithmetic.less,
    "_<=_": arithmetic.less_equal,
    "_>_": arithmetic.greater,
    "_>=_": arithmetic.greater_equal,
}
_ORDERED = frozenset(("int", "uint", "double", "string", "bytes"))
_COMPARABLE = frozenset(("int", "uint", "string", "bytes", "bool", "timestamp", "duration"))


class Code(NamedTuple):
    """A compiled node. A constant's `value` is known."""

    run: Run
    constant: bool = False
    value: Any = None


class Slot(NamedTuple):
    """Where a variable lives, and how it is read where that is more than looking there."""

    number: int
    read: Run | None = None


def constant(value: Value) -> Code:
    """Code for a value that is known."""
    return Code(lambda _frame: value, True, value)


class Compiler:
    """Compiles one tree. `size` is the number of slots that its frames need."""

    def __init__(self, environment: Environment, variables: Sequence[str]) -> None:
        self.environment = environment
        self.scopes: list[dict[str, Slot]] = [{name: Slot(number + 1) for number, name in enumerate(variables)}]
        self.size = len(variables) + 1

    # Scopes

    def slot(self, node: Ident) -> Slot | None:
        """Where a variable in scope lives. A macro's variable does not hide one that is named in full."""
        for scope in reversed(self.scopes) if node.local else self.scopes[:1]:
            found = scope.get(node.name)
            if found is not None:
                return found
        return None

    def new_slot(self) -> int:
        """The number of a new slot."""
        # Every variable has a slot of its own: a lazy variable may be computed inside any loop.
        self.size += 1
        return self.size - 1

    # Nodes

    def compile(self, node: Node) -> Code:
        """Code for any node."""
        if isinstance(node, Literal):
            return constant(node.value)
        if isinstance(node, Ident):
            return self.ident(node)
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, ListLiteral):
            return self.list_literal(node)
        if isinstance(node, MapLiteral):
            return self.map_literal(node)
        if isinstance(node, StructLiteral):
            return Code(self.struct_literal(node))
        assert isinstance(node, Comprehension)
        return Code(self.comprehension(node))

    def ident(self, node: Ident) -> Code:
        """Code for a name."""
        if node.constant is not None:
            return constant(node.constant)
        found = self.slot(node)
        if found is None:
            return Code(_unknown(node.name))
        number, read = found
        return Code(read or (lambda frame: frame[number]))

    def select(self, node: Select) -> Code:
        """Code for a selection or a presence test."""
        if node.resolved is not None:
            return self.ident(node.resolved)
        field = node.field
        if node.test_only:
            operand = self.compile(node.operand).run
            return Code(lambda frame: has_field(operand(frame), field))
        return self.path(node) or self.general_select(node)

    def general_select(self, node: Select) -> Code:
        """Code for a selection on any value."""
        operand, field = self.compile(node.operand).run, node.field
        return Code(lambda frame: select(operand(frame), field))

    def path(self, node: Node) -> Code | None:
        """Code for constant keys below a variable, where the static types say that there are maps all the way."""
        keys: list[str] = []
        while not isinstance(node, Ident):
            if isinstance(node, Select) and not node.test_only and node.resolved is None:
                keys.append(node.field)
                node = node.operand
            elif isinstance(node, Call) and node.function == "_[_]" and _is_text(node.args[1]):
                keys.append(node.args[1].value)  # type: ignore[attr-defined]
                node = node.args[0]
            else:
                return None
            if node.type is None or node.type.kind not in ("map", "struct"):
                return None
        found = None if node.constant is not None else self.slot(node)
        if found is None or found.read is not None or len(keys) > 3:
            return None
        return Code(_read(found.number, keys[::-1]))

    def list_literal(self, node: ListLiteral) -> Code:
        """Code for a list."""
        codes = [self.compile(element) for element in node.elements]
        if node.optional:
            return Code(_list_with_optionals([code.run for code in codes], node.optional))
        if all(code.constant for code in codes):
            return constant([code.value for code in codes])
        runs = [code.run for code in codes]
        return Code(lambda frame: [run(frame) for run in runs])

    def map_literal(self, node: MapLiteral) -> Code:
        """Code for a map."""
        entries = [(self.compile(entry.key), self.compile(entry.value), entry.optional) for entry in node.entries]
        build = _build_map([(key.run, value.run, optional) for key, value, optional in entries])
        if all(key.constant and value.constant and not optional for key, value, optional in entries):
            return self.folded(build)
        return Code(build)

    def struct_literal(self, node: StructLiteral) -> Run:
        """Code for a message."""
        fields = [
            (str(entry.key.value), self.compile(entry.value).run, entry.optional)  # type: ignore[attr-defined]
            for entry in node.entries
        ]
        cel_type = struct(node.name)

        def build(frame: Frame) -> Value:
            made: dict[str, Any] = {}
            for name, run, optional in fields:
                value = run(frame)
                if not optional:
                    made[name] = value
                elif _optional(value).present:
                    made[name] = value.value
            return Struct(cel_type, made)

        return build

    def folded(self, run: Run) -> Code:
        """Run now what has no variables. What fails must fail when (and if) it is evaluated."""
        try:
            return constant(run([]))
        except EvaluationError:
            return Code(run)

    # Calls

    def call(self, node: Call) -> Code:
        """Code for a call or operator."""
        function = node.function
        if function == "_&&_":
            return Code(all_of([self.compile(term).run for term in flatten(node, function)]))
        if function == "_||_":
            return Code(any_of([self.compile(term).run for term in flatten(node, function)]))
        if function == "_?_:_":
            return Code(choose(*(self.compile(arg).run for arg in node.args)))
        if function == "@not_strictly_false":
            return Code(not_strictly_false(self.compile(node.args[0]).run))
        if function == "_[_]":
            found = self.path(node)
            if found is not None:
                return found
        codes = [self.compile(operand) for operand in node.operands()]
        run = self.apply(node, codes)
        if codes and all(code.constant for code in codes):
            return self.folded(run)
        return Code(run)

    def apply(self, node: Call, codes: list[Code]) -> Run:
        """Code for a call that evaluates its operands in order."""
        function = node.function
        types = [operand.type for operand in node.operands()]
        if function == "_==_":
            return _equal(codes[0], codes[1], types[0], types[1])
        if function == "_!=_":
            same = _equal(codes[0], codes[1], types[0], types[1])
            return lambda frame: not same(frame)
        if function in _ORDER:
            return _compare(function, codes, types)
        if function == "_?._":
            operand, field = codes[0].run, codes[1].value
            return lambda frame: find_field(operand(frame), field)
        if function == "@in" and codes[1].constant:
            found = _in_constant(codes[0].run, codes[1].value)
            if found is not None:
                return found
        if function in ("or", "orValue") and len(codes) == 2 and node.target is not None:
            return _alternative(codes[0].run, codes[1].run, function)
        return _invoke(self.implementation(node, types), codes)

    def overloads(self, node: Call) -> tuple[Overload, ...]:
        """The overloads that may be meant; without a checker's word, those of the right form."""
        if node.overloads is not None:
            return node.overloads
        operands, is_member = len(node.operands()), node.target is not None
        known = self.environment.functions.get(node.function, ())
        return tuple(item for item in known if item.member == is_member and len(item.params) == operands)

    def implementation(self, node: Call, types: Sequence[Any]) -> Callable[..., Any]:
        """The function to call: direct where types prove it right, else one that looks at the values."""
        overloads = self.overloads(node)
        if len(overloads) == 1 and fits(overloads[0], types):
            return overloads[0].impl
        if node.function == "_+_":
            return arithmetic.add
        if node.function == "_[_]":
            return index
        if node.function == "@in":
            return contains
        if node.function == "_[?_]":
            return find
        return dispatcher(node.function, overloads)

    # Comprehensions

    def comprehension(self, node: Comprehension) -> Run:
        """Code for a macro."""
        if node.macro == "bind":
            return self.bind(node)
        ranged = self.compile(node.iter_range).run
        slots = (self.new_slot(), self.new_slot() if node.iter_var2 else 0)
        variables = {node.iter_var: Slot(slots[0])}
        if node.iter_var2:
            variables[node.iter_var2] = Slot(slots[1])
        if node.macro in ("all", "exists", "exists_one", "map"):
            self.scopes.append(variables)
            predicate = None if node.predicate is None else self.compile(node.predicate).run
            transform = None if node.transform is None else self.compile(node.transform).run
            self.scopes.pop()
            return _loop(node.macro, ranged, slots, predicate, transform)
        return self.fold(node, ranged, slots, variables)

    def bind(self, node: Comprehension) -> Run:
        """Code for `cel.bind`: the value is computed when it is first needed, if ever."""
        init = self.compile(node.accu_init).run
        number = self.new_slot()
        self.scopes.append({node.accu_var: Slot(number, _lazy(number, init))})
        body = self.compile(node.result).run
        self.scopes.pop()

        def run(frame: Frame) -> Value:
            frame[number] = UNSET
            return body(frame)

        return run

    def fold(self, node: Comprehension, ranged: Run, slots: tuple[int, int], variables: dict[str, Slot]) -> Run:
        """Code for a comprehension without a loop of its own, step by step. The first error ends it."""
        init = self.compile(node.accu_init).run
        number = self.new_slot()
        self.scopes.append({node.accu_var: Slot(number)})
        self.scopes.append(variables)
        condition, step = self.compile(node.condition).run, self.compile(node.step).run
        self.scopes.pop()
        result = self.compile(node.result).run
        self.scopes.pop()
        elements = pairs(ranged) if slots[1] else singles(ranged)
        first, second = slots

        def run(frame: Frame) -> Value:
            accumulator = init(frame)
            for one, other in elements(frame):
                frame[number] = accumulator
                frame[first] = one
                if second:
                    frame[second] = other
                if condition(frame) is not True:
                    break
                accumulator = step(frame)
            frame[number] = accumulator
            return result(frame)

        return run


def _lazy(number: int, compute: Run) -> Run:
    def read(frame: Frame) -> Value:
        value = frame[number]
        if value is UNSET:
            value = frame[number] = compute(frame)
        return value

    return read


# Logic. An error is absorbed where the other operand decides alone.


def _unknown(name: str) -> Run:
    def run(_frame: Frame) -> Value:
        raise EvaluationError(f"no such attribute(s): {name}")

    return run


def flatten(node: Node, function: str) -> list[Node]:
    """The terms of a chain of one logical operator, left to right."""
    if isinstance(node, Call) and node.function == function:
        return [term for arg in node.args for term in flatten(arg, function)]
    return [node]


def all_of(terms: list[Run]) -> Run:
    """Conjunction of any number of terms."""

    def run(frame: Frame) -> bool:
        error: EvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
            except EvaluationError as caught:
                error = error or caught
                continue
            if value is False:
                return False
            if value is not True:
                error = error or EvaluationError("no such overload")
        if error is not None:
            raise error
        return True

    return run


def any_of(terms: list[Run]) -> Run:
    """Disjunction of any number of terms."""

    def run(frame: Frame) -> bool:
        error: EvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
            except EvaluationError as caught:
                error = error or caught
                continue
            if value is True:
                return True
            if value is not False:
                error = error or EvaluationError("no such overload")
        if error is not None:
            raise error
        return False

    return run


def choose(condition: Run, truthy: Run, falsy: Run) -> Run:
    """The conditional operator."""

    def run(frame: Frame) -> Value:
        value = condition(frame)
        if value is True:
            return truthy(frame)
        if value is False:
            return falsy(frame)
        raise no_such_overload()

    return run


def not_strictly_false(operand: Run) -> Run:
    """True unless the operand is false: an error counts as true."""

    def run(frame: Frame) -> bool:
        try:
            return operand(frame) is not False
        except EvaluationError:
            return True

    return run


def _alternative(optional: Run, other: Run, function: str) -> Run:
    whole = function == "or"

    def run(frame: Frame) -> Value:
        value = optional(frame)
        if value.__class__ is not Optional:
            raise no_such_overload(function, value)
        if value.present:
            return value if whole else value.value
        return other(frame)

    return run


# Paths and calls


def _is_text(node: Node) -> bool:
    return isinstance(node, Literal) and node.value.__class__ is str


def _read(slot: int, keys: list[str]) -> Run:
    if len(keys) == 1:
        (first,) = keys

        def one(frame: Frame) -> Value:
            try:
                return frame[slot][first]
            except KeyError:
                raise no_such_key(first) from None

        return one
    if len(keys) == 2:
        first, second = keys

        def two(frame: Frame) -> Value:
            try:
                return frame[slot][first][second]
            except KeyError as error:
                raise no_such_key(error.args[0]) from None

        return two
    first, second, third = keys

    def three(frame: Frame) -> Value:
        try:
            return frame[slot][first][second][third]
        except KeyError as error:
            raise no_such_key(error.args[0]) from None

    return three


def _invoke(impl: Callable[..., Any], codes: list[Code]) -> Run:
    runs = [code.run for code in codes]
    if len(runs) == 1:
        (only,) = runs
        return lambda frame: impl(only(frame))
    if len(runs) == 2:
        first, second = runs
        if codes[1].constant:
            value = codes[1].value
            return lambda frame: impl(first(frame), value)
        return lambda frame: impl(first(frame), second(frame))
    return lambda frame: impl(*[run(frame) for run in runs])


def _equal(left: Code, right: Code, left_type: Any, right_type: Any) -> Run:
    one, other = left.run, right.run
    if is_exact(left_type) and left_type == right_type and left_type.kind in _COMPARABLE:
        if right.constant:
            known = right.value
            return lambda frame: one(frame) == known
        return lambda frame: one(frame) == other(frame)
    if right.constant and right.value.__class__ in (str, int):
        value, kind = right.value, right.value.__class__

        def run(frame: Frame) -> bool:
            found = one(frame)
            return found == value if found.__class__ is kind else equals(found, value)

        return run
    return lambda frame: equals(one(frame), other(frame))


def _compare(function: str, codes: list[Code], types: Sequence[Any]) -> Run:
    left, right = codes[0].run, codes[1].run
    compare = _ORDER[function]
    same = is_exact(types[0]) and types[0] == types[1] and types[0].kind in _ORDERED
    if not same:
        if codes[1].constant and codes[1].value.__class__ in NUMBERS:
            return _compare_number(function, left, codes[1].value)
        return lambda frame: compare(left(frame), right(frame))
    if function == "_<_":
        return lambda frame: left(frame) < right(frame)
    if function == "_<=_":
        return lambda frame: left(frame) <= right(frame)
    if function == "_>_":
        return lambda frame: left(frame) > right(frame)
    return lambda frame: left(frame) >= right(frame)


def _compare_number(function: str, left: Run, number: Value) -> Run:
    compare = _ORDER[function]
    plain = {"_<_": "__gt__", "_<=_": "__ge__", "_>_": "__lt__", "_>=_": "__le__"}[function]
    # `number < value` for `value > number`: a method bound to the constant saves looking at both classes.
    reversed_compare: Callable[[Any], Any] = getattr(number, plain)

    def run(frame: Frame) -> bool:
        value = left(frame)
        if value.__class__ is number.__class__:
            return bool(reversed_compare(value))
        return compare(value, number)

    return run


def _in_constant(element: Run, container: Value) -> Run | None:
    """Membership in a constant list of strings, as a set."""
    if not isinstance(container, list) or any(item.__class__ is not str for item in container):
        return None
    members = frozenset(container)

    def run(frame: Frame) -> bool:
        value = element(frame)
        return value.__class__ is str and value in members

    return run


# Literals


def _optional(value: Value) -> Optional:
    if value.__class__ is not Optional:
        raise EvaluationError(f"cannot initialize optional entry from non-optional value {value!r}")
    found: Optional = value
    return found


def _list_with_optionals(runs: list[Run], optional: frozenset[int]) -> Run:
    def build(frame: Frame) -> list[Value]:
        made: list[Value] = []
        for position, run in enumerate(runs):
            value = run(frame)
            if position not in optional:
                made.append(value)
            elif _optional(value).present:
                made.append(value.value)
        return made

    return build


def _build_map(entries: list[tuple[Run, Run, bool]]) -> Run:
    def build(frame: Frame) -> dict[Any, Value]:
        made: dict[Any, Value] = {}
        for key_run, value_run, optional in entries:
            key = map_key(key_run(frame))
            value = value_run(frame)
            if optional:
                if not _optional(value).present:
                    continue
                value = value.value
            if key in made:
                raise EvaluationError(f"Failed with repeated key: {key}")
            made[key] = value
        return made

    return build


# Loops


def singles(ranged: Run) -> Callable[[Frame], Any]:
    """The visited elements, each with a second value that nobody uses."""
    return lambda frame: ((element, None) for element in iterate(ranged(frame)))


def pairs(ranged: Run) -> Callable[[Frame], Any]:
    """The visited pairs."""
    return lambda frame: iterate_pairs(ranged(frame))


def _loop(macro: str, ranged: Run, slots: tuple[int, int], predicate: Run | None, transform: Run | None) -> Run:
    first, second = slots

    def visit(frame: Frame) -> Any:
        if second:
            for one, other in iterate_pairs(ranged(frame)):
                frame[first] = one
                frame[second] = other
                yield
        else:
            for element in iterate(ranged(frame)):
                frame[first] = element
                yield

    if macro == "map":
        assert transform is not None
        return _collect(visit, predicate, transform)
    assert predicate is not None
    if macro == "exists_one":
        return _count_one(visit, predicate)
    return _quantify(visit, predicate, decisive=macro == "exists")


def _quantify(visit: Callable[[Frame], Any], predicate: Run, decisive: bool) -> Run:
    def run(frame: Frame) -> bool:
        error: EvaluationError | None = None
        for _ in visit(frame):
            try:
                value = predicate(frame)
            except EvaluationError as caught:
                error = error or caught
                continue
            if value is decisive:
                return bool(decisive)
            if value.__class__ is not bool:
                error = error or EvaluationError("no such overload")
        if error is not None:
            raise error
        return not decisive

    return run


def _count_one(visit: Callable[[Frame], Any], predicate: Run) -> Run:
    def run(frame: Frame) -> bool:
        found = 0
        for _ in visit(frame):
            value = predicate(frame)
            if value is True:
                found += 1
            elif value is not False:
                raise no_such_overload()
        return found == 1

    return run


def _collect(visit: Callable[[Frame], Any], predicate: Run | None, transform: Run) -> Run:
    def run(frame: Frame) -> list[Value]:
        made: list[Value] = []
        for _ in visit(frame):
            if predicate is not None:
                chosen = predicate(frame)
                if chosen is False:
                    continue
                if chosen is not True:
                    raise no_such_overload()
            made.append(transform(frame))
        return made

    return run
