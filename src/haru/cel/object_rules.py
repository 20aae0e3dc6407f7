"""The rules of custom resources (`x-kubernetes-validations`): compiled with their schema, evaluated over an object.

`self` is the value at the rule's place, `oldSelf` the one before an update where it can be told which that was. A rule
that reads `oldSelf` is about changes and says nothing of new values, unless `optionalOldSelf` makes it an optional.
Source: KEP 2876 and KEP 4008 (what did not change is not judged again), as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haru.cel.ast import Ident, Node
from haru.cel.environment import Environment
from haru.cel.errors import CompileError, EvaluationError
from haru.cel.libraries.kubernetes import BASE, BINDINGS
from haru.cel.objects import Structs, declare, to_value, with_rules
from haru.cel.program import MeteredProgram, instantiation_error, parse_and_check
from haru.cel.types import BOOL, STRING, Type, optional_of
from haru.cel.values import NONE, Optional
from haru.kube.custom.structural import Structural
from haru.kube.errors import ErrorType, FieldError, forbidden, invalid

Obj = dict[str, Any]

RULE_LIMIT = 1_000_000
"""What one evaluation may cost."""
OBJECT_LIMIT = 10_000_000
"""What all rules of an object may cost together."""
_ABSENT = object()
_MESSAGE_BYTES = 5 * 1024
_TYPES: Mapping[str, ErrorType] = {
    "FieldValueRequired": "FieldValueRequired",
    "FieldValueDuplicate": "FieldValueDuplicate",
    "FieldValueForbidden": "FieldValueForbidden",
}


@dataclass(frozen=True, slots=True)
class _Rule:
    """One compiled rule. `about_changes`: it reads `oldSelf`."""

    raw: Obj
    program: MeteredProgram
    message: MeteredProgram | None
    about_changes: bool
    optional: bool

    def told(self) -> str:
        """What is said of a value that breaks the rule, without looking at it."""
        return str(self.raw.get("message") or "").strip() or f"failed rule: {str(self.raw['rule']).strip()}"


class ObjectRules:
    """All rules of a schema, ready to be asked."""

    def __init__(self, schema: Structural) -> None:
        self._schema = schema
        self._rules: dict[int, tuple[_Rule, ...]] = {}
        for node in with_rules(schema):
            rules, _ = compile_rules(node, root=node is schema)
            self._rules[id(node)] = tuple(rules)

    def check(self, new: Obj, old: Obj | None) -> list[FieldError]:
        """Which rules the object breaks."""
        if not self._rules:
            return []
        return list(_Walk(self._rules).node(new, _ABSENT if old is None else old, self._schema, "", root=True))


class _Walk:
    """One evaluation of all rules over one object, with what it may still cost."""

    def __init__(self, rules: Mapping[int, tuple[_Rule, ...]]) -> None:
        self._rules = rules
        self._left = OBJECT_LIMIT

    def node(self, new: Any, old: Any, schema: Structural, path: str, *, root: bool = False) -> Iterator[FieldError]:
        if new is None:
            return
        rules = self._rules.get(id(schema), ())
        if rules and (old is _ABSENT or new != old):
            yield from self._apply(rules, new, old, schema, path, root=root)
        if isinstance(new, dict):
            before = old if isinstance(old, dict) else {}
            correlated = isinstance(old, dict) and schema.map_type != "atomic"
            for name, inner in new.items():
                declared = schema.properties.get(name) or schema.additional
                if declared is not None:
                    then = before.get(name, _ABSENT) if correlated else _ABSENT
                    yield from self.node(inner, then, declared, f"{path}.{name}" if path else name)
        elif isinstance(new, list) and schema.items is not None:
            earlier = _by_keys(old, schema)
            for index, item in enumerate(new):
                then = earlier.get(_key(item, schema), _ABSENT) if earlier else _ABSENT
                yield from self.node(item, then, schema.items, f"{path}[{index}]")

    def _apply(
        self, rules: tuple[_Rule, ...], new: Any, old: Any, schema: Structural, path: str, *, root: bool
    ) -> Iterator[FieldError]:
        kind = schema.type or "object"
        try:
            value = to_value(new, schema, root=root)
            before = None if old is _ABSENT or old is None else to_value(old, schema, root=root)
        except EvaluationError as error:
            yield invalid(path or "<nil>", kind, str(error))
            return
        for rule in rules:
            if rule.about_changes and before is None and not rule.optional:
                continue
            given = (NONE if before is None else Optional(before)) if rule.optional else before
            yield from self._one(rule, value, given, kind, path)

    def _one(self, rule: _Rule, value: Any, before: Any, kind: str, path: str) -> Iterator[FieldError]:
        place = path + str(rule.raw.get("fieldPath") or "")
        place = place.lstrip(".") or "<nil>"
        found = rule.program.measure(RULE_LIMIT, value, before)
        self._left -= found.cost
        if self._left < 0:
            why = "validation failed due to running out of cost budget, no further validation rules will be run"
            yield forbidden(path or "<nil>", why)
            return
        if found.error is not None:
            yield invalid(path or "<nil>", kind, f"{found.error} evaluating rule: {rule.told()}")
        elif found.value is not True:
            yield _finding(rule, place, kind, self._message(rule, value, before))

    def _message(self, rule: _Rule, value: Any, before: Any) -> str:
        if rule.message is not None:
            found = rule.message.measure(RULE_LIMIT, value, before)
            self._left -= found.cost
            text = found.value if found.error is None and isinstance(found.value, str) else ""
            if text.strip() and "\n" not in text.strip() and len(text.encode()) <= _MESSAGE_BYTES:
                return text.strip()
        return rule.told()


def _finding(rule: _Rule, path: str, kind: str, message: str) -> FieldError:
    chosen = _TYPES.get(str(rule.raw.get("reason") or ""), "FieldValueInvalid")
    return FieldError(chosen, path, kind, message)


def _by_keys(old: Any, schema: Structural) -> dict[str, Any]:
    if not isinstance(old, list) or schema.list_type != "map":
        return {}
    return {_key(item, schema): item for item in old}


def _key(item: Any, schema: Structural) -> str:
    found = {key: item.get(key) for key in schema.list_map_keys} if isinstance(item, dict) else item
    return json.dumps(found, sort_keys=True)


# --- compiling


def compile_rules(schema: Structural, *, root: bool = False) -> tuple[list[_Rule], list[tuple[int, str, str]]]:
    """The rules of one node, and what is wrong with others: number, member (`rule`, `messageExpression`), reason."""
    structs: Structs = {}
    own = declare(schema, "selfType", structs, root=root)
    plain, with_optional = (_environment(own, old, structs) for old in (own, optional_of(own)))
    rules: list[_Rule] = []
    problems: list[tuple[int, str, str]] = []
    for number, raw in enumerate(schema.rules):
        optional = bool(raw.get("optionalOldSelf"))
        environment = with_optional if optional else plain
        try:
            tree = _checked(str(raw.get("rule") or "").strip(), environment, BOOL, "bool")
        except CompileError as error:
            problems.append((number, "rule", str(error)))
            continue
        message = None
        if raw.get("messageExpression"):
            try:
                text = _checked(str(raw["messageExpression"]).strip(), environment, STRING, "string")
                message = MeteredProgram(text, environment, ("self", "oldSelf"))
            except CompileError as error:
                problems.append((number, "messageExpression", str(error)))
        program = MeteredProgram(tree, environment, ("self", "oldSelf"))
        rules.append(_Rule(raw, program, message, _reads_old(tree), optional))
    return rules, problems


def _environment(own: Type, old: Type, structs: Structs) -> Environment:
    variables = {"self": own, "oldSelf": old}
    return Environment((*BASE, BINDINGS), variables, structs, kubernetes=True)


def _checked(expression: str, environment: Environment, wanted: Type, name: str) -> Node:
    try:
        tree = parse_and_check(expression, environment)
    except CompileError as error:
        raise CompileError(f"compilation failed: {error}", error.line, error.column) from None
    problem = instantiation_error(tree, environment)
    if problem:
        raise CompileError(problem)
    if tree.type != wanted:
        what = "cel expression" if name == "bool" else "messageExpression"
        raise CompileError(f"{what} must evaluate to a {name}")
    return tree


def _reads_old(tree: Node) -> bool:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Ident) and node.name == "oldSelf" and not node.local:
            return True
        pending.extend(node.children())
    return False


def rule_problems(schema: Structural, path: str) -> list[FieldError]:
    """What is wrong with the rules of a schema that stands at `path` of a definition."""
    return list(_problems(schema, path, "", root=True))


def _problems(schema: Structural, path: str, uncorrelated: str, *, root: bool = False) -> Iterator[FieldError]:
    if schema.rules:
        rules, problems = compile_rules(schema, root=root)
        for number, member, why in problems:
            where = f"{path}.x-kubernetes-validations[{number}].{member}"
            yield invalid(where, schema.rules[number].get(member), why)
        for rule in rules:
            if rule.about_changes and uncorrelated:
                where = f"{path}.x-kubernetes-validations[{schema.rules.index(rule.raw)}].rule"
                why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
                yield invalid(where, rule.raw["rule"], why)
    below = uncorrelated or (path if schema.map_type == "atomic" else "")
    for name, inner in schema.properties.items():
        yield from _problems(inner, f"{path}.properties[{name}]", below)
    if schema.additional is not None:
        yield from _problems(schema.additional, f"{path}.additionalProperties", below)
    if schema.items is not None:
        lost = uncorrelated or (path if schema.list_type != "map" else "")
        yield from _problems(schema.items, f"{path}.items", lost)
