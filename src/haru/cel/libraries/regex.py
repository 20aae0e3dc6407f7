"""Regular expressions, in RE2's syntax and with its guarantees: `matches`, and Kubernetes' `find` and `findAll`.

RE2 itself is imported when the first pattern is compiled.
"""

from __future__ import annotations

from typing import Any

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.overloads import member
from haru.cel.types import INT, STRING, list_of
from haru.kube.patterns import PatternError, compile_pattern


def _compiled(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        raise EvaluationError(str(error)) from None


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern is found anywhere in the text."""
    return _compiled(pattern).search(text) is not None


def _find(text: str, pattern: str) -> str:
    found = _compiled(pattern).search(text)
    return "" if found is None else str(found.group(0))


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    found: list[str] = []
    previous_end = -1
    for match in _compiled(pattern).finditer(text):
        # Go does not accept an empty match right after another match; RE2's own iteration does.
        if match.start() == match.end() == previous_end:
            continue
        previous_end = match.end()
        found.append(str(match.group(0)))
        if len(found) == limit:
            break
    return found


REGEX = Library(
    "kubernetes.regex",
    {
        "find": (member("string_find_string", (STRING, STRING), STRING, _find),),
        "findAll": (
            member("string_find_all_string", (STRING, STRING), list_of(STRING), _find_all),
            member("string_find_all_string_int", (STRING, STRING, INT), list_of(STRING), _find_all),
        ),
    },
)
