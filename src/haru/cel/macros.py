"""Macros: calls that the parser replaces by other nodes.

A macro gets the place of its call's opening bracket, its target and its arguments, all unexpanded; it answers the
node that takes the call's place, or None where the call is an ordinary one after all. The expansions are those of
cel-go, node by node, because costs are counted on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from haru.cel.ast import Call, Comprehension, Fold, Ident, ListLiteral, Literal, MapLiteral, Node, Select, copy

Macro = Callable[[int, Node | None, list[Node]], Node | None]
MacroTable = Mapping[tuple[str, int, bool], Macro]
"""Macros by name, number of arguments, and whether they are called on a target."""

ACCUMULATOR = "@result"
UNUSED = "#unused"
MAP_INSERT = "cel.@mapInsert"
SORT_BY_KEYS = "@sortByAssociatedKeys"
_SORT_INPUT = "@__sortBy_input__"


class MacroError(Exception):
    """The arguments are not what the macro needs."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def _variable(node: Node, message: str = "argument must be a simple name") -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.offset, message)
    if node.name in (ACCUMULATOR, "__result__"):
        raise MacroError(node.offset, "iteration variable overwrites accumulator variable")
    return node.name


def _two_variables(args: list[Node]) -> tuple[str, str]:
    first, second = _variable(args[0]), _variable(args[1])
    if first == second:
        raise MacroError(args[1].offset, f"duplicate variable name: {first}")
    return first, second


def _accu(at: int) -> Node:
    return Ident(at, ACCUMULATOR)


def _quantifier(kind: str, at: int, target: Node, names: tuple[str, str], predicate: Node) -> Node:
    if kind == "all":
        condition: Node = Call(at, "@not_strictly_false", [_accu(at)])
        step: Node = Call(at, "_&&_", [_accu(at), predicate])
        init, result = Literal(at, True), _accu(at)
    elif kind == "exists":
        condition = Call(at, "@not_strictly_false", [Call(at, "!_", [_accu(at)])])
        step = Call(at, "_||_", [_accu(at), predicate])
        init, result = Literal(at, False), _accu(at)
    else:
        condition = Literal(at, True)
        step = Call(at, "_?_:_", [predicate, Call(at, "_+_", [_accu(at), Literal(at, 1)]), _accu(at)])
        init, result = Literal(at, 0), Call(at, "_==_", [_accu(at), Literal(at, 1)])
    node = Comprehension(at, target, names, Fold(init, condition, step, result, ACCUMULATOR))
    node.macro, node.predicate = kind, predicate
    return node


def _collect(at: int, target: Node, names: tuple[str, str], predicate: Node | None, transform: Node) -> Node:
    step: Node = Call(at, "_+_", [_accu(at), ListLiteral(at, [transform])])
    if predicate is not None:
        step = Call(at, "_?_:_", [predicate, step, _accu(at)])
    fold = Fold(ListLiteral(at, []), Literal(at, True), step, _accu(at), ACCUMULATOR)
    node = Comprehension(at, target, names, fold)
    node.macro, node.predicate, node.transform = "map", predicate, transform
    return node


def _insert(at: int, target: Node, names: tuple[str, str], predicate: Node | None, args: list[Node]) -> Node:
    step: Node = Call(at, MAP_INSERT, [_accu(at), *args])
    if predicate is not None:
        step = Call(at, "_?_:_", [predicate, step, _accu(at)])
    fold = Fold(MapLiteral(at, []), Literal(at, True), step, _accu(at), ACCUMULATOR)
    return Comprehension(at, target, names, fold)


def _has(at: int, target: Node | None, args: list[Node]) -> Node | None:
    operand = args[0]
    if isinstance(operand, Select) and not operand.test_only:
        return Select(at, operand.operand, operand.field, test_only=True)
    raise MacroError(operand.offset, "invalid argument to has() macro")


def _one(kind: str) -> Macro:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node | None:
        assert target is not None
        return _quantifier(kind, at, target, (_variable(args[0]), ""), args[1])

    return expand


def _two(kind: str) -> Macro:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node | None:
        assert target is not None
        return _quantifier(kind, at, target, _two_variables(args), args[2])

    return expand


def _map(at: int, target: Node | None, args: list[Node]) -> Node | None:
    assert target is not None
    name = _variable(args[0], "argument is not an identifier")
    return _collect(at, target, (name, ""), args[1] if len(args) == 3 else None, args[-1])


def _filter(at: int, target: Node | None, args: list[Node]) -> Node | None:
    assert target is not None
    name = _variable(args[0], "argument is not an identifier")
    return _collect(at, target, (name, ""), args[1], args[0])


def _transform_list(at: int, target: Node | None, args: list[Node]) -> Node | None:
    assert target is not None
    return _collect(at, target, _two_variables(args), args[2] if len(args) == 4 else None, args[-1])


def _transform_map(at: int, target: Node | None, args: list[Node]) -> Node | None:
    assert target is not None
    names = _two_variables(args)
    return _insert(at, target, names, args[2] if len(args) == 4 else None, [Ident(at, names[0]), args[-1]])


def _transform_map_entry(at: int, target: Node | None, args: list[Node]) -> Node | None:
    assert target is not None
    return _insert(at, target, _two_variables(args), args[2] if len(args) == 4 else None, [args[-1]])


def _bind_node(at: int, name: str, value: Node, body: Node) -> Comprehension:
    node = Comprehension(
        at, ListLiteral(at, []), (UNUSED, ""), Fold(value, Literal(at, False), Ident(at, name), body, name)
    )
    node.macro = "bind"
    return node


def _is_cel(target: Node | None) -> bool:
    return isinstance(target, Ident) and target.name == "cel"


def _bind(at: int, target: Node | None, args: list[Node]) -> Node | None:
    if not _is_cel(target):
        return None
    if not isinstance(args[0], Ident):
        raise MacroError(args[0].offset, "cel.bind() variable names must be simple identifiers")
    return _bind_node(at, args[0].name, args[1], args[2])


def _optional(flat: bool) -> Macro:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node | None:
        assert target is not None
        if not isinstance(args[0], Ident):
            name = "optFlatMap" if flat else "optMap"
            raise MacroError(args[0].offset, f"{name}() variable name must be a simple identifier")
        value = Call(at, "value", [], copy(target))
        inner: Node = _bind_node(at, args[0].name, value, args[1])
        if not flat:
            inner = Call(at, "optional.of", [inner])
        return Call(at, "_?_:_", [Call(at, "hasValue", [], target), inner, Call(at, "optional.none", [])])

    return expand


def _sort_by(at: int, target: Node | None, args: list[Node]) -> Node | None:
    assert target is not None
    _variable(args[0], f"sortBy() can only be applied to a simple variable name, not {type(args[0]).__name__.lower()}")
    keys = _map(at, Ident(at, _SORT_INPUT), args)
    assert keys is not None
    return _bind_node(at, _SORT_INPUT, target, Call(at, SORT_BY_KEYS, [keys], Ident(at, _SORT_INPUT)))


STANDARD: MacroTable = {
    ("has", 1, False): _has,
    ("all", 2, True): _one("all"),
    ("exists", 2, True): _one("exists"),
    ("exists_one", 2, True): _one("exists_one"),
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
}

TWO_VARIABLES: MacroTable = {
    ("all", 3, True): _two("all"),
    ("exists", 3, True): _two("exists"),
    ("exists_one", 3, True): _two("exists_one"),
    ("existsOne", 3, True): _two("exists_one"),
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map_entry,
    ("transformMapEntry", 4, True): _transform_map_entry,
}

BINDINGS: MacroTable = {("bind", 3, True): _bind}
OPTIONALS: MacroTable = {("optMap", 2, True): _optional(False), ("optFlatMap", 2, True): _optional(True)}
SORTING: MacroTable = {("sortBy", 2, True): _sort_by}
