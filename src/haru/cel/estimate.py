"""What an expression can cost at worst, before it runs: ranges of sizes and costs, computed over the checked tree.

The rules are cel-go's with Kubernetes' additions, because API validation refuses expressions by this number, and an
expression must not be refused here and accepted there. Sizes of inputs come from the environment (`SizeOf`: by path, as
`("device", "attributes", "@values")`); whatever has no known size is unbounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from haru.cel.ast import Call, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral
from haru.cel.macros import ACCUMULATOR
from haru.cel.ranges import (
    LIST_COST,
    MAP_COST,
    NOTHING,
    ONE,
    REGEX_LENGTH,
    STRUCT_COST,
    TRAVERSAL,
    UNBOUNDED,
    UNKNOWN,
    Estimate,
    Estimator,
    Operand,
    Range,
    SizeOf,
    Steps,
    exactly,
)
from haru.cel.types import Type, is_optional

_NOWHERE = Steps()


class Entries(NamedTuple):
    """Sizes of a list's or map's elements."""

    kind: str
    key: Range
    value: Range


class _Local(NamedTuple):
    path: Steps
    size: Range | None
    entries: Entries | None


def estimate(
    root: Node,
    size_of: SizeOf,
    functions: Mapping[str, Estimator],
    overloads: Mapping[str, Estimator],
    size_of_result: Callable[[Node], Range | None] = lambda node: None,
) -> Range:
    """The cost of a checked tree. Estimators are looked up by overload first, then by function.

    `size_of_result` is asked of nodes whose size is unknown otherwise; the reference knows nothing of these.
    """
    return _Walk(size_of, functions, overloads, size_of_result).cost(root)


class _Walk:
    def __init__(
        self,
        size_of: SizeOf,
        functions: Mapping[str, Estimator],
        overloads: Mapping[str, Estimator],
        size_of_result: Callable[[Node], Range | None],
    ) -> None:
        self.size_of = size_of
        self.size_of_result = size_of_result
        self.functions = functions
        self.overloads = overloads
        self.paths: dict[int, Steps] = {}
        self.sizes: dict[int, Range] = {}
        self.entries: dict[int, Entries] = {}
        self.locals: dict[str, list[_Local]] = {}

    # What is known of a node

    def local(self, name: str) -> _Local | None:
        found = self.locals.get(name)
        return found[-1] if found else None

    def path(self, node: Node) -> Steps:
        if self.locals and isinstance(node, Ident):
            found = self.local(node.name)
            if found is not None:
                return found.path
        return self.paths.get(id(node), _NOWHERE)

    def size(self, node: Node) -> Range | None:
        known = self.sizes.get(id(node))
        if known is None:
            known = _literal_size(node)
        if known is not None:
            return known
        path = self.path(node).path()
        declared = self.size_of(path) if path else None
        if declared is not None:
            self.sizes[id(node)] = declared
            return declared
        if _is_scalar(_type(node)):
            return ONE
        found = self.local(node.name) if isinstance(node, Ident) else None
        return self.size_of_result(node) if found is None else found.size

    def size_or_unknown(self, node: Node) -> Range:
        return self.size(node) or UNKNOWN

    def entry_sizes(self, node: Node) -> Entries | None:
        known = self.entries.get(id(node))
        if known is not None:
            return known
        found = self.local(node.name) if isinstance(node, Ident) else None
        return None if found is None else found.entries

    def operand(self, node: Node, size: Range | None) -> Operand:
        path = self.path(node).path()
        if path and path[0] == ACCUMULATOR:
            path = ()
        return Operand(node, path, _type(node), size, self.size_of)

    def copy_sizes(self, target: Node, source: Node) -> None:
        size, entries = self.size(source), self.entry_sizes(source)
        if size is not None:
            self.sizes[id(target)] = size
        if entries is not None:
            self.entries[id(target)] = entries

    # Costs

    def cost(self, node: Node) -> Range:
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, Literal):
            return NOTHING
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Ident):
            return self.ident(node)
        if isinstance(node, ListLiteral):
            return self.list_literal(node)
        if isinstance(node, MapLiteral):
            return self.map_literal(node)
        if isinstance(node, StructLiteral):
            return self.total([entry.value for entry in node.entries]).plus(exactly(STRUCT_COST))
        assert isinstance(node, Comprehension)
        return self.bind(node) if node.macro == "bind" else self.comprehension(node)

    def total(self, nodes: list[Node]) -> Range:
        result = NOTHING
        for node in nodes:
            result = result.plus(self.cost(node))
        return result

    def ident(self, node: Ident) -> Range:
        found = self.local(node.name)
        self.paths[id(node)] = Steps(node.name) if found is None else found.path
        return ONE

    def select(self, node: Select) -> Range:
        if node.resolved is not None:
            self.paths[id(node)] = Steps(node.resolved.name)
            return ONE
        result = self.cost(node.operand)
        if node.test_only:
            return result
        if _type(node.operand).kind in ("map", "struct", "param"):
            result = result.plus(ONE)
        self.paths[id(node)] = self.path(node.operand).then(node.field)
        return result

    def list_literal(self, node: ListLiteral) -> Range:
        result = self.total(node.elements)
        sizes = [self.size_or_unknown(element) for element in node.elements]
        self.entries[id(node)] = Entries("list", ONE, _span(sizes))
        return result.plus(exactly(LIST_COST))

    def map_literal(self, node: MapLiteral) -> Range:
        result = self.total([part for entry in node.entries for part in (entry.key, entry.value)])
        keys = [self.size_or_unknown(entry.key) for entry in node.entries]
        values = [self.size_or_unknown(entry.value) for entry in node.entries]
        self.entries[id(node)] = Entries("map", _span(keys), _span(values))
        return result.plus(exactly(MAP_COST))

    # Calls

    def call(self, node: Call) -> Range:
        if node.function == "dyn":
            result = self.cost(node.args[0]).plus(ONE)
            self.copy_sizes(node, node.args[0])
            return result
        # Sizes are taken before the next operand is looked at, paths after the last: see `Steps`.
        costs, sizes = [], []
        for arg in node.args:
            costs.append(self.cost(arg))
            sizes.append(self.size(arg))
        if not node.overloads:
            return NOTHING
        result, target = NOTHING, None
        if node.target is not None:
            result = self.cost(node.target)
            target = self.operand(node.target, self.size(node.target))
        args = [self.operand(arg, size) for arg, size in zip(node.args, sizes, strict=True)]
        call_cost, size = self.alternatives(node, target, args, costs)
        if size is not None:
            self.sizes[id(node)] = size
        return result.plus(call_cost)

    def alternatives(
        self, node: Call, target: Operand | None, args: list[Operand], arg_costs: list[Range]
    ) -> tuple[Range, Range | None]:
        """Cost and result size over all overloads that may be meant."""
        cost: Range | None = None
        size: Range | None = None
        for overload in node.overloads or ():
            found = self.function_cost(node, overload.id, target, args, arg_costs)
            cost = found.cost if cost is None else cost.union(found.cost)
            if found.size is not None:
                size = found.size if size is None else size.union(found.size)
            if overload.id in ("index_list", "index_map"):
                entries = self.entry_sizes(node.args[0])
                size = None if entries is None else entries.value
                step = "@items" if overload.id == "index_list" else "@values"
                self.paths[id(node)] = self.path(node.args[0]).then(step)
            if size is None:
                size = self.size(node)
        return cost or Range(UNBOUNDED, 0), size

    def function_cost(
        self, node: Call, overload: str, target: Operand | None, args: list[Operand], arg_costs: list[Range]
    ) -> Estimate:
        arguments = NOTHING
        for cost in arg_costs:
            arguments = arguments.plus(cost)
        for estimator in (self.overloads.get(overload), self.functions.get(node.function)):
            found = None if estimator is None else estimator(overload, target, args)
            if found is not None:
                return found if arguments is NOTHING else Estimate(found.cost.plus(arguments), found.size)
        if overload in ("logical_or", "logical_and"):
            left, right = arg_costs
            return Estimate(Range(left.low, left.plus(right).high))
        if overload == "conditional":
            return self.conditional(node, args, arg_costs)
        if overload in ("add_string", "add_bytes", "add_list"):
            return self.concatenation(node, overload, args, arguments)
        general = _general(overload, target, args)
        return Estimate(general.cost.plus(arguments), general.size)

    def conditional(self, node: Call, args: list[Operand], arg_costs: list[Range]) -> Estimate:
        size = _size(args[1]).union(_size(args[2]))
        entries = _union(self.entry_sizes(node.args[1]), self.entry_sizes(node.args[2]))
        if entries is not None:
            self.entries[id(node)] = entries
        return Estimate(arg_costs[0].plus(arg_costs[1].union(arg_costs[2])), size)

    def concatenation(self, node: Call, overload: str, args: list[Operand], arguments: Range) -> Estimate:
        size = _size(args[0]).plus(_size(args[1]))
        entries = _union(self.entry_sizes(node.args[0]), self.entry_sizes(node.args[1]))
        if entries is not None:
            self.entries[id(node)] = entries
        cost = ONE if overload == "add_list" else size.scaled(TRAVERSAL)
        return Estimate(cost.plus(arguments), size)

    # Comprehensions

    def push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def pop(self, name: str) -> None:
        self.locals[name].pop()

    def bound(self, node: Node) -> _Local:
        return _Local(self.path(node), self.size(node), self.entry_sizes(node))

    def element(self, ranged: Node, value: bool | None) -> _Local:
        """A variable over the keys or indices (False), the values (True), or what a single variable visits (None)."""
        entries = self.entry_sizes(ranged)
        kind = _type(ranged).kind if entries is None else entries.kind
        if value is None:
            value = kind == "list"
        if value:
            step = "@items" if kind == "list" else "@values"
        else:
            step = "@indices" if kind == "list" else "@keys"
        size = None if entries is None else (entries.value if value else entries.key)
        return _Local(self.path(ranged).then(step), size, None)

    def comprehension(self, node: Comprehension) -> Range:
        result = self.cost(node.iter_range).plus(self.cost(node.accu_init))
        self.push(node.accu_var, self.bound(node.accu_init))
        if node.iter_var2:
            self.push(node.iter_var, self.element(node.iter_range, value=False))
            self.push(node.iter_var2, self.element(node.iter_range, value=True))
        else:
            self.push(node.iter_var, self.element(node.iter_range, value=None))
        condition, step = self.cost(node.condition), self.cost(node.step)
        self.pop(node.iter_var)
        if node.iter_var2:
            self.pop(node.iter_var2)
        result = result.plus(self.cost(node.result))
        self.pop(node.accu_var)
        count = self.size_or_unknown(node.iter_range)
        self.remember_result(node, count)
        return result.plus(count.times(step.plus(condition)))

    def remember_result(self, node: Comprehension, count: Range) -> None:
        if isinstance(node.accu_init, Literal):
            size = self.size(node.accu_init)
            if size is not None:
                self.sizes[id(node)] = size
        elif isinstance(node.accu_init, ListLiteral | MapLiteral):
            self.sizes[id(node)] = count
            entries = self.entry_sizes(node.step)
            if entries is not None:
                self.entries[id(node)] = entries

    def bind(self, node: Comprehension) -> Range:
        result = self.cost(node.iter_range).plus(self.cost(node.accu_init))
        self.push(node.accu_var, self.bound(node.accu_init))
        result = result.plus(self.cost(node.result))
        self.pop(node.accu_var)
        self.copy_sizes(node, node.result)
        return result


def _type(node: Node) -> Type:
    assert node.type is not None
    return node.type


def _size(operand: Operand) -> Range:
    # Unlike `size_or_unknown`, does not ask the declarations again: the walk already did.
    return UNKNOWN if operand.size is None else operand.size


def _span(sizes: list[Range]) -> Range:
    result = Range(UNBOUNDED, 0) if sizes else NOTHING
    for size in sizes:
        result = result.union(size)
    return result


def _union(left: Entries | None, right: Entries | None) -> Entries | None:
    if left is None or right is None:
        return None
    return Entries(left.kind, left.key.union(right.key), left.value.union(right.value))


def _is_scalar(static: Type) -> bool:
    if static.kind in ("bool", "double", "duration", "int", "timestamp", "uint"):
        return True
    return is_optional(static) and _is_scalar(static.params[0])


def _literal_size(node: Node) -> Range | None:
    if node.__class__ is Call or node.__class__ is Select:
        return None
    if isinstance(node, Literal):
        return exactly(len(node.value)) if isinstance(node.value, str | bytes) else ONE
    if isinstance(node, ListLiteral):
        return exactly(len(node.elements))
    if isinstance(node, MapLiteral):
        return exactly(len(node.entries))
    return None


_UNIT = Estimate(ONE)
_COMPARED = frozenset(
    (
        *(
            f"{relation}_{kind}"
            for relation in ("less", "less_equals", "greater", "greater_equals")
            for kind in ("string", "bytes")
        ),
        "equals",
        "not_equals",
    )
)


def _general(overload: str, target: Operand | None, args: list[Operand]) -> Estimate:
    """The rules for functions without an estimator of their own."""
    if overload in ("index_map", "index_list"):
        return _UNIT
    if overload == "string_format" and target is not None:
        return Estimate(_size(target).scaled(TRAVERSAL))
    if overload == "string_to_bytes" and len(args) == 1:
        size = _size(args[0])
        return Estimate(size.scaled(TRAVERSAL), Range(size.low, size.high * 4 & UNBOUNDED))
    if overload == "bytes_to_string" and len(args) == 1:
        size = _size(args[0])
        return Estimate(size.scaled(TRAVERSAL), Range(size.low // 4, size.high))
    if overload == "strings_quote" and len(args) == 1:
        size = _size(args[0])
        return Estimate(size.scaled(TRAVERSAL), Range(size.low + 2, size.high * 2 + 2 & UNBOUNDED))
    if overload in ("starts_with_string", "ends_with_string") and len(args) == 1:
        return Estimate(_size(args[0]).scaled(TRAVERSAL))
    if overload == "in_list" and len(args) == 2:
        return Estimate(_size(args[1]).scaled(1))
    if overload == "matches_string" and target is not None and len(args) == 1:
        text = _size(target).plus(ONE).scaled(TRAVERSAL)
        return Estimate(text.times(_size(args[0]).scaled(REGEX_LENGTH)))
    if overload == "contains_string" and target is not None and len(args) == 1:
        return Estimate(_size(target).scaled(TRAVERSAL).times(_size(args[0]).scaled(TRAVERSAL)))
    if overload in _COMPARED:
        most = min(_size(args[0]).high, _size(args[1]).high)
        return Estimate(Range(1 if most > 0 else 0, most).scaled(TRAVERSAL))
    return Estimate(ONE)
