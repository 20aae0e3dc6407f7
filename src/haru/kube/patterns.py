"""Regular expressions as Go has them: RE2's syntax and its guarantee of linear time, whatever a user stores.

RE2 itself is imported when the first pattern is compiled.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


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
