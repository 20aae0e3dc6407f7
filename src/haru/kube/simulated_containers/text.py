"""Text that a simulated container prints: by `echo` and `printf`, and what depends on when: dates and turns of a loop.

A script is made before it is known when its container starts, so its lines hold marks in place of such text. Pure.
Source: `date`, `echo`, `printf` and `seq` of busybox, as behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

_USUAL: Final = "%a %b %e %H:%M:%S %Z %Y"
_DIRECTIVES: Final = frozenset("aAbBdDeFHIjmMpRsSTuwyYzZ%")
_MARK: Final = re.compile(
    "\0(-?[0-9]+:-?[0-9]+|-?[0-9]{1,11}(?:\\.[0-9]+)?(?:e-[0-9]+)?:-?[0-9.]+(?:e-[0-9]+)?:[^\0:]*)\0"
)
"""A number with how much it grows in each turn, or a date: seconds, how much later in each turn, its format."""
_CHANGING: Final = re.compile("(\0[^\0]*\0|[0-9]{1,300})")
RESERVED: Final = re.compile("[\0\1\2\3\4\5\6]")
"""What stands for text that is still to come: nobody else's text may have it."""
STILL_SECONDS: Final = 1e-6
"""Moments that are no further apart are one, and turns of a loop that differ by no more take equally long."""
SOME_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""For the length of a text whose dates are not known yet."""
_ESCAPE: Final = re.compile(r"\\([\\abefnrtv0xc1-7])")
_ESCAPED: Final = {
    "\\": "\\", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_DIRECTIVE: Final = re.compile(r"%(%|-?0?\d{0,3}[sdi])")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_MOST_NUMBERS: Final = 1000


def echoed(words: Sequence[str]) -> str | None:
    """What `echo` prints; None for a character by its number, and for an end within the text."""
    options = ""
    while words and re.fullmatch("-[neE]+", words[0]):
        options, words = options + words[0], words[1:]
    text = " ".join(words)
    shown = _unescaped(text) if "e" in options else text
    return None if shown is None else shown if "n" in options else f"{shown}\n"


def formatted(words: Sequence[str]) -> str | None:
    """What `printf` prints; None for a format that is not understood."""
    if not words or words[0].startswith("-") or has_mark(words[0]):
        return None
    form, rest = _unescaped(words[0]), list(words[1:])
    if form is None or "%" in _DIRECTIVE.sub("", form):
        return None
    takes = any(found[1] != "%" for found in _DIRECTIVE.finditer(form))
    shown = ""
    while True:
        try:
            shown += _DIRECTIVE.sub(lambda found: _one(found[1], rest), form)
        except ValueError:
            return None
        if not rest or not takes:
            return shown


def sequence(words: Sequence[str]) -> list[str] | None:
    """The numbers that `seq` prints; None for one that is not understood."""
    if not 1 <= len(words) <= 3 or not all(_NUMBER.fullmatch(word) for word in words):
        return None
    numbers = [int(word) for word in words]
    first, last = numbers[0] if len(numbers) > 1 else 1, numbers[-1]
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0 or abs(last - first) > _MOST_NUMBERS:
        return None
    return [str(number) for number in range(first, last + (1 if step > 0 else -1), step)]


def _unescaped(text: str) -> str | None:
    if any(found[1] in "0xc1234567" for found in _ESCAPE.finditer(text)):
        return None
    return _ESCAPE.sub(lambda found: _ESCAPED[found[1]], text)


def _one(directive: str, rest: list[str]) -> str:
    """The next argument as a directive of `printf` shows it. Raises ValueError."""
    if directive == "%":
        return "%"
    is_text = directive.endswith("s")
    word = rest.pop(0) if rest else "" if is_text else "0"
    if (has_mark(word) and directive != "s") or not (is_text or _NUMBER.fullmatch(word)):
        raise ValueError(word)
    return f"%{directive}" % (word if is_text else int(word))


def date_format(words: Sequence[str], variables: Mapping[str, str]) -> str | None:
    """The format by which `date` prints; None for one that is not understood."""
    rest = [word for word in words if word not in ("-u", "--utc")]
    if len(rest) == len(words) and variables.get("TZ", "UTC") not in ("", "UTC"):
        return None
    text = rest[0].removeprefix("+") if rest else _USUAL
    if len(rest) > 1 or (rest and not rest[0].startswith("+")):
        return None
    return text if set(re.findall(r"%(.?)", text)) <= _DIRECTIVES else None


def date_mark(text: str, at: float, step: float = 0.0) -> str:
    """Stand for a date in this format so many seconds after the start, and `step` later with each turn of a loop."""
    return f"\0{at!r}:{step!r}:{quote(text, safe='')}\0"


def has_mark(text: str) -> bool:
    """Whether some of a text is not known yet."""
    return "\0" in text


def progression(texts: Sequence[str]) -> str | None:
    """One text for all turns of a loop, of which these are the first three; None if they do not go on evenly."""
    parts = [_CHANGING.split(text) for text in texts]
    if len({len(one) for one in parts}) > 1:
        return None
    found = [_common(each) if number % 2 else _same(each) for number, each in enumerate(zip(*parts, strict=True))]
    return None if None in found else "".join(part for part in found if part is not None)


def turned(text: str, turn: int) -> str:
    """The text of one turn of a loop, the first of which is 0; its dates are still to be written."""

    def of_turn(found: re.Match[str]) -> str:
        first, step, *form = found[1].split(":")
        if not form:
            return str(int(first) + turn * int(step))
        return f"\0{float(first) + turn * float(step)!r}:0.0:{form[0]}\0"

    return _MARK.sub(of_turn, text) if "\0" in text else text


def from_turn(text: str, turn: int) -> str:
    """The text of all turns of a loop from this one on, for those who count from there."""

    def begun(found: re.Match[str]) -> str:
        first, step, *form = found[1].split(":")
        if not form:
            return f"\0{int(first) + turn * int(step)}:{step}\0"
        return date_mark(unquote(form[0]), float(first) + turn * float(step), float(step))

    return _MARK.sub(begun, text) if "\0" in text and turn else text


def shifted(text: str, seconds: float) -> str:
    """The text of one who begins so many seconds earlier, with the same dates."""

    def later(found: re.Match[str]) -> str:
        at, step, *form = found[1].split(":")
        return date_mark(unquote(form[0]), float(at) + seconds, float(step)) if form else found[0]

    return _MARK.sub(later, text) if "\0" in text and seconds else text


def as_printed(text: str, began: datetime) -> str:
    """The text of a container that began then."""

    def written(found: re.Match[str]) -> str:
        at, _, *form = found[1].split(":")
        return _dated(form[0], began + timedelta(seconds=float(at))) if form else at

    return _MARK.sub(written, text) if "\0" in text else text


def _dated(quoted: str, moment: datetime) -> str:
    form = _unquoted(quoted)
    return moment.strftime(form.replace("%s", str(int(moment.timestamp()))) if "%s" in form else form)


_unquoted: Final = lru_cache(64)(unquote)


def _same(parts: Sequence[str]) -> str | None:
    return parts[0] if len(set(parts)) == 1 else None


def _common(parts: Sequence[str]) -> str | None:
    """One mark or number for those of three turns; None if they do not go on evenly."""
    if all(part.isdecimal() for part in parts):
        first, second, third = map(int, parts)
        if second - first != third - second:
            return None
        return parts[0] if first == second else f"\0{first}:{second - first}\0"
    if not all("\0" in part for part in parts):
        return None
    (at, _, form), *later = [part.strip("\0").split(":") for part in parts]
    steps = [float(two) - float(one) for one, two in zip([at, later[0][0]], [one[0] for one in later], strict=True)]
    if any(one[2] != form for one in later) or abs(steps[0] - steps[1]) > STILL_SECONDS:
        return None
    return date_mark(unquote(form), float(at), steps[0])
