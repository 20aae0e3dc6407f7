"""Why an expression is not true: its conditions one by one, each with the values that it looked at.

An expression is taken apart where its text has `&&` outside of all brackets; an expression with `||` or `?:` out there
is one condition. What a condition looked at are the longest selections from a variable in it, such as
`device.attributes["d"].id`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from haru.cel.ast import Call, Ident, Literal, Node, Select
from haru.cel.environment import Environment
from haru.cel.errors import CompileError, EvaluationError
from haru.cel.lexer import Token, tokenize
from haru.cel.libraries.timestamps import format_duration, format_timestamp
from haru.cel.program import Program, parse_and_check
from haru.cel.values import Duration, Optional, Timestamp, Value, from_key

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_COMPARISONS = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in"))


class AtomResult(NamedTuple):
    """One condition. `matched` is None where it failed, then `error` says how.

    `left` and `right` are the values of a comparison's operands (None for other conditions), `reads` what the condition
    looked at: pairs of a selection and its value, all as text.
    """

    text: str
    matched: bool | None
    error: str = ""
    left: str | None = None
    right: str | None = None
    reads: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        if self.matched is None:
            return f"{self.text}: {self.error}"
        if self.left is None or self.right is None:
            seen = [f"{name} is {value}" for name, value in self.reads]
            return f"{self.text}: {', '.join(seen) or show(self.matched)}"
        seen = [f"{name} is {value}" for name, value in self.reads if value not in (self.left, self.right)]
        more = f" ({', '.join(seen)})" if seen else ""
        return f"{self.text}: left value {self.left}, right value {self.right}{more}"


def atoms(expression: str) -> list[str]:
    """The texts of the conditions."""
    tokens = tokenize(expression)[:-1]
    return [_text(expression, part) for part in _split(tokens)]


def explain(expression: str, environment: Environment, variables: tuple[str, ...], *values: Value) -> list[AtomResult]:
    """Each condition of an expression that compiles, evaluated alone."""
    return [_explain_one(text, environment, variables, values) for text in atoms(expression)]


def _text(expression: str, tokens: list[Token]) -> str:
    return expression[tokens[0].offset : tokens[-1].offset + len(tokens[-1].text)]


def _split(tokens: list[Token]) -> list[list[Token]]:
    tokens = _without_brackets(tokens)
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.kind in _OPENING) - (token.kind in _CLOSING)
        if depth == 0 and token.kind in ("||", "?") and not _is_optional(parts[-1], token):
            return [tokens]
        if depth == 0 and token.kind == "&&":
            parts.append([])
        else:
            parts[-1].append(token)
    if len(parts) == 1:
        return parts
    return [inner for part in parts for inner in _split(part)]


def _is_optional(before: list[Token], token: Token) -> bool:
    """Whether a question mark belongs to a selection (`a.?b`)."""
    return token.kind == "?" and bool(before) and before[-1].kind == "."


def _without_brackets(tokens: list[Token]) -> list[Token]:
    """The tokens without parentheses around all of them."""
    while len(tokens) > 2 and tokens[0].kind == "(" and tokens[-1].kind == ")":
        depth = 0
        for token in tokens[:-1]:
            depth += (token.kind in _OPENING) - (token.kind in _CLOSING)
            if depth == 0:
                return tokens
        tokens = tokens[1:-1]
    return tokens


def _explain_one(
    text: str, environment: Environment, variables: tuple[str, ...], values: tuple[Value, ...]
) -> AtomResult:
    try:
        root = parse_and_check(text, environment)
    except CompileError as error:
        # Only where a condition borrows its meaning from its surroundings, which a well-formed conjunction does not.
        return AtomResult(text, None, str(error))

    def value_of(node: Node) -> Value:
        return Program(node, environment, variables).evaluate(*values)

    reads = tuple(_reads(root, value_of))
    try:
        result = value_of(root)
    except EvaluationError as error:
        return AtomResult(text, None, str(error), reads=reads)
    if result is not True and result is not False:
        return AtomResult(text, None, f"is {show(result)}, not a bool", reads=reads)
    if isinstance(root, Call) and root.function in _COMPARISONS:
        left, right = (show(value_of(arg)) for arg in root.args)
        return AtomResult(text, result, "", left, right, reads)
    return AtomResult(text, result, reads=reads)


def _reads(root: Node, value_of: Callable[[Node], Value]) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        name = spell(node)
        if name is None or isinstance(node, Ident):
            pending.extend(reversed(list(node.children())))
            continue
        if name not in found:
            try:
                found[name] = show(value_of(node))
            except EvaluationError as error:
                found[name] = f"unknown ({error})"
    return list(found.items())


def spell(node: Node) -> str | None:
    """The text of a selection from a variable; None for any other node."""
    if isinstance(node, Ident):
        return None if node.local or node.constant is not None else node.name
    if isinstance(node, Select) and not node.test_only:
        operand = spell(node.operand)
        return None if operand is None else f"{operand}.{node.field}"
    if isinstance(node, Call) and node.function == "_[_]" and isinstance(node.args[1], Literal):
        operand = spell(node.args[0])
        return None if operand is None else f"{operand}[{show(node.args[1].value)}]"
    return None


def show(value: Any) -> str:
    """A value as an expression would spell it, or nearly so."""
    if value is True or value is False:
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{show(from_key(key))}: {show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Optional):
        return f"optional.of({show(value.value)})" if value.present else "optional.none()"
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    return str(value)
