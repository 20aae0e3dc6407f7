"""The type checker: resolves names and overloads, deduces every node's type, and gathers all faults.

Afterwards each node has its `type`; names are full names; a call to a namespaced function has lost its target; and a
call knows the `overloads` that its operands' types leave open (one, unless something is dynamic).
"""

from __future__ import annotations

from haru.cel.ast import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    qualified_name,
)
from haru.cel.environment import Environment
from haru.cel.errors import Issue
from haru.cel.overloads import Overload
from haru.cel.parser import RESERVED
from haru.cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    STRING,
    Substitution,
    Type,
    format_signature,
    format_type,
    is_optional,
    list_of,
    map_of,
    most_general,
    optional_of,
    param,
    struct,
)
from haru.cel.values import type_of

_LOGICAL = frozenset(("_&&_", "_||_"))
_MAX_RESOLVED = 4096


def check(root: Node, environment: Environment) -> list[Issue]:
    """Type the tree in place; answer what is wrong with it."""
    checker = _Checker(environment)
    checker.check(root)
    checker.finish(root)
    return checker.issues


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.issues: list[Issue] = []
        self.known = Substitution()
        self.scopes: list[dict[str, Type]] = []
        self.fresh = 0

    # Helpers

    def report(self, offset: int, message: str) -> Type:
        self.issues.append(Issue(offset, message))
        return ERROR

    def new_param(self) -> Type:
        self.fresh += 1
        return param(f"_var{self.fresh - 1}")

    def resolved(self, node: Node) -> Type:
        assert node.type is not None
        return self.known.apply(node.type)

    def undeclared(self, offset: int, name: str) -> Type:
        return self.report(offset, f"undeclared reference to '{name}' (in container '{self.environment.container}')")

    def finish(self, root: Node) -> None:
        """Replace what stayed open by dyn, everywhere."""
        pending = [root]
        while pending:
            node = pending.pop()
            if node.type is not None:
                node.type = self.known.apply(node.type, params_to_dyn=True)
            pending.extend(node.children())

    # Nodes

    def check(self, node: Node) -> Type:
        node.type = self.deduce(node)
        return node.type

    def deduce(self, node: Node) -> Type:
        if isinstance(node, Literal):
            return type_of(node.value)
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
            return self.struct_literal(node)
        assert isinstance(node, Comprehension)
        return self.comprehension(node)

    def local(self, name: str) -> Type | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def ident(self, node: Ident) -> Type:
        local = self.local(node.name)
        if local is not None:
            node.local = True
            return local
        found = self.environment.find_variable(node.name)
        if found is None:
            return self.undeclared(node.offset, node.name)
        node.name, declared, node.constant = found
        return declared

    def select(self, node: Select) -> Type:
        if not node.test_only:
            name = qualified_name(node)
            if name is not None and self.local(name.split(".", 1)[0]) is None:
                found = self.environment.find_variable(name)
                if found is not None:
                    resolved = Ident(node.offset, found[0])
                    resolved.constant = found[2]
                    resolved.type = found[1]
                    node.resolved = resolved
                    return found[1]
        chosen = self.field(node, node.operand, node.field, optional=False)
        return BOOL if node.test_only else chosen

    def field(self, node: Node, operand: Node, field: str, optional: bool) -> Type:
        self.check(operand)
        target = self.resolved(operand)
        if is_optional(target):
            target, optional = target.params[0], True
        result = DYN
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            result = self.struct_field(node, target, field)
        elif target.kind == "param":
            self.known.assignable(DYN, target)
        elif not target.is_dyn and target.kind != "error":
            return self.report(node.offset, f"type '{format_type(target)}' does not support field selection")
        return optional_of(result) if optional else result

    def struct_field(self, node: Node, target: Type, field: str) -> Type:
        fields = self.environment.fields_of(target.name)
        if fields is None:
            return self.report(node.offset, f"unexpected failed resolution of '{target.name}'")
        found = fields.get(field)
        if found is None and field in RESERVED and (spelled := f"__{field}__") in fields:
            found = fields[spelled]
            _rename(node, spelled)
        return self.report(node.offset, f"undefined field '{field}'") if found is None else found

    # Calls

    def call(self, node: Call) -> Type:
        if node.function == "_?._":
            key = node.args[1]
            assert isinstance(key, Literal)
            key.type = STRING
            result = self.field(node, node.args[0], str(key.value), optional=True)
            node.overloads = self.environment.functions.get(node.function)
            return result
        types = [self.check(arg) for arg in node.args]
        if node.target is None:
            found = self.environment.find_function(node.function)
            if found is None:
                return self.undeclared(node.offset, node.function)
            node.function = found[0]
            return self.resolve(node, types, found[1])
        name = qualified_name(node.target)
        if name is not None and self.local(name.split(".", 1)[0]) is None:
            found = self.environment.find_function(f"{name}.{node.function}")
            if found is not None:
                node.function, node.target = found[0], None
                return self.resolve(node, types, found[1])
        types.insert(0, self.check(node.target))
        overloads = self.environment.functions.get(node.function)
        if overloads is None:
            return self.undeclared(node.offset, node.function)
        return self.resolve(node, types, overloads)

    def resolve(self, node: Call, types: list[Type], overloads: tuple[Overload, ...]) -> Type:
        is_member = node.target is not None
        if node.function in _LOGICAL:
            return self.logical(node, types, overloads)
        key = (node.function, is_member, *types)
        known = self.environment.resolved.get(key)
        if known is not None:
            node.overloads, result, params = known
            self.fresh += params
            return result
        before = self.fresh
        result = self.match(node, types, overloads)
        if result.closed and result is not ERROR and all(value.closed for value in types):
            # Nothing was learned of any type parameter: it is the same in every expression.
            if len(self.environment.resolved) >= _MAX_RESOLVED:
                self.environment.resolved.clear()
            self.environment.resolved[key] = (node.overloads or (), result, self.fresh - before)
        return result

    def match(self, node: Call, types: list[Type], overloads: tuple[Overload, ...]) -> Type:
        is_member = node.target is not None
        matching: list[Overload] = []
        result: Type | None = None
        for overload in overloads:
            if overload.member != is_member:
                continue
            params, returned = self.instantiate(overload)
            if not self.known.assignable_all(types, params):
                continue
            matching.append(overload)
            returned = self.known.apply(returned)
            if result is None:
                result = returned
            elif not result.is_dyn and result != returned:
                result = DYN
        if result is None:
            signature = format_signature([self.known.apply(value) for value in types], is_member)
            return self.report(
                node.offset, f"found no matching overload for '{node.function}' applied to '{signature}'"
            )
        node.overloads = tuple(matching)
        return result

    def logical(self, node: Call, types: list[Type], overloads: tuple[Overload, ...]) -> Type:
        node.overloads = overloads
        result = BOOL
        for operand, value in zip(node.operands(), types, strict=True):
            if not self.known.assignable(value, BOOL):
                result = self.mismatch(operand.offset, BOOL, value)
        return result

    def instantiate(self, overload: Overload) -> tuple[list[Type], Type]:
        names = overload.type_params
        if not names:
            return list(overload.params), overload.result
        fresh = Substitution({name: self.new_param() for name in names})
        return [fresh.apply(value) for value in overload.params], fresh.apply(overload.result)

    # Literals

    def join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self.known.assignable(previous, current):
            return most_general(previous, current)
        return DYN

    def mismatch(self, offset: int, expected: Type, actual: Type) -> Type:
        left, right = format_type(self.known.apply(expected)), format_type(self.known.apply(actual))
        return self.report(offset, f"expected type '{left}' but found '{right}'")

    def unwrap(self, node: Node, kind: str) -> Type:
        """The type inside an optional element or entry."""
        value = self.resolved(node)
        if is_optional(value):
            return value.params[0]
        if not value.is_dyn and value.kind != "error":
            self.mismatch(node.offset, optional_of(value), value)
        return value if kind else DYN

    def list_literal(self, node: ListLiteral) -> Type:
        element: Type | None = None
        for position, child in enumerate(node.elements):
            current = self.check(child)
            if position in node.optional:
                current = self.unwrap(child, "element")
            element = self.join(element, current)
        return list_of(self.new_param() if element is None else element)

    def map_literal(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self.join(key, self.check(entry.key))
            value = self.join(value, self.entry_value(entry))
        if key is None or value is None:
            return map_of(self.new_param(), self.new_param())
        return map_of(key, value)

    def entry_value(self, entry: Entry) -> Type:
        current = self.check(entry.value)
        return self.unwrap(entry.value, "entry") if entry.optional else current

    def struct_literal(self, node: StructLiteral) -> Type:
        found = self.environment.find_struct(node.name)
        if found is None:
            for entry in node.entries:
                self.check(entry.value)
            return self.undeclared(node.offset, node.name)
        node.name, fields = found
        for entry in node.entries:
            assert isinstance(entry.key, Literal)
            entry.key.type = STRING
            current = self.entry_value(entry)
            declared = fields.get(str(entry.key.value))
            if declared is None:
                self.report(entry.offset, f"undefined field '{entry.key.value}'")
            elif not self.known.assignable(declared, current):
                left, right = format_type(declared), format_type(self.known.apply(current))
                self.report(
                    entry.offset,
                    f"expected type of field '{entry.key.value}' is '{left}' but provided type is '{right}'",
                )
        return struct(node.name)

    # Comprehensions

    def comprehension(self, node: Comprehension) -> Type:
        self.check(node.iter_range)
        accu = self.check(node.accu_init)
        first, second = self.elements(node)
        scope = {node.accu_var: accu}
        self.scopes.append(scope)
        variables = {node.iter_var: first}
        if node.iter_var2:
            variables[node.iter_var2] = second
        self.scopes.append(variables)
        self.expect(node.condition, BOOL)
        self.expect(node.step, accu)
        self.scopes.pop()
        result = self.check(node.result)
        self.scopes.pop()
        return self.known.apply(result)

    def expect(self, node: Node, wanted: Type) -> None:
        actual = self.check(node)
        if not self.known.assignable(wanted, actual):
            self.mismatch(node.offset, wanted, actual)

    def elements(self, node: Comprehension) -> tuple[Type, Type]:
        """The types of the iteration variables."""
        ranged = self.resolved(node.iter_range)
        if ranged.kind == "list":
            element = ranged.params[0]
            return (INT, element) if node.iter_var2 else (element, DYN)
        if ranged.kind == "map":
            return ranged.params[0], ranged.params[1]
        if ranged.kind in ("dyn", "error", "param"):
            self.known.assignable(DYN, ranged)
            return DYN, DYN
        self.report(
            node.iter_range.offset,
            f"expression of type '{format_type(ranged)}' cannot be range of a comprehension "
            "(must be list, map, or dynamic)",
        )
        return ERROR, ERROR


def resolve_names(node: Node, environment: Environment, local: frozenset[str] = frozenset()) -> None:
    """Resolve names as `check` does, but deduce no types: for expressions that are run unchecked."""
    if isinstance(node, Ident):
        _resolve_ident(node, environment, local)
        return
    if isinstance(node, Select) and not node.test_only and _resolve_select(node, environment, local):
        return
    if isinstance(node, Call):
        _resolve_function(node, environment, local)
    if isinstance(node, StructLiteral):
        found = environment.find_struct(node.name)
        node.name = node.name if found is None else found[0]
    if not isinstance(node, Comprehension):
        for child in node.children():
            resolve_names(child, environment, local)
        return
    resolve_names(node.iter_range, environment, local)
    resolve_names(node.accu_init, environment, local)
    inner = local | {node.accu_var}
    resolve_names(node.result, environment, inner)
    inner |= {node.iter_var, node.iter_var2}
    resolve_names(node.condition, environment, inner)
    resolve_names(node.step, environment, inner)


def _resolve_ident(node: Ident, environment: Environment, local: frozenset[str]) -> None:
    node.local = node.name in local
    found = None if node.local else environment.find_variable(node.name)
    if found is not None:
        node.name, _, node.constant = found


def _resolve_select(node: Select, environment: Environment, local: frozenset[str]) -> bool:
    name = qualified_name(node)
    if name is None or name.split(".", 1)[0] in local:
        return False
    found = environment.find_variable(name)
    if found is None:
        return False
    node.resolved = Ident(node.offset, found[0])
    node.resolved.constant = found[2]
    return True


def _resolve_function(node: Call, environment: Environment, local: frozenset[str]) -> None:
    name = node.function
    if node.target is not None:
        prefix = qualified_name(node.target)
        if prefix is None or prefix.split(".", 1)[0] in local:
            return
        name = f"{prefix}.{name}"
    found = environment.find_function(name)
    if found is not None:
        node.function, node.target = found[0], None


def _rename(selection: Node, field: str) -> None:
    """Spell a field as its message does: `namespace` is as good as `__namespace__` since 1.31."""
    if isinstance(selection, Select):
        selection.field = field
    else:
        assert isinstance(selection, Call)
        key = selection.args[1]
        assert isinstance(key, Literal)
        key.value = field
