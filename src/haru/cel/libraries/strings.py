"""The string extensions, version 2, as Kubernetes has them. Positions count characters, not bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.libraries.format_string import format_plain, format_quoted
from haru.cel.overloads import Overload, function, member
from haru.cel.types import DYN, INT, STRING, list_of
from haru.cel.values import Value, show

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_SPACE = (
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_QUOTED = {
    ord("\a"): "\\a",
    ord("\b"): "\\b",
    ord("\f"): "\\f",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    ord("\v"): "\\v",
    ord("\\"): "\\\\",
    ord('"'): '\\"',
}


def _out_of_range(position: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {position}")


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _out_of_range(position)
    return text[position : position + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        return text.rfind(part)
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def _checked_index_of(text: str, part: str, offset: int = 0) -> int:
    if offset > len(text):
        raise _out_of_range(offset)
    return _index_of(text, part, offset)


def _checked_last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is not None and offset > len(text):
        raise _out_of_range(offset)
    return _last_index_of(text, part, offset)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    if end is not None and end > len(text):
        raise _out_of_range(end)
    return text[start:end]


def _join(parts: Sequence[Value], separator: str = "") -> str:
    for part in parts:
        if part.__class__ is not str:
            raise EvaluationError(f"join: invalid input: {show(part)}")
    return separator.join(parts)


def quote(text: str) -> str:
    """The text as a literal in double quotes, without characters that could disturb a terminal or a log."""
    return f'"{text.translate(_QUOTED)}"'


_STRINGS = list_of(STRING)
_FORMATTED = (STRING, list_of(DYN))


def _positions(first: Callable[..., int], last: Callable[..., int]) -> dict[str, tuple[Overload, ...]]:
    return {
        "indexOf": (
            member("string_index_of_string", (STRING, STRING), INT, first),
            member("string_index_of_string_int", (STRING, STRING, INT), INT, first),
        ),
        "lastIndexOf": (
            member("string_last_index_of_string", (STRING, STRING), INT, last),
            member("string_last_index_of_string_int", (STRING, STRING, INT), INT, last),
        ),
    }


_FUNCTIONS: dict[str, tuple[Overload, ...]] = {
    "charAt": (member("string_char_at_int", (STRING, INT), STRING, _char_at),),
    "lowerAscii": (member("string_lower_ascii", (STRING,), STRING, lambda text: text.translate(_LOWER)),),
    "upperAscii": (member("string_upper_ascii", (STRING,), STRING, lambda text: text.translate(_UPPER)),),
    "replace": (
        member("string_replace_string_string", (STRING, STRING, STRING), STRING, str.replace),
        member("string_replace_string_string_int", (STRING, STRING, STRING, INT), STRING, str.replace),
    ),
    "split": (
        member("string_split_string", (STRING, STRING), _STRINGS, _split),
        member("string_split_string_int", (STRING, STRING, INT), _STRINGS, _split),
    ),
    "substring": (
        member("string_substring_int", (STRING, INT), STRING, _substring),
        member("string_substring_int_int", (STRING, INT, INT), STRING, _substring),
    ),
    "trim": (member("string_trim", (STRING,), STRING, lambda text: text.strip(_SPACE)),),
    "join": (
        member("list_join", (_STRINGS,), STRING, _join),
        member("list_join_string", (_STRINGS, STRING), STRING, _join),
    ),
    "strings.quote": (function("strings_quote", (STRING,), STRING, quote),),
}

STRINGS = Library(
    "cel.lib.ext.strings",
    {
        **_FUNCTIONS,
        **_positions(_index_of, _last_index_of),
        "format": (member("string_format", _FORMATTED, STRING, format_quoted),),
    },
)
"""What Kubernetes has."""

LATEST_STRINGS = Library(
    "cel.lib.ext.strings.latest",
    {
        **_FUNCTIONS,
        **_positions(_checked_index_of, _checked_last_index_of),
        "format": (member("string_format", _FORMATTED, STRING, format_plain),),
        "reverse": (member("string_reverse", (STRING,), STRING, lambda text: text[::-1]),),
    },
)
"""What the specification has by now: `reverse`, `format` without quotes, offsets beyond the end as errors."""
