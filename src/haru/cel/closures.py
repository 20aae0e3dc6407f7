"""The pieces that compiled code is made of: closures for operators, paths, calls and literals.

Each takes the closures of its operands (`Code` or `Run`) and answers one that takes a frame. See `compiler`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from haru.cel.ast import Call, Literal, Node
from haru.cel.errors import EvaluationError
from haru.cel.libraries import arithmetic
from haru.cel.operations import Frame, Run, is_exact
from haru.cel.values import (
    NUMBERS,
    Optional,
    Value,
    contains,
    equals,
    find_field,
    map_key,
    no_such_key,
    no_such_overload,
    select,
)

UNSET: Any = object()
"""In a slot: a `cel.bind` variable whose value nobody has asked for yet."""

ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": arithmetic.less,
    "_<=_": arithmetic.less_equal,
    "_>_": arithmetic.greater,
    "_>=_": arithmetic.greater_equal,
}
_DIRECT: dict[str, Callable[[Any, Any], bool]] = {"_<_": lt, "_<=_": le, "_>_": gt, "_>=_": ge}
"""The same for two values of one class."""
_ORDERED = frozenset(("int", "uint", "double", "string", "bytes"))
_COMPARABLE = frozenset(("int", "uint", "string", "bytes", "bool", "timestamp", "duration"))


class Code(NamedTuple):
    """A compiled node. A constant's `value` is known; a chain of `&&` or `||` also has its `terms`."""

    run: Run
    constant: bool = False
    value: Any = None
    terms: Terms | None = None


class Terms(NamedTuple):
    """The operands of a chain of one logical operator, each with its node."""

    conjunction: bool
    codes: list[Code]
    nodes: list[Node]


def constant(value: Value) -> Code:
    """Code for a value that is known."""
    return Code(lambda _frame: value, True, value)


def lazy(number: int, compute: Run) -> Run:
    """Reads a variable that is computed when it is first needed."""

    def read(frame: Frame) -> Value:
        value = frame[number]
        if value is UNSET:
            value = frame[number] = compute(frame)
        return value

    return read


# Logic. An error is absorbed where the other operand decides alone.


def unknown(name: str) -> Run:
    """A name that means nothing: an error, when it is evaluated."""

    def run(_frame: Frame) -> Value:
        raise EvaluationError(f"no such attribute(s): {name}")

    return run


def flatten(node: Node, function: str) -> list[Node]:
    """The terms of a chain of one logical operator, left to right."""
    if isinstance(node, Call) and node.function == function:
        return [term for arg in node.args for term in flatten(arg, function)]
    return [node]


def junction(terms: list[Run], decisive: bool) -> Run:
    """Conjunction (`decisive` is False) or disjunction (True) of any number of terms."""

    def run(frame: Frame) -> bool:
        error: EvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
            except EvaluationError as caught:
                error = error or caught
                continue
            if value is decisive:
                return bool(decisive)
            if value.__class__ is not bool:
                error = error or EvaluationError("no such overload")
        if error is not None:
            try:
                raise error
            finally:
                del error  # knows this frame, which must not hold it
        return not decisive

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


def alternative(optional: Run, other: Run, function: str) -> Run:
    """`or` and `orValue`: the other operand is only evaluated where it is needed."""
    whole = function == "or"

    def run(frame: Frame) -> Value:
        value = optional(frame)
        if value.__class__ is not Optional:
            raise no_such_overload(function, value)
        if value.present:
            return value if whole else value.value
        return other(frame)

    return run


def optional_fields_of(node: Node) -> tuple[Node, list[str]]:
    """Return the base of `base.?a.?b`, and the names of the fields."""
    fields: list[str] = []
    while isinstance(node, Call) and node.function == "_?._" and is_text(node.args[1]):
        fields.append(node.args[1].value)  # type: ignore[attr-defined]
        node = node.args[0]
    return node, fields[::-1]


def optional_fields(base: Run, fields: list[str], other: Run) -> Run:
    """`base.?a.?b.orValue(other)` without an optional in between; nearly all fields are of plain dicts."""

    def run(frame: Frame) -> Value:
        value = base(frame)
        for number, field in enumerate(fields):
            if value.__class__ is not dict:
                found = value
                for rest in fields[number:]:
                    found = find_field(found, rest)
                return found.value if found.present else other(frame)
            if field not in value:
                return other(frame)
            value = value[field]
        return value

    return run


# Paths and calls


def is_text(node: Node) -> bool:
    """Whether a node is a string."""
    return isinstance(node, Literal) and node.value.__class__ is str


def read_path(slot: int, keys: list[str]) -> Run:
    """Constant keys below a variable."""
    if len(keys) == 1:
        (first,) = keys

        def one(frame: Frame) -> Value:
            try:
                return frame[slot][first]
            except _NOT_THERE:
                return _step_by_step(frame[slot], keys)

        return one
    if len(keys) == 2:
        first, second = keys

        def two(frame: Frame) -> Value:
            try:
                return frame[slot][first][second]
            except _NOT_THERE:
                return _step_by_step(frame[slot], keys)

        return two
    first, second, third = keys

    def three(frame: Frame) -> Value:
        try:
            return frame[slot][first][second][third]
        except _NOT_THERE:
            return _step_by_step(frame[slot], keys)

    return three


_NOT_THERE = (KeyError, TypeError)
"""What a lookup raises where there is no such key, or null instead of a map: an object that is not there at all."""


def _step_by_step(value: Value, keys: list[str]) -> Value:
    for key in keys:
        value = select(value, key)
    return value


def read_fields(base: Run, fields: list[str]) -> Run:
    """Selections below any value. Nearly all are of fields of plain dicts."""

    def run(frame: Frame) -> Value:
        value = base(frame)
        for field in fields:
            if value.__class__ is not dict:
                value = select(value, field)
                continue
            try:
                value = value[field]
            except KeyError:
                raise no_such_key(field) from None
        return value

    return run


def invoke(impl: Callable[..., Any], codes: list[Code]) -> Run:
    """A function applied to operands."""
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


def equal(left: Code, right: Code, left_type: Any, right_type: Any) -> Run:
    """The operator `==`."""
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


def compare(function: str, codes: Sequence[Code], types: Sequence[Any]) -> Run:
    """An operator of order."""
    left, right = codes[0].run, codes[1].run
    order = ORDER[function]
    same = is_exact(types[0]) and types[0] == types[1] and types[0].kind in _ORDERED
    if not same:
        if codes[1].constant and codes[1].value.__class__ in NUMBERS:
            return _compare_number(function, left, codes[1].value)
        return lambda frame: order(left(frame), right(frame))
    if codes[1].constant:
        direct, known = _DIRECT[function], codes[1].value
        return lambda frame: direct(left(frame), known)
    if function == "_<_":
        return lambda frame: left(frame) < right(frame)
    if function == "_<=_":
        return lambda frame: left(frame) <= right(frame)
    if function == "_>_":
        return lambda frame: left(frame) > right(frame)
    return lambda frame: left(frame) >= right(frame)


def _compare_number(function: str, left: Run, number: Value) -> Run:
    order, direct, kind = ORDER[function], _DIRECT[function], number.__class__

    def run(frame: Frame) -> bool:
        value = left(frame)
        return direct(value, number) if value.__class__ is kind else order(value, number)

    return run


def in_constant(element: Run, container: Value) -> Run | None:
    """Membership in a constant list of strings or of integers, as a set."""
    if not isinstance(container, list):
        return None
    kinds = {item.__class__ for item in container}
    if not kinds <= {str} and kinds != {int}:
        return None
    members = frozenset(container)
    kind = int if kinds == {int} else str

    def run(frame: Frame) -> bool:
        value = element(frame)
        if value.__class__ is kind:
            return value in members
        return kind is int and contains(value, container)  # 1.0 is in [1]

    return run


# Literals


def require_optional(value: Value) -> Optional:
    """The value of an element or entry with a question mark."""
    if value.__class__ is not Optional:
        raise EvaluationError(f"cannot initialize optional entry from non-optional value {value!r}")
    found: Optional = value
    return found


def list_with_optionals(runs: list[Run], optional: frozenset[int]) -> Run:
    """A list with elements that may be absent."""

    def build(frame: Frame) -> list[Value]:
        made: list[Value] = []
        for position, run in enumerate(runs):
            value = run(frame)
            if position not in optional:
                made.append(value)
            elif require_optional(value).present:
                made.append(value.value)
        return made

    return build


def _lax_key(value: Value) -> Any:
    return value if value is None or value.__class__ is float else map_key(value)


def build_map(entries: list[tuple[Run, Run, bool]], strict: bool = True) -> Run:
    """A map. Keys must be different and of a suitable type, unless it is as lax as Kubernetes is."""
    encode = map_key if strict else _lax_key

    def build(frame: Frame) -> dict[Any, Value]:
        made: dict[Any, Value] = {}
        for key_run, value_run, optional in entries:
            key = encode(key_run(frame))
            value = value_run(frame)
            if optional:
                if not require_optional(value).present:
                    continue
                value = value.value
            if strict and key in made:
                raise EvaluationError(f"Failed with repeated key: {key}")
            made[key] = value
        return made

    return build
