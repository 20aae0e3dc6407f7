"""What a simulated shell prints and writes, and its loops, which are gone through until it is seen what follows. Pure.

A loop that waits for the network, or for files of others, is gone through turn by turn, but for turns that are alike:
what it asks next changes at a moment that is known, or never as things stand.
Source: POSIX sh.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Final

from haru.kube.simulated_containers.shell_output import TURNS, Change, Printed, Ran, Stopped, Turn, evenly
from haru.kube.simulated_containers.shell_words import MOST_COMMANDS
from haru.kube.simulated_containers.text import RESERVED, has_mark, shifted

_CONDITION: Final = re.compile(r"(?:^|[;&|\n\s])(?:if|test|\[|&&|\|\|)[;&|\n\s\[]")
_MOST_TEXT: Final = 10_000_000
"""How long all that a program prints, writes and puts into its words may be: text that doubles in a loop ends it."""
_MOST_TURNS: Final = 100
"""Of an endless loop with conditions, which may end it, or change what its turns do."""
_MOST_LINES: Final = 10_000
"""Of turns that are all alike: more of them are not listed."""


class _LoopLeft(Exception):
    """A loop is left by `break`."""


class ShellLoops(ABC):
    """What a shell leaves behind, and its loops.

    `files` are what it can read, and then what it has written. A file that may not be written raises OSError.
    """

    def __init__(self, variables: Mapping[str, str], files: MutableMapping[str, str] | None = None) -> None:
        self.variables = {name: RESERVED.sub("", value) for name, value in variables.items()}
        self.files: MutableMapping[str, str] = {} if files is None else files
        self.at = 0.0
        """How many seconds have passed."""
        self.awaited: list[float] = []
        """When what the present turn of a loop has asked of the network changes, in seconds from the start."""
        self._ran = Ran()
        self._code = 0
        self._left = _MOST_TEXT
        self.seed = ""
        """From which `$RANDOM` comes: whoever looks at a run of a container sees the same numbers."""
        self._drawn = 0
        self._loops = 0

    @abstractmethod
    def _commands(self, text: str) -> bool:
        """Run commands in turn; whether the shell has ended with one."""

    @abstractmethod
    def _holds(self, condition: str) -> bool | None:
        """Whether commands succeed, whose failure ends no shell; None if it has ended with one."""

    def random(self) -> str:
        """The next value of `$RANDOM`."""
        self._drawn += 1
        return str(zlib.crc32(f"{self.seed}/{self._drawn}".encode()) >> 17)

    def sees_others(self) -> bool:
        """Whether it has read a file that somebody else may change meanwhile."""
        return False

    def next_change(self) -> float | None:
        """When a file changes that was read since the last call: infinity for never; None if none was read."""
        return None

    # -- output -------------------------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[Printed]:
        """What was printed so far."""
        return self._ran.lines

    def say(self, text: str, *, is_error: bool = False, every: float = 0.0, is_whole: bool = True) -> None:
        """Print a line, or a part of one that the next text continues."""
        lines, text = self._ran.lines, self._bounded(text)
        if lines and not self._ran.ends_line and lines[-1].is_error == is_error:
            text = lines.pop().text + text
        lines.append(Printed(self.at, text, is_error, every))
        self._ran.ends_line = is_whole

    def print_text(self, text: str) -> None:
        """Print text of several lines, the last one perhaps without a line break."""
        for line in text.splitlines(keepends=True):
            self.say(line.rstrip("\n"), is_whole=line.endswith("\n"))

    def change(self, path: str, text: str | None, *, appends: bool = False, every: float = 0.0) -> None:
        """Write a file, append to it, or remove it. Raises OSError."""
        if text is None:
            self.files.pop(path, None)
        else:
            self.files[path] = self._bounded(self.files.get(path, "") + text if appends else text)
        self._ran.changes.append(Change(self.at, path, text, appends, every))

    def _bounded(self, text: str) -> str:
        self._left -= len(text) + 30  # each line and word takes time, however short
        if self._left < 0:
            raise Stopped
        return text

    @contextlib.contextmanager
    def _captured(self) -> Iterator[list[Printed]]:
        """Have what is printed meanwhile in a list of its own."""
        ran, shown, ends_line = self._ran, self._ran.lines, self._ran.ends_line
        ran.lines, ran.ends_line = [], True
        try:
            yield ran.lines
        finally:
            ran.lines, ran.ends_line = shown, ends_line

    def leave_loop(self) -> None:
        """Do what `break` does; outside of loops it does nothing."""
        self._code = 0
        if self._loops:
            raise _LoopLeft

    # -- loops --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _in_loop(self) -> Iterator[None]:
        """A part of a loop, or all of it, which ends at `break`."""
        self._loops += 1
        try:
            yield
        except _LoopLeft:
            pass
        finally:
            self._loops -= 1

    def _endless(self, turn: Callable[[], bool], text: str) -> None:
        """Go through an endless loop: once, and again where the turns differ, to see how they go on."""
        ran, before, (first, changes) = self._ran, dict(self.variables), (len(self._ran.lines), len(self._ran.changes))
        turns, begins = list[Turn](), [self.at]
        most = _MOST_TURNS if _CONDITION.search(text) else TURNS
        while not turns or (len(turns) < most and self._differs(turns[0], before)):
            line, change = len(ran.lines), len(ran.changes)
            if turn():
                return
            turns.append([*ran.lines[line:], *ran.changes[change:]])
            begins.append(self.at)
        last = [
            [replace(one, at=one.at - begin + begins[-1 - len(turns[-TURNS:])]) for one in turn]
            for turn, begin in zip(turns[-TURNS:], begins[-1 - len(turns[-TURNS:]) :], strict=False)
        ]
        goes_on = evenly(last, [end - begin for begin, end in itertools.pairwise(begins[-1 - len(last) :])])
        if goes_on is not None:
            every = [one for turn in turns[: -len(last)] for one in turn] + goes_on
            ran.lines[first:] = [one for one in every if isinstance(one, Printed)]
            ran.changes[changes:] = [one for one in every if isinstance(one, Change)]
        raise Stopped

    def _differs(self, turn: Turn, variables: Mapping[str, str]) -> bool:
        if self.variables != variables or self.sees_others():
            return True
        return any(isinstance(one, Change) or has_mark(one.text) for one in turn)

    def _count(self, while_it_holds: bool, condition: str, text: str) -> bool:
        """Go through a loop as long as its condition says; whether the shell has ended in it."""
        code = 0

        def turn() -> bool | None:
            nonlocal code
            holds = self._holds(condition)
            if holds is None or holds != while_it_holds:
                self._code = code
                return holds is None
            if self._commands(text):
                return True
            code = self._code
            return None

        return self._go_through(turn, text)

    def _go_through(self, turn: Callable[[], bool | None], text: str, *, is_endless: bool = False) -> bool:
        """Go through a loop until a turn tells its end: whether the shell has ended with it."""
        for number in range(MOST_COMMANDS + 1):
            begin, line, change = self.at, len(self._ran.lines), len(self._ran.changes)
            before = dict(self.variables), self._drawn
            self.awaited.clear()
            self.next_change()
            ended: bool | None = False  # unless `break` says so
            with self._in_loop():
                ended = turn()
            if ended is not None:
                return ended
            read = self.next_change()
            due = min([*self.awaited, *([] if read is None else [read])], default=0.0)
            is_last = is_endless and number == MOST_COMMANDS
            if not is_last and ((self.variables, self._drawn) != before or len(self._ran.changes) > change):
                continue
            if is_last or math.isinf(due):
                with self._in_loop():
                    self._endless(lambda: turn() is True, text)
                    return True
                return False
            self._repeat(begin, self._ran.lines[line:], due)
        raise Stopped

    def _repeat(self, begin: float, lines: list[Printed], until: float) -> None:
        """Have the turn that began then, with these lines, as often again as nothing changes for it."""
        period = self.at - begin
        number = math.floor((until - self.at) / period) if period > 0 else 0
        for again in range(max(1, number + 1 - _MOST_LINES // max(1, len(lines))), number + 1):
            later = again * period
            self._ran.lines += [replace(one, at=one.at + later, text=shifted(one.text, later)) for one in lines]
        self.at += max(0, number) * period
