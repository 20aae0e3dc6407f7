"""What of a device an expression can see, found in its syntax tree.

Devices differ in what hardly any selector asks for (UUIDs, bus addresses). An expression that names the attributes it
reads need only be evaluated once per distinct combination of those; one that handles whole maps sees everything.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from haru.cel.ast import Call, Ident, Literal, Node, Select
from haru.cel.device import compile_device_selector
from haru.cel.errors import CompileError
from haru.engine.dra.model.model import Attribute, Capacity, Shape

_INDEX = ("_[_]", "_[?_]", "_?._")


Spelled = tuple[tuple[str, str], ...]
"""Names as published: in short and in full, where a driver may leave its own domain out; else twice in full."""


class Names(NamedTuple):
    """The attributes and capacities that an expression reads, each as (domain, id)."""

    attributes: frozenset[tuple[str, str]]
    capacity: frozenset[tuple[str, str]]

    def of(self, shape: Shape) -> Projection:
        """What the expression sees of a shape. Values that may be faulty are always seen: they fail any expression."""
        driver = shape.driver
        return Projection(
            driver,
            tuple(pair for pair in shape.attributes if pair[1].may_fail or _split(pair[0], driver) in self.attributes),
            tuple(pair for pair in shape.capacity if _split(pair[0], driver) in self.capacity),
            shape.shareable,
        )

    def published(self, driver: str) -> tuple[Spelled, Spelled]:
        """These attributes and capacities in the two spellings that a driver has for them, in their order."""
        return _published(self.attributes, driver), _published(self.capacity, driver)


def _published(names: frozenset[tuple[str, str]], driver: str) -> Spelled:
    if not names:
        return ()
    return tuple(
        [(name if domain == driver else f"{domain}/{name}", f"{domain}/{name}") for domain, name in sorted(names)]
    )


class Projection(NamedTuple):
    """The part of a device that decides what an expression says of it."""

    driver: str
    attributes: tuple[tuple[str, Attribute], ...]
    capacity: tuple[tuple[str, Capacity], ...]
    shareable: bool


def whole(shape: Shape) -> Projection:
    """Everything that any expression can see of a shape."""
    return Projection(shape.driver, shape.attributes, shape.capacity, shape.shareable)


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)


class _Everything(Exception):
    """The expression handles a map as a whole."""


@lru_cache(maxsize=1024)
def names_read(expression: str, lists: bool, consumable: bool) -> Names | None:
    """The names that an expression reads; None when it may see everything (or does not compile)."""
    try:
        root = compile_device_selector(
            expression, consumable_capacity=consumable, list_attributes=lists, new=False
        ).root
    except CompileError:
        return None
    return names_below(root)


def names_below(root: Node) -> Names | None:
    """The names that a part of an expression reads; None when it may see everything."""
    found: dict[str, set[tuple[str, str]]] = {"attributes": set(), "capacity": set()}
    try:
        _visit(root, found)
    except _Everything:
        return None
    return Names(frozenset(found["attributes"]), frozenset(found["capacity"]))


def _visit(root: Node, found: dict[str, set[tuple[str, str]]]) -> None:
    pending = [root]
    while pending:
        node = pending.pop()
        read = _read(node)
        if read is not None:
            table, domain, name = read
            found[table].add((domain, name))
        elif isinstance(node, Ident) and node.name == "device":
            raise _Everything
        elif not (isinstance(node, Select) and _is_device(node.operand) and node.field not in found):
            pending.extend(node.children())


def _read(node: Node) -> tuple[str, str, str] | None:
    """The table, domain and id where a node reads one entry of a domain, or asks whether it is there."""
    if isinstance(node, Call) and node.function == "@in":
        key, container = node.args
        name = key.value if isinstance(key, Literal) and isinstance(key.value, str) else None
        domain = _domain(container)
    else:
        operand, name = _access(node)
        domain = _domain(operand) if operand is not None else None
    return None if domain is None or name is None else (*domain, name)


def _domain(node: Node) -> tuple[str, str] | None:
    """The table and domain where a node is `device.attributes["domain"]` in one of its spellings."""
    operand, name = _access(node)
    if name is None or not isinstance(operand, Select) or not _is_device(operand.operand) or operand.test_only:
        return None
    return (operand.field, name) if operand.field in ("attributes", "capacity") else None


def _access(node: Node) -> tuple[Node | None, str | None]:
    """Operand and constant key of a selection or index."""
    if isinstance(node, Select):
        return node.operand, node.field
    if isinstance(node, Call) and node.function in _INDEX:
        operand, key = node.operands()
        if isinstance(key, Literal) and isinstance(key.value, str):
            return operand, key.value
    return None, None


def _is_device(node: Node) -> bool:
    return isinstance(node, Ident) and node.name == "device" and not node.local
