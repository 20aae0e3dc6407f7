"""What a simulated shell leaves behind: lines that it prints, files that it changes, and how it ends. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from haru.kube.simulated_containers.text import STILL_SECONDS, progression

TURNS: Final = 3
"""Of an endless loop whose turns differ: as many show whether they go on evenly."""


class Stopped(Exception):
    """The program has ended, or runs on."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A line of output, so many seconds after the start; again every `every` seconds if that is given."""

    at: float
    text: str
    is_error: bool = False
    every: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is written, appended to or (without text) removed so many seconds after the start; and again.

    `until` is when its writer ends.
    """

    at: float
    path: str
    text: str | None
    appends: bool = False
    every: float = 0.0
    until: float = math.inf

    def turns(self, after: float, until: float, most: int) -> range:
        """The turns, counted from 0, in which it happens after then, up to then: the last ones if they are too many."""
        until = min(until, self.until)
        if not self.every or math.isinf(until):
            return range(int(after < self.at <= until))
        last = math.floor((until - self.at) / self.every)
        return range(max(self.turn_after(after), last + 1 - most), last + 1)

    def turn_after(self, moment: float) -> int:
        """The first turn after then."""
        return math.floor((moment - self.at) / self.every) + 1 if self.every and moment >= self.at else 0

    def at_turn(self, turn: int) -> float:
        """When it happens in a turn."""
        return self.at + turn * self.every


@dataclass(slots=True)
class Ran:
    """What a program printed, when and how it ended; `ends_after` is None for one that runs on."""

    lines: list[Printed] = field(default_factory=list)
    ends_after: float | None = None
    exit_code: int = 0
    killed: str = ""
    """Why the program was killed, if it was."""
    unknown: str = ""
    """The first command that is not understood."""
    stopped_at: float = 0.0
    """Of a program that runs on: when it came to what is not understood."""
    changes: list[Change] = field(default_factory=list)
    """The files that it has written or removed."""
    ends_line: bool = True
    """Whether a line break follows the last line."""
    awaits_input: bool = False
    """Whether it waits for input that nobody has given."""


Turn = Sequence[Printed | Change]


def evenly(turns: Sequence[Turn], periods: Sequence[float]) -> list[Printed | Change] | None:
    """What happens in all turns of a loop; None if those that were gone through do not go on evenly."""
    if len(turns) == 1:
        return [replace(one, every=periods[0]) for one in turns[0]]
    if max(periods) - min(periods) > STILL_SECONDS or len({len(one) for one in turns}) > 1:
        return None
    found = list[Printed | Change]()
    for same in zip(*turns, strict=True):
        if max(one.at for one in same) - min(one.at for one in same) > STILL_SECONDS:
            return None
        first, texts = same[0], [one.text for one in same if one.text is not None]
        text = progression(texts) if texts else None
        if len(texts) not in (0, len(same)) or (texts and text is None):
            return None
        if len({replace(one, text="", at=0.0) for one in same}) > 1:
            return None
        if isinstance(first, Change):
            found.append(replace(first, text=text, every=periods[0]))
        else:
            found.append(replace(first, text=text, every=periods[0]))
    return found
