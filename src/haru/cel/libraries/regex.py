"""Regular expressions, in RE2's syntax and with its guarantees: `matches`, and Kubernetes' `find` and `findAll`.

RE2 itself is imported when the first pattern is compiled.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from haru.cel.environment import Library, member
from haru.cel.errors import EvaluationError
from haru.cel.types import INT, STRING, list_of


class PatternError(ValueError):
    """The pattern is not a regular expression."""


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Any:
    """The compiled pattern. Raises PatternError."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(f"error parsing regexp: {_in_go(text)}") from None


_GO_WORDS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}


def _in_go(text: str) -> str:
    """What Go's library says where RE2 says this."""
    what, colon, where = text.partition(": ")
    if what.startswith("trailing \\"):
        return "trailing backslash at end of expression: ``"
    return f"{_GO_WORDS.get(what, what)}: `{where}`" if colon else what


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
