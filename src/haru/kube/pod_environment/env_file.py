"""Files of environment variables: `NAME='VALUE'`, a value over several lines, comments. Pure.

Source: KEP-3721; which files kubelets take, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator

_BLANK = " \t"


def value_in(text: str, key: str) -> str:
    """The value of a variable, empty if it is not there. Raises ValueError that names the line."""
    lines = enumerate((line.removesuffix("\r") for line in text.split("\n")), 1)
    for number, line in lines:
        entry = line.lstrip(_BLANK)
        if not entry or entry.startswith("#"):
            continue
        name, equals, rest = entry.partition("=")
        if not equals or not name or name != name.rstrip(_BLANK):
            raise ValueError(f"line {number}: write NAME='VALUE'")
        if rest != rest.lstrip(_BLANK):
            # As in a shell, which takes `NAME= x` for an empty variable.
            if name == key:
                return ""
            continue
        if not rest.startswith("'"):
            raise ValueError(f"line {number}: the value must be in single quotes")
        value = _quoted(rest[1:], lines, number)
        if name == key:
            return value
    return ""


def _quoted(rest: str, lines: Iterator[tuple[int, str]], number: int) -> str:
    """Up to the closing quote, which may be some lines further on."""
    parts = []
    while "'" not in rest:
        parts.append(rest)
        following = next(lines, None)
        if following is None:
            raise ValueError(f"line {number}: the quote is not closed")
        rest = following[1]
    last, _, after = rest.partition("'")
    after = after.lstrip(_BLANK)
    if after and not after.startswith("#"):
        raise ValueError(f"line {number}: nothing may follow the quote but a comment")
    return "\n".join([*parts, last])
