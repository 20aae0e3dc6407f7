"""Text that a simulated container prints and that depends on when: dates, and what changes with each turn of a loop.

A script is made before it is known when its container starts, so its lines hold marks in place of such text. Pure.
Source: `date` of busybox, as behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, unquote

_USUAL: Final = "%a %b %e %H:%M:%S %Z %Y"
_DIRECTIVES: Final = frozenset("aAbBdDeFHIjmMpRsSTuwyYzZ%")
_MARK: Final = re.compile("\0([^\0]*)\0")
_CHANGING: Final = re.compile("(\0[^\0]*\0|[0-9]+)")
_STILL_SECONDS: Final = 1e-6


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
        return date_mark(unquote(form[0]), float(first) + turn * float(step))

    return _MARK.sub(of_turn, text) if "\0" in text else text


def as_printed(text: str, began: datetime) -> str:
    """The text of a container that began then."""

    def written(found: re.Match[str]) -> str:
        at, _, form = found[1].split(":")
        moment = began + timedelta(seconds=float(at))
        return moment.strftime(unquote(form).replace("%s", str(int(moment.timestamp()))))

    return _MARK.sub(written, turned(text, 0)) if "\0" in text else text


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
    if any(one[2] != form for one in later) or abs(steps[0] - steps[1]) > _STILL_SECONDS:
        return None
    return date_mark(unquote(form), float(at), steps[0])
