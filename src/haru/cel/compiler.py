"""The compiler: a checked tree becomes one Python closure, made of closures.

A closure takes a frame: a list with a slot per variable (slot 0 belongs to the cost meter, see `metering`). What the
static types prove is not tested again while the expression runs; constants are computed once, here; a path such as
`device.attributes["d"].id` is one closure. This compiler counts no costs: `metering` has the one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from haru.cel.ast import Call, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral
from haru.cel.closures import (
    ORDER,
    UNSET,
    Code,
    Terms,
    alternative,
    build_map,
    choose,
    compare,
    constant,
    equal,
    flatten,
    in_constant,
    invoke,
    is_text,
    junction,
    lazy,
    list_with_optionals,
    not_strictly_false,
    optional_fields,
    optional_fields_of,
    read_fields,
    read_path,
    require_optional,
    unknown,
)
from haru.cel.environment import Environment
from haru.cel.errors import EvaluationError
from haru.cel.libraries import arithmetic
from haru.cel.loops import loop, pairs, singles
from haru.cel.operations import Frame, Run, dispatcher, fits
from haru.cel.overloads import Overload
from haru.cel.types import struct
from haru.cel.values import (
    Struct,
    Value,
    contains,
    find,
    find_field,
    has_field,
    has_strictly,
    index,
    select_strictly,
)


class Slot(NamedTuple):
    """Where a variable lives, and how it is read where that is more than looking there."""

    number: int
    read: Run | None = None


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
            return Code(unknown(node.name))
        number, read = found
        return Code(read or (lambda frame: frame[number]))

    def select(self, node: Select) -> Code:
        """Code for a selection or a presence test."""
        if node.resolved is not None:
            return self.ident(node.resolved)
        field = node.field
        if node.test_only:
            operand = self.compile(node.operand).run
            test = has_field if self.environment.kubernetes else has_strictly
            return Code(lambda frame: test(operand(frame), field))
        return self.path(node) or self.general_select(node)

    def general_select(self, node: Select) -> Code:
        """Code for a selection on any value."""
        if not self.environment.kubernetes:
            operand, field = self.compile(node.operand).run, node.field
            return Code(lambda frame: select_strictly(operand(frame), field))
        fields = [node.field]
        below = node.operand
        while isinstance(below, Select) and not below.test_only and below.resolved is None:
            fields.append(below.field)
            below = below.operand
        return Code(read_fields(self.compile(below).run, fields[::-1]))

    def path(self, node: Node) -> Code | None:
        """Code for constant keys below a variable, where the static types say that there are maps all the way."""
        keys: list[str] = []
        while not isinstance(node, Ident):
            if isinstance(node, Select) and not node.test_only and node.resolved is None:
                keys.append(node.field)
                node = node.operand
            elif isinstance(node, Call) and node.function == "_[_]" and is_text(node.args[1]):
                keys.append(node.args[1].value)  # type: ignore[attr-defined]
                node = node.args[0]
            else:
                return None
            if node.type is None or node.type.kind not in ("map", "struct"):
                return None
        found = None if node.constant is not None else self.slot(node)
        if found is None or found.read is not None or len(keys) > 3:
            return None
        return Code(self.read(found.number, keys[::-1]))

    def read(self, number: int, keys: list[str]) -> Run:
        """How constant keys below a variable are read."""
        return read_path(number, keys)

    def list_literal(self, node: ListLiteral) -> Code:
        """Code for a list."""
        codes = [self.compile(element) for element in node.elements]
        if node.optional:
            return Code(list_with_optionals([code.run for code in codes], node.optional))
        if all(code.constant for code in codes):
            return constant([code.value for code in codes])
        runs = [code.run for code in codes]
        return Code(lambda frame: [run(frame) for run in runs])

    def map_literal(self, node: MapLiteral) -> Code:
        """Code for a map."""
        entries = [(self.compile(entry.key), self.compile(entry.value), entry.optional) for entry in node.entries]
        runs = [(key.run, value.run, optional) for key, value, optional in entries]
        build = build_map(runs, strict=not self.environment.kubernetes)
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
                elif require_optional(value).present:
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
        if function in ("_&&_", "_||_"):
            nodes = flatten(node, function)
            codes = [self.compile(term) for term in nodes]
            run = junction([code.run for code in codes], decisive=function == "_||_")
            return Code(run, terms=Terms(function == "_&&_", codes, nodes))
        if function == "_?_:_":
            return Code(choose(*(self.compile(arg).run for arg in node.args)))
        if function == "@not_strictly_false":
            return Code(not_strictly_false(self.compile(node.args[0]).run))
        if function == "_[_]":
            found = self.path(node)
            if found is not None:
                return found
        if function == "orValue" and node.target is not None and len(node.args) == 1:
            base, fields = optional_fields_of(node.target)
            if fields:
                return Code(optional_fields(self.compile(base).run, fields, self.compile(node.args[0]).run))
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
            return self.equal(codes, types)
        if function == "_!=_":
            same = self.equal(codes, types)
            return lambda frame: not same(frame)
        if function in ORDER:
            return self.compare(function, codes, types)
        if function == "_?._":
            operand, field = codes[0].run, codes[1].value
            return lambda frame: find_field(operand(frame), field)
        if function == "@in" and codes[1].constant:
            found = in_constant(codes[0].run, codes[1].value)
            if found is not None:
                return found
        if function in ("or", "orValue") and len(codes) == 2 and node.target is not None:
            return alternative(codes[0].run, codes[1].run, function)
        return invoke(self.implementation(node, types), codes)

    def equal(self, codes: Sequence[Code], types: Sequence[Any]) -> Run:
        """Code for the operator `==`."""
        return equal(codes[0], codes[1], types[0], types[1])

    def compare(self, function: str, codes: Sequence[Code], types: Sequence[Any]) -> Run:
        """Code for an operator of order."""
        return compare(function, codes, types)

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
            return loop(node.macro, ranged, slots, predicate, transform)
        return self.fold(node, ranged, slots, variables)

    def bind(self, node: Comprehension) -> Run:
        """Code for `cel.bind`: the value is computed when it is first needed, if ever."""
        init = self.compile(node.accu_init).run
        number = self.new_slot()
        self.scopes.append({node.accu_var: Slot(number, lazy(number, init))})
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
