"""What the output of a simulated command goes through after `|`: `grep`, `sort`, `awk`, `cut`, `head` and others. Pure.

Lines keep their times, so that a pipe of a command that runs on goes on as well, where it takes line by line.
Source: busybox, as behaviour.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from haru.kube.simulated_containers.shell_output import Printed
from haru.kube.simulated_containers.text import SOME_DAY, as_printed, has_mark

_Line = TypeVar("_Line")
_COUNT: Final = re.compile(r"-n\s*([+-]?\d{1,9})|-(\d{1,9})")
FIELD: Final = "\6"
"""Before the number of the field that `awk` is to print."""
_CUT: Final = re.compile(r"(?:-d\t?(.)\t)?-f\t?([1-9]\d{0,5})(?:\t-d\t?(.))?")
_PATTERN: Final = re.compile(r"[][\\.*^$+?(){}|]")


def line_count(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """How many lines `head` and `tail` are asked for, as it is written, and the other words; None for other options."""
    count, rest, options = "10", list[str](), list(words)
    while options:
        word = options.pop(0)
        found = _COUNT.fullmatch(f"{word} {options.pop(0)}" if word == "-n" and options else word)
        if found is not None:
            count = found[1] or found[2]
        elif word.startswith("-"):
            return None
        else:
            rest.append(word)
    return count, rest


def part(name: str, lines: Sequence[_Line], count: str) -> Sequence[_Line]:
    """The lines that `head` or `tail` shows of these."""
    number = int(count)
    if name == "head":
        return lines[:number]
    return lines[max(number, 1) - 1 :] if count.startswith("+") else lines[max(0, len(lines) - abs(number)) :]


def counted(options: Sequence[str], text: str, name: str = "") -> str | None:
    """What `wc` prints of a text, in which dates are as long as they mostly are; None for other options."""
    wanted = "".join(option[1:] for option in options) or "lwc"
    if not set(wanted) <= set("lwc"):
        return None
    text = as_printed(text, SOME_DAY)
    numbers = {"l": text.count("\n"), "w": len(text.split()), "c": len(text.encode())}
    shown = [numbers[each] for each in "lwc" if each in wanted]
    told = str(shown[0]) if len(shown) == 1 else " ".join(f"{number:9d}" for number in shown)
    return f"{told} {name}" if name else told


def through(words: Sequence[str], lines: Sequence[Printed], ends_at: float | None) -> Sequence[Printed] | None:
    """What a command prints of these lines, which end then, or never; None for one that is not understood."""
    name, rest = words[0].rpartition("/")[2], list(words[1:])
    if name == "cat" and not rest:
        return lines
    if name == "grep":
        return _matching(rest, lines)
    if name == "sort":
        return _sorted(rest, lines, ends_at)
    if name in ("awk", "cut"):
        field = _field_of_awk(rest) if name == "awk" else _field_of_cut(rest)
        if field is None or any(has_mark(one.text) for one in lines):
            return None
        return [replace(one, text=field(one.text)) for one in lines]
    if name not in ("wc", "head", "tail"):
        return None
    if ends_at is None:
        return ()
    if name == "wc":
        shown = counted(rest, "".join(f"{one.text}\n" for one in lines))
        return None if shown is None else [Printed(ends_at, shown)]
    asked = line_count(rest)
    return part(name, lines, asked[0]) if asked is not None and not asked[1] else None


def _matching(rest: Sequence[str], lines: Sequence[Printed]) -> Sequence[Printed] | None:
    options = "".join(one[1:] for one in rest[:-1])
    if not rest or not all(one.startswith("-") for one in rest[:-1]) or not set(options) <= set("vFqiE"):
        return None
    fold = str.casefold if "i" in options else str
    wanted = _alternatives(fold(rest[-1])) if "E" in options else [rest[-1]]
    if any(_PATTERN.search(one) for one in wanted) and "F" not in options:
        return None
    return [one for one in lines if any(fold(each) in fold(one.text) for each in wanted) != ("v" in options)]


def _alternatives(pattern: str) -> Sequence[str]:
    """The words of an extended expression that is one or another of them."""
    inner = pattern[1:-1] if pattern.startswith("(") and pattern.endswith(")") else pattern
    return inner.split("|")


def _sorted(rest: Sequence[str], lines: Sequence[Printed], ends_at: float | None) -> Sequence[Printed] | None:
    """What `sort` prints once all lines are there; None for other options, and where a line is not known yet."""
    options = "".join(one[1:] for one in rest)
    if not all(one.startswith("-") for one in rest) or not set(options) <= set("ru"):
        return None
    if ends_at is None:
        return ()
    if any(has_mark(one.text) for one in lines):
        return None
    found = sorted({one.text for one in lines} if "u" in options else (one.text for one in lines))
    return [Printed(ends_at, text) for text in (reversed(found) if "r" in options else found)]


def is_quiet(words: Sequence[str]) -> bool:
    """Whether a `grep` prints nothing."""
    return any(one.startswith("-") and "q" in one for one in words[1:-1])


def _field_of_awk(rest: Sequence[str]) -> Callable[[str], str] | None:
    """What `awk '{print $N}'` prints of a line; None for another program."""
    if not rest or not rest[-1].startswith(FIELD) or not all(one.startswith("-F") for one in rest[:1] if len(rest) > 1):
        return None
    separator = "".join(rest[:-1]).removeprefix("-F") or None
    if separator is not None and (len(separator) > 1 or separator == "\\"):
        return None
    number = rest[-1].removeprefix(FIELD)

    def field(line: str) -> str:
        parts = line.split(separator)
        if number == "NF":
            return parts[-1] if parts else ""
        return line if number == "0" else parts[int(number) - 1] if int(number) <= len(parts) else ""

    return field


def _field_of_cut(rest: Sequence[str]) -> Callable[[str], str] | None:
    """What `cut -d X -f N` prints of a line; None for other options."""
    found = _CUT.fullmatch("\t".join(rest))
    if found is None:
        return None
    separator, number = found[1] or found[3], int(found[2])

    def field(line: str) -> str:
        parts = line.split(separator)
        return line if len(parts) == 1 else parts[number - 1] if number <= len(parts) else ""

    return field


def texts(lines: Sequence[Printed]) -> Iterator[tuple[Printed, str]]:
    """What to write into a file of these lines: those of one moment together, with the first of them."""
    for _, same in itertools.groupby(lines, lambda one: (one.at, one.every)):
        each = list(same)
        yield each[0], "".join(f"{one.text}\n" for one in each)
