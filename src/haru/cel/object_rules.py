"""The rules of custom resources (`x-kubernetes-validations`), asked about an object.

`self` is the value at the rule's place, `oldSelf` the one before an update where it can be told which that was. A rule
that reads `oldSelf` is about changes and says nothing of new values, unless `optionalOldSelf` makes it an optional.
Source: KEP 2876 and KEP 4008 (what did not change is warned about but by rules about changes), as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haru.cel.checked_rules import VARIABLES, CheckedRule, UnseenError, check_rules
from haru.cel.errors import CostLimitError, EvaluationError
from haru.cel.objects import to_value, with_rules
from haru.cel.program import MeteredProgram
from haru.cel.values import NONE, Optional
from haru.kube.custom.field_paths import shown_path
from haru.kube.custom.ratcheting import is_unchanged, item_key, items_by_key
from haru.kube.custom.structural import Structural
from haru.kube.errors import OMITTED, ErrorType, FieldError, invalid
from haru.kube.meta import Obj

RULE_LIMIT = 1_000_000
"""What one evaluation may cost."""
OBJECT_LIMIT = 10_000_000
"""What all rules of an object may cost together."""
_NOT_DECLARED = "failed to convert to declType for CEL validation rules"
_ABSENT = object()
_Before = tuple[Any, Any, Structural]
"""A value, what it was before, and its schema."""
_NO_MORE = "no further validation rules will be run"
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
    program: MeteredProgram | None
    message: MeteredProgram | None
    about_changes: bool
    optional: bool
    place: str = ""
    """Its `fieldPath` as errors show it."""
    problem: str = ""
    """Why there is no program: a definition that was stored when less was known to be wrong."""

    @property
    def name(self) -> str:
        """The rule's name in errors of its evaluation: its message, or its expression."""
        return str(self.raw.get("message") or "").strip() or str(self.raw["rule"]).strip()

    def told(self) -> str:
        """Return the message for a value that breaks the rule, whatever the value is."""
        return self.name if self.raw.get("message") else f"failed rule: {self.name}"


def _compiled(schema: Structural, *, root: bool) -> tuple[_Rule, ...]:
    try:
        rules = check_rules(schema, root=root)
    except UnseenError:
        return (_Rule(schema.rules[0], None, None, False, False, problem=_NOT_DECLARED),)
    return tuple(_program(rule, schema) for rule in rules)


def _program(rule: CheckedRule, schema: Structural) -> _Rule:
    made = [
        None if tree is None else MeteredProgram(tree, rule.environment, VARIABLES)
        for tree in (rule.tree, rule.message)
    ]
    place = shown_path(str(rule.raw.get("fieldPath") or ""), schema)
    return _Rule(rule.raw, made[0], made[1], rule.about_changes, rule.optional, place, rule.problem)


class ObjectRules:
    """All rules of a schema, ready to be asked."""

    def __init__(self, schema: Structural) -> None:
        self._schema = schema
        self._rules: dict[int, tuple[_Rule, ...]] = {}
        for node in with_rules(schema):
            self._rules[id(node)] = _compiled(node, root=node is schema)
        self._ruled: set[int] = set()
        self._find_ruled(schema)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def _find_ruled(self, schema: Structural) -> bool:
        """Note which nodes have rules, or others below them that have: no other value needs a look."""
        below = (*schema.properties.values(), schema.items, schema.additional)
        found = [self._find_ruled(inner) for inner in below if inner is not None]
        if any(found) or id(schema) in self._rules:
            self._ruled.add(id(schema))
        return id(schema) in self._ruled

    def check(self, new: Obj, old: Obj | None, warnings: list[str] | None = None, path: str = "") -> list[FieldError]:
        """Which rules the object at a path breaks. `warnings` gets those that its unchanged values broke before."""
        if not self._rules:
            return []
        walk = _Walk(self._rules, self._ruled, [] if warnings is None else warnings)
        return list(walk.node(new, _ABSENT if old is None else old, self._schema, path, root=True))


class _Walk:
    """One evaluation of all rules over one object, with what it may still cost."""

    def __init__(self, rules: Mapping[int, tuple[_Rule, ...]], ruled: Collection[int], warnings: list[str]) -> None:
        self._rules = rules
        self._ruled = ruled
        self._warnings = warnings
        self._left = OBJECT_LIMIT
        self._unchanged: dict[tuple[int, ...], bool] = {}

    def node(
        self, new: Any, old: Any, schema: Structural, path: str, *, root: bool = False, known: _Before | None = None
    ) -> Iterator[FieldError]:
        """What a value and those below it break. `known`: the nearest value around it that was there before."""
        if new is None or self._left < 0:
            return
        # What the metadata of an object were is not in its schema: the object itself is another one with each update.
        known = known if old is _ABSENT else None if root else (new, old, schema)
        for rule, error in self._apply(self._rules.get(id(schema), ()), new, old, schema, path, root=root):
            if rule is not None and not rule.about_changes and self._is_unchanged(known):
                self._warnings.append(str(error))
            else:
                yield error
        if isinstance(new, dict):
            before = old if isinstance(old, dict) else {}
            for name, inner in new.items():
                declared = schema.properties.get(name) or schema.additional
                if declared is not None and id(declared) in self._ruled:
                    then = before.get(name, _ABSENT)
                    below = f"{path}.{name}" if name in schema.properties else f"{path}[{name}]"
                    yield from self.node(inner, then, declared, below.removeprefix("."), known=known)
        elif isinstance(new, list) and schema.items is not None and id(schema.items) in self._ruled:
            earlier = items_by_key(old, schema)
            for index, item in enumerate(new):
                then = earlier.get(item_key(item, schema), _ABSENT) if earlier else _ABSENT
                yield from self.node(item, then, schema.items, f"{path}[{index}]", known=known)

    def _is_unchanged(self, known: _Before | None) -> bool:
        if known is None:
            return False
        asked = tuple(map(id, known))
        if asked not in self._unchanged:
            self._unchanged[asked] = is_unchanged(*known)
        return self._unchanged[asked]

    def _apply(
        self, rules: tuple[_Rule, ...], new: Any, old: Any, schema: Structural, path: str, *, root: bool
    ) -> Iterator[tuple[_Rule | None, FieldError]]:
        """What is wrong, each with the rule that is broken; none where a rule could not be answered."""
        if not rules:
            return
        kind = schema.type
        try:
            value = to_value(new, schema, root=root)
            before = None if old is _ABSENT or old is None else to_value(old, schema, root=root)
        except EvaluationError as error:
            yield None, invalid(path or "<nil>", kind, str(error))
            return
        for rule in rules:
            if self._left < 0:
                return
            if rule.program is not None and rule.about_changes and before is None and not rule.optional:
                continue
            given = (NONE if before is None else Optional(before)) if rule.optional else before
            shown = OMITTED if kind in ("object", "array") else new
            yield from self._one(rule, value, given, shown, kind, path)

    def _one(
        self, rule: _Rule, value: Any, before: Any, shown: Any, kind: str, path: str
    ) -> Iterator[tuple[_Rule | None, FieldError]]:
        if rule.program is None:
            what = "compiler initialization" if rule.problem == _NOT_DECLARED else "compile"
            yield None, invalid(path or "<nil>", kind, f"rule {what} error: {rule.problem}")
            return
        place = ".".join(filter(None, (path, rule.place))) or "<nil>"
        found = rule.program.measure(RULE_LIMIT, value, before)
        self._left -= found.cost
        if self._left < 0:
            text = f"validation failed due to running out of cost budget, {_NO_MORE}"
            yield None, invalid(path or "<nil>", kind, text)
        elif found.error is not None:
            yield None, invalid(path or "<nil>", kind, self._failure(found.error, rule))
        elif found.value is not True:
            yield rule, self._broken(rule, value, before, shown, kind, place)

    def _failure(self, error: EvaluationError, rule: _Rule) -> str:
        """What is said of a rule that could not be answered. One that cost too much is the last."""
        if isinstance(error, CostLimitError):
            self._left = -1
            return f"'{error}': {_NO_MORE} due to call cost exceeds limit for rule: {rule.name}"
        if str(error).startswith("no such overload"):
            what = "call arguments did not match a supported operator, function or macro signature"
            return f"'{error}': {what} for rule: {rule.name}"
        return f"{error} evaluating rule: {rule.name}"

    def _broken(self, rule: _Rule, value: Any, before: Any, shown: Any, kind: str, place: str) -> FieldError:
        """A broken rule, told in the words of its `messageExpression` where that has any."""
        if rule.message is None:
            return _finding(rule, place, shown, rule.told())
        found = rule.message.measure(RULE_LIMIT, value, before)
        self._left -= found.cost
        failed = "messageExpression evaluation failed due to"
        if self._left < 0:
            return invalid(place, kind, f"{failed} running out of cost budget, {_NO_MORE}")
        if isinstance(found.error, CostLimitError):
            self._left = -1
            source = json.dumps(rule.raw["messageExpression"], ensure_ascii=False)
            return invalid(place, kind, f"{_NO_MORE} due to call cost exceeds limit for messageExpression: {source}")
        text = found.value.strip() if found.error is None and isinstance(found.value, str) else ""
        usable = text and "\n" not in text and len(text.encode()) <= _MESSAGE_BYTES
        return _finding(rule, place, shown, text if usable else rule.told())


def _finding(rule: _Rule, path: str, shown: Any, message: str) -> FieldError:
    chosen = _TYPES.get(str(rule.raw.get("reason") or ""), "FieldValueInvalid")
    return FieldError(chosen, path, shown, "" if chosen == "FieldValueDuplicate" else message)
