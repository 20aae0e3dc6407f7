"""What is wrong with literals although the types are right: looked at after the checker, as cel-go's validators do.

Lists and maps must be of one type, unless they are what `format` is given; durations, timestamps and patterns must be
readable; a literal format string must fit the types of its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator

from haru.cel.ast import Call, ListLiteral, Literal, MapLiteral, Node
from haru.cel.errors import EvaluationError, Issue
from haru.cel.libraries.conversions import int_to_timestamp
from haru.cel.libraries.format_string import check_format
from haru.cel.libraries.timestamps import parse_duration, parse_timestamp
from haru.cel.types import DYN, Type, format_type, is_optional
from haru.cel.values import Value
from haru.kube.patterns import PatternError, compile_pattern


def look_at_literals(root: Node, kubernetes: bool) -> list[Issue]:
    """The faults of the literals in a checked tree; mixed types and format strings are Kubernetes' concern only."""
    issues: list[Issue] = []
    pending = [(root, not kubernetes)]
    while pending:
        node, exempt = pending.pop()
        if isinstance(node, Call):
            issues += _call_issues(node, kubernetes)
            exempt = exempt or node.function == "format"
        elif not exempt:
            issues += _mixed(node)
        pending.extend((child, exempt) for child in node.children())
    return issues


def _type(node: Node, optional: bool) -> Type:
    found = node.type or DYN
    return found.params[0] if optional and is_optional(found) else found


def _mixed(node: Node) -> Iterator[Issue]:
    """Elements of another type than the first one."""
    if isinstance(node, ListLiteral):
        elements = [(element, _type(element, place in node.optional)) for place, element in enumerate(node.elements)]
        yield from list(_others(elements))[:1]
    elif isinstance(node, MapLiteral):
        yield from _others([(entry.key, _type(entry.key, False)) for entry in node.entries])
        yield from _others([(entry.value, _type(entry.value, entry.optional)) for entry in node.entries])


def _others(typed: list[tuple[Node, Type]]) -> Iterator[Issue]:
    for node, found in typed:
        expected = typed[0][1]
        if not _equivalent(expected, found):
            yield Issue(node.offset, f"expected type '{format_type(expected)}' but found '{format_type(found)}'")


def _equivalent(left: Type, right: Type) -> bool:
    if left == right:
        return True
    same_head = (left.kind, left.name, len(left.params)) == (right.kind, right.name, len(right.params))
    return same_head and bool(left.params) and all(map(_equivalent, left.params, right.params))


def _call_issues(node: Call, kubernetes: bool) -> Iterator[Issue]:
    if node.function == "format":
        yield from _format_issues(node) if kubernetes else ()
        return
    if node.function not in ("matches", "duration", "timestamp") or not node.args:
        return
    argument = node.args[0]
    if isinstance(argument, Literal) and not _is_valid(node.function, argument.value):
        yield Issue(argument.offset, f"invalid {node.function} argument")


def _is_valid(function: str, value: Value) -> bool:
    try:
        if function == "matches":
            compile_pattern(value)
        elif function == "duration":
            return isinstance(value, str) and parse_duration(value) is not None
        elif isinstance(value, str):
            parse_timestamp(value)
        elif isinstance(value, int):
            int_to_timestamp(value)
        else:
            return False  # null, which the types allow
    except (PatternError, EvaluationError):
        return False
    return True


def _format_issues(node: Call) -> Iterator[Issue]:
    target, overloads = node.target, node.overloads or ()
    if not isinstance(target, Literal) or not isinstance(target.value, str) or len(node.args) != 1:
        return
    listed = node.args[0]
    if not isinstance(listed, ListLiteral) or not any(overload.id == "string_format" for overload in overloads):
        return
    try:
        arguments, fault = check_format(target.value, listed.elements)
    except EvaluationError as error:
        yield Issue(node.offset, str(error))
        return
    if fault is not None:
        yield Issue(fault[0].offset, fault[1])
    elif len(listed.elements) > arguments:
        wanted = f"expected {arguments}, got {len(listed.elements)}"
        yield Issue(node.offset, f"too many arguments supplied to string.format ({wanted})")
