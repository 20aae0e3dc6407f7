"""JSONPath as Kubernetes uses it for columns: fields, indices, wildcards, slices and simple filters.

`.status.conditions[?(@.type=="Ready")].status`, `.spec.containers[*].image`, `['a.b/c']`. Source: client-go's jsonpath,
as behaviour, without ranges over templates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_TOKEN = re.compile(
    r"""
      \.\. (?P<deep> [A-Za-z_$*][^.\[\s]* )
    | \. (?P<name> (?: \\. | [^.\[\\\s] )+ )
    | \[ \s* (?: '(?P<single> (?: \\' | [^'] )* )' | "(?P<double> (?: \\" | [^"] )* )" ) \s* \]
    | \[ \s* (?P<slice> -?[0-9]* : -?[0-9]* (?: : -?[0-9]* )? ) \s* \]
    | \[ \s* (?P<index> -?[0-9]+ (?: \s*,\s* -?[0-9]+ )* ) \s* \]
    | \[ \s* (?P<every> \* ) \s* \]
    | \[ \s* \?\( (?P<filter> (?: "[^"]*" | '[^']*' | [^)"'] )+ ) \) \s* \]
    """,
    re.VERBOSE,
)
_FILTER = re.compile(r"""\s*@(?P<path>[^=!<>\s]*)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*""")
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


class JsonPathError(ValueError):
    """The path cannot be read; the text says where."""


def compile_path(text: str) -> Callable[[Any], list[Any]]:
    """The function from a value to everything that the path finds in it. Raises JsonPathError."""
    steps = list(_steps(text.strip().removeprefix("{").removesuffix("}").removeprefix("$").removeprefix("@")))

    def find(value: Any) -> list[Any]:
        found = [value]
        for step in steps:
            found = [inner for one in found for inner in step(one)]
        return found

    return find


def _steps(text: str) -> Iterator[Step]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            if text[position:] == ".":
                return
            raise JsonPathError(f"unexpected {text[position:]!r} at {position} of {text!r}")
        position = match.end()
        yield _step(match)


def _step(match: re.Match[str]) -> Step:
    kind, text = match.lastgroup, match[match.lastgroup or 0]
    if kind == "name":
        return _every if text == "*" else _field(re.sub(r"\\(.)", r"\1", text))
    if kind in ("single", "double"):
        return _field(text.replace("\\'", "'").replace('\\"', '"'))
    if kind == "deep":
        return _deep(text)
    if kind == "index":
        return _indices([int(part) for part in text.split(",")])
    if kind == "slice":
        return _slice([int(part) if part else None for part in text.split(":")])
    return _every if kind == "every" else _filter(text)


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _deep(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            if name in value:
                yield value[name]
            for inner in value.values():
                yield from step(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from step(inner)

    return step


def _indices(numbers: Sequence[int]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            for number in numbers:
                if -len(value) <= number < len(value):
                    yield value[number]

    return step


def _slice(bounds: Sequence[int | None]) -> Step:
    if len(bounds) > 2 and bounds[2] == 0:
        raise JsonPathError("the step of a slice may not be 0")

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[slice(*bounds)]

    return step


def _filter(text: str) -> Step:
    match = _FILTER.fullmatch(text)
    if match is None:
        raise JsonPathError(f"the filter {text!r} is none of the form @.field==value")
    find, operator = compile_path(match["path"]), match["operator"]
    wanted = _literal(match["value"]) if operator else None

    def holds(item: Any) -> bool:
        found = find(item)
        if not operator:
            return bool(found)
        try:
            return any(_COMPARISONS[operator](one, wanted) for one in found)
        except TypeError:
            return False

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from filter(holds, value)

    return step


def _literal(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        raise JsonPathError(f"{text!r} is no text in quotes and no number") from None
