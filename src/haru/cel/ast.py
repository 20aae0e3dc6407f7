"""The syntax tree. Macros are already expanded when a tree exists; a comprehension remembers which macro it was.

Nodes are mutable on purpose: the checker writes the deduced `type`, the resolved `name` of a variable and the
possible `overloads` of a call into them, and every later stage (cost estimate, compiler) reads them there. `offset`
is a place in the source text: of the operator, the opening bracket, the dot of a selection, or the start of a literal
or name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from haru.cel.overloads import Overload
from haru.cel.types import Type


class Node:
    """Base of all nodes: a place, and after checking a type."""

    __slots__ = ("offset", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.type: Type | None = None

    def children(self) -> Iterator[Node]:
        """The nodes directly below."""
        return iter(())


class Literal(Node):
    """A constant. Its `value` is a runtime value."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:
        super().__init__(offset)
        self.value = value


class Ident(Node):
    """A name. After checking, `name` is fully resolved; `constant` is set where it names a type."""

    __slots__ = ("constant", "local", "name")

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name
        self.local = False
        self.constant: Any = None


class Select(Node):
    """`operand.field`, or `has(operand.field)` where `test_only`.

    `resolved` is set by the checker where the whole chain is the dotted name of a variable.
    """

    __slots__ = ("field", "operand", "resolved", "test_only")

    def __init__(self, offset: int, operand: Node, field: str, test_only: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.test_only = test_only
        self.resolved: Ident | None = None

    def children(self) -> Iterator[Node]:
        """The operand."""
        yield self.operand


class Call(Node):
    """A function or operator applied to arguments, and to a target where it is a member function."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, offset: int, function: str, args: list[Node], target: Node | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = args
        self.target = target
        self.overloads: tuple[Overload, ...] | None = None

    def children(self) -> Iterator[Node]:
        """The target, if any, then the arguments."""
        if self.target is not None:
            yield self.target
        yield from self.args

    def operands(self) -> list[Node]:
        """Target and arguments in one list, as an implementation takes them."""
        return self.args if self.target is None else [self.target, *self.args]


class ListLiteral(Node):
    """`[a, ?b]`; `optional` holds the indices of the elements with a question mark."""

    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: list[Node], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optional = optional

    def children(self) -> Iterator[Node]:
        """The elements."""
        return iter(self.elements)


class Entry:
    """One `key: value` of a map, or `field: value` of a message (then `key` is a literal)."""

    __slots__ = ("key", "offset", "optional", "value")

    def __init__(self, offset: int, key: Node, value: Node, optional: bool) -> None:
        self.offset = offset
        self.key = key
        self.value = value
        self.optional = optional


class MapLiteral(Node):
    """`{key: value}`."""

    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: list[Entry]) -> None:
        super().__init__(offset)
        self.entries = entries

    def children(self) -> Iterator[Node]:
        """Keys and values in turn."""
        for entry in self.entries:
            yield entry.key
            yield entry.value


class StructLiteral(Node):
    """`Name{field: value}`. After checking, `name` is fully resolved."""

    __slots__ = ("entries", "name")

    def __init__(self, offset: int, name: str, entries: list[Entry]) -> None:
        super().__init__(offset)
        self.name = name
        self.entries = entries

    def children(self) -> Iterator[Node]:
        """The fields' values."""
        for entry in self.entries:
            yield entry.value


class Fold(NamedTuple):
    """How a comprehension accumulates: from `init`, by `step` while `condition` holds, to `result`."""

    init: Node
    condition: Node
    step: Node
    result: Node
    variable: str
    """The accumulator's name."""


class Comprehension(Node):
    """A fold over a list or the keys of a map, which is what every macro but `has` expands to.

    `macro` names the macro where the compiler knows a direct loop for it ("all", "exists", "exists_one", "map",
    "transform_map", "bind"), `predicate` and `transform` are that loop's parts (also reachable through `step`).
    """

    __slots__ = (
        "accu_init",
        "accu_var",
        "condition",
        "iter_range",
        "iter_var",
        "iter_var2",
        "macro",
        "predicate",
        "result",
        "step",
        "transform",
    )

    def __init__(
        self,
        offset: int,
        iter_range: Node,
        names: tuple[str, str],
        fold: Fold,
    ) -> None:
        super().__init__(offset)
        self.iter_range = iter_range
        self.iter_var, self.iter_var2 = names
        self.accu_init, self.condition, self.step, self.result, self.accu_var = fold
        self.macro = ""
        self.predicate: Node | None = None
        self.transform: Node | None = None

    def children(self) -> Iterator[Node]:
        """Range, start value, condition, step and result."""
        yield self.iter_range
        yield self.accu_init
        yield self.condition
        yield self.step
        yield self.result


def walk(root: Node) -> Iterator[Node]:
    """A node and all below it."""
    pending = [root]
    while pending:
        node = pending.pop()
        pending.extend(node.children())
        yield node


def copy(node: Node) -> Node:
    """A deep copy of an unchecked tree, for macros which use an argument twice."""
    if isinstance(node, Literal):
        return Literal(node.offset, node.value)
    if isinstance(node, Ident):
        return Ident(node.offset, node.name)
    if isinstance(node, Select):
        return Select(node.offset, copy(node.operand), node.field, node.test_only)
    if isinstance(node, Call):
        target = None if node.target is None else copy(node.target)
        return Call(node.offset, node.function, [copy(arg) for arg in node.args], target)
    if isinstance(node, ListLiteral):
        return ListLiteral(node.offset, [copy(element) for element in node.elements], node.optional)
    if isinstance(node, MapLiteral):
        return MapLiteral(node.offset, [_copy_entry(entry) for entry in node.entries])
    if isinstance(node, StructLiteral):
        return StructLiteral(node.offset, node.name, [_copy_entry(entry) for entry in node.entries])
    assert isinstance(node, Comprehension)
    return _copy_comprehension(node)


def _copy_entry(entry: Entry) -> Entry:
    return Entry(entry.offset, copy(entry.key), copy(entry.value), entry.optional)


def _copy_comprehension(node: Comprehension) -> Comprehension:
    # Predicate and transform are parts of the step: the copies must be the same parts of the copied step.
    copies: dict[int, Node] = {}

    def twin(original: Node) -> Node:
        made = copy(original)
        _pair(original, made, copies)
        return made

    result = Comprehension(
        node.offset,
        twin(node.iter_range),
        (node.iter_var, node.iter_var2),
        Fold(twin(node.accu_init), twin(node.condition), twin(node.step), twin(node.result), node.accu_var),
    )
    result.macro = node.macro
    result.predicate = None if node.predicate is None else copies[id(node.predicate)]
    result.transform = None if node.transform is None else copies[id(node.transform)]
    return result


def _pair(original: Node, made: Node, copies: dict[int, Node]) -> None:
    copies[id(original)] = made
    for left, right in zip(original.children(), made.children(), strict=True):
        _pair(left, right, copies)


def qualified_name(node: Node) -> str | None:
    """`a.b.c` as one name, where the node is nothing but names."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None
