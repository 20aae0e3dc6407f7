"""Run trivial commands without a process: what they print, how long they take and how they end. Pure.

Understood are `true`, `false`, `sleep N`, `echo WORDS`, `printf`, `date`, `cat FILE` of what was written, `stress
--vm-bytes N` (killed above the memory limit), and `sh -c` of these, of `exit N`, `trap` and of `NAME=VALUE`, joined by
`;`, `&&`, `||` and line breaks; `if …; then …; else …; fi`, `while true; do …; done` and `for NAME in WORDS; do …;
done` of these; `$((A + B))`; `>` and `>>` into a file. Time passes only in `sleep`. At the first command that is not
understood the program counts as one that runs on.
Source: commands of POSIX sh.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
import shlex
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote, unquote

from haru.kube.shell_words import MOST_COMMANDS, NESTED, PUNCTUATION, expanded, parsed, redirected, unrolled
from haru.kube.simulated_text import date_format, date_mark, echoed, formatted, has_mark, progression

OOM_KILLED: Final = "OOMKilled"
BUILTINS: Final = ("exit", "set", "cd", "export", "trap")
"""Commands of shells only: nothing of that name is in `$PATH`."""
SHELLS: Final = ("sh", "bash", "ash", "dash")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SLEEP: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_TO_STDERR: Final = (["1", ">&", "2"], [">&", "2"])
_LOOP: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*while\s+(true|:|\[ (?:1|true) \]|sleep\s+\S+)\s*[;\n]\s*do\s(.*?)[;\n]\s*done\s*;?\s*$",
    re.DOTALL,
)
_COUNTING: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*(while|until)\s+(\[\[? [^][;\n]+ (?:-[a-z]{2}|!?==?) [^][;\n]+ \]\]?)\s*"
    r"[;\n]\s*do\s(.*?)[;\n]\s*done\b[ \t]*",
    re.DOTALL,
)
"""A loop that compares values, which nobody but itself changes."""
_LOOPS: Final = re.compile(r"\b(?:for|while|until|case)\s")
_IF: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*if\s(.*?)[;\n]\s*then\s(.*?)(?:[;\n]\s*else\s(.*?))?[;\n]\s*fi\b[ \t]*", re.DOTALL
)
_ARITHMETIC: Final = re.compile(
    r"\$\(\(\s*([$\w{}]+)\s*([-+*/%])\s*([$\w{}]+)\s*\)\)|\$\(expr ([^\s()]+) ([-+/%]) ([^\s()]+)\)"
)
_SUBSTITUTION: Final = re.compile(r"\$\(([\w\s./-]+)\)")
_DATE: Final = re.compile(r"\$\((date(?: [^()`$]*)?)\)|`(date(?: [^()`$]*)?)`")
_DATE_TO_COME: Final = re.compile("\1([^\1]*)\1")
_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
}  # fmt: skip
_SIGNALS: Final = frozenset({"TERM", "INT", "HUP", "QUIT", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"})
"""Which no container gets before it is stopped."""
_TURNS: Final = 3
"""Of an endless loop whose turns differ: as many show whether they go on evenly."""
_FILLING_SECONDS: Final = 1.0
_STILL_SECONDS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Printed:
    """A line of output, so many seconds after the start; again every `every` seconds if that is given."""

    at: float
    text: str
    is_error: bool = False
    every: float = 0.0


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
    changes: list[float] = field(default_factory=list)
    """When it has written or removed files."""
    ends_line: bool = True
    """Whether a line break follows the last line."""


class _Stopped(Exception):
    """The program has ended, or runs on."""


class TrivialShell:
    """Run one program, as far as it comes until then.

    `memory` is the limit in bytes; `files` are what it can read, and then what it has written. A file that may not be
    written raises OSError.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        memory: float = math.inf,
        files: MutableMapping[str, str] | None = None,
        until: float = math.inf,
    ) -> None:
        self.variables, self._memory, self._until = dict(variables), memory, until
        self.files: MutableMapping[str, str] = {} if files is None else files
        self._ran = Ran()
        self._at, self._code = 0.0, 0
        self._ends_at_failure = False
        self.has_clock = False
        """Whether who shows the lines knows when the program began, so that it may print dates."""
        self.name = "sh"

    def run(self, argv: Sequence[str]) -> Ran:
        """What this program does, given as its words."""
        self.name = argv[0]
        name = argv[0].rpartition("/")[2]
        ran = self._ran
        try:
            given = [*argv[1:-1]]
            options = given[:-1] if given[-1:] == ["--"] else given
            if name in SHELLS and options and all(one.startswith("-") for one in options) and "c" in options[-1]:
                self._ends_at_failure = any("e" in option for option in options)
                self._text(argv[-1])
            else:
                self._code = self.command([name, *argv[1:]])
        except _Stopped as stopped:
            if not stopped.args:
                ran.stopped_at = self._at
                return ran
            ran.killed = str(stopped.args[0])
        ran.ends_after, ran.exit_code = self._at, self._code
        return ran

    @property
    def lines(self) -> list[Printed]:
        """What was printed so far."""
        return self._ran.lines

    def say(self, text: str, *, is_error: bool = False, every: float = 0.0, is_whole: bool = True) -> None:
        """Print a line, or a part of one that the next text continues."""
        lines = self._ran.lines
        if lines and not self._ran.ends_line and lines[-1].is_error == is_error:
            text = lines.pop().text + text
        lines.append(Printed(self._at, text, is_error, every))
        self._ran.ends_line = is_whole

    def print_text(self, text: str) -> None:
        """Print text of several lines, the last one perhaps without a line break."""
        for line in text.splitlines(keepends=True):
            self.say(line.rstrip("\n"), is_whole=line.endswith("\n"))

    def change(self, path: str, text: str | None) -> None:
        """Write a file, or remove it. Raises OSError."""
        if text is None:
            self.files.pop(path, None)
        else:
            self.files[path] = text
        self._ran.changes.append(self._at)

    def last(self, seconds: float) -> None:
        """Let time pass."""
        self._at += seconds
        if self._at > self._until:
            raise _Stopped

    def command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""
        name, rest = words[0], words[1:]
        if name in ("true", ":"):
            return 0
        if name == "false":
            return 1
        if name == "sleep":
            return self._sleep(rest)
        text = echoed(rest) if name == "echo" else formatted(rest) if name == "printf" else None
        if text is not None:
            self.print_text(text)
            return 0
        if name == "trap" and len(rest) > 1 and _SIGNALS.issuperset(rest[1:]):
            return 0
        form = date_format(rest, self.variables) if name == "date" and self.has_clock else None
        if form is not None:
            self.say(date_mark(form, self._at))
            return 0
        if name == "cat" and rest and all(path in self.files for path in rest):
            for path in rest:
                self.print_text(self.files[path])
            return 0
        if name in ("stress", "stress-ng") and "--vm-bytes" in rest[:-1]:
            wanted = _bytes(rest[rest.index("--vm-bytes") + 1]) * _count(rest)
            if wanted > self._memory:
                self._at += _FILLING_SECONDS
                raise _Stopped(OOM_KILLED)
        return self.other(words)

    def told(self, name: str, rest: Sequence[str]) -> list[str] | None:
        """What a program prints that tells what is known from the beginning; None for another program."""
        return None

    def other(self, words: Sequence[str]) -> int:
        """A program that is not understood: it runs on."""
        self._ran.unknown = words[0]
        raise _Stopped

    # -- text of a shell ----------------------------------------------------------------------------------------------

    def _text(self, text: str) -> None:
        text = unrolled(text)
        loop = _LOOP.search(text)
        if loop is None:
            self._commands(text)
            return
        before = text[: loop.start()].strip(" ;\n")
        if before and self._commands(before):
            return
        condition = f"{loop[1]}\n" if loop[1].startswith("sleep") else ""
        self._endless(condition + loop[2])

    def _endless(self, text: str) -> None:
        """Go through an endless loop: once, and again where the turns differ, to see how they go on."""
        lines, first, began = self._ran.lines, len(self._ran.lines), self._at
        known, changes = dict(self.variables), len(self._ran.changes)
        turns, ends = list[list[Printed]](), [began]
        while not turns or (len(turns) < _TURNS and len(self._ran.changes) == changes and self._differs(turns, known)):
            number = len(lines)
            if self._commands(text):
                return
            turns.append([replace(one, at=one.at - ends[-1] + began) for one in lines[number:]])
            ends.append(self._at)
        goes_on = _evenly(turns, [end - start for start, end in itertools.pairwise(ends)])
        if goes_on is not None:
            lines[first:] = goes_on
        raise _Stopped

    def _differs(self, turns: Sequence[Sequence[Printed]], known: Mapping[str, str]) -> bool:
        return self.variables != known or any(has_mark(one.text) for one in turns[0])

    def _commands(self, text: str) -> bool:
        """Run commands in turn; whether the shell has ended with one."""
        loop = _COUNTING.search(text)
        if loop is not None and not _LOOPS.search(loop[3]):
            before, after = text[: loop.start()].strip(" ;\n"), text[loop.end() :].strip(" ;\n")
            ended = (bool(before) and self._commands(before)) or self._count(loop[1] == "while", loop[2], loop[3])
            return ended or (bool(after) and self._commands(after))
        text = _DATE.sub(self._date_to_come, text)
        text = _SUBSTITUTION.sub(self._substituted, _ARITHMETIC.sub(self._computed, text))
        chosen = _IF.search(text)
        if chosen is None:
            return self._plain_commands(text)
        condition, then, other = chosen[1], chosen[2], chosen[3] or "true"
        if NESTED.search(then) or NESTED.search(other):
            self.other(["if"])
        before, after = text[: chosen.start()].strip(" ;\n"), text[chosen.end() :].strip(" ;\n")
        if before and self._plain_commands(before):
            return True
        holds = self._holds(condition)
        if holds is None or self._plain_commands(then if holds else other):
            return True
        return bool(after) and self._commands(after)

    def _holds(self, condition: str) -> bool | None:
        """Whether commands succeed, whose failure ends no shell; None if it has ended with one."""
        ends, self._ends_at_failure = self._ends_at_failure, False
        has_ended = self._plain_commands(condition)
        self._ends_at_failure = ends
        return None if has_ended else not self._code

    def _count(self, while_it_holds: bool, condition: str, text: str) -> bool:
        """Go through a loop as long as its condition says; whether the shell has ended in it."""
        code = 0
        for _ in range(MOST_COMMANDS):
            if self._holds(condition) != while_it_holds:
                self._code = code
                return False
            if self._commands(text):
                return True
            code = self._code
        raise _Stopped

    def _computed(self, found: re.Match[str]) -> str:
        """The value of a sum, a product, a quotient or a remainder of whole numbers; otherwise its text."""
        words = [word for word in found.groups() if word is not None]
        before = found.string[: found.start()]
        if any(re.search(rf"\b{re.escape(word.strip('${}'))}=.", before, re.DOTALL) for word in (words[0], words[2])):
            return found[0]  # the variable changes before this is computed
        values = [expanded(word, self.variables, self._code) for word in (words[0], words[2])]
        first, second = (self.variables.get(value, value) for value in values)
        if not first.isdecimal() or not second.isdecimal() or (words[1] in "/%" and int(second) == 0):
            return found[0]
        return str(_OPERATIONS[words[1]](int(first), int(second)))

    def _substituted(self, found: re.Match[str]) -> str:
        """The output of a command in place of it; its text, where that is not known before or is quoted."""
        words = found[1].split()
        shown = self.told(words[0].rpartition("/")[2], words[1:]) if words else None
        if shown is None or _is_quoted(found) or (len(shown) > 1 and _is_quoted(found, '"')):
            return found[0]
        return " ".join(shown)

    def _date_to_come(self, found: re.Match[str]) -> str:
        """What stands for a date until its command is run; its text, where it is not understood or is quoted."""
        try:
            words = shlex.split(found[1] or found[2])
        except ValueError:
            return found[0]
        form = date_format(words[1:], self.variables) if self.has_clock and not _is_quoted(found) else None
        return found[0] if form is None else f"\1{quote(form, safe='')}\1"

    def _expand(self, word: str, code: int) -> str:
        """A word with its variables, and with the dates of this moment."""
        text = expanded(word, self.variables, code)
        return _DATE_TO_COME.sub(lambda found: date_mark(unquote(found[1]), self._at), text)

    def _plain_commands(self, text: str) -> bool:
        try:
            commands = list(parsed(text))
        except ValueError as error:
            self.say(f"sh: syntax error: {str(error).lower()}", is_error=True)
            self._code = 2
            return True
        for number, (joint, words) in enumerate(commands):
            if number >= MOST_COMMANDS:
                raise _Stopped
            if (joint == "&&" and self._code) or (joint == "||" and not self._code):
                continue
            following = commands[number + 1][0] if number + 1 < len(commands) else ""
            if self._simple(words):
                return True
            if self._ends_at_failure and self._code and following not in ("&&", "||"):
                return True
        return False

    def _simple(self, words: list[str]) -> bool:
        """Run one command of a shell; whether the shell ends with it."""
        words, path, appends = redirected(words)
        ends_line = self._ran.ends_line
        if path:
            self._ran.ends_line = True
        first, lines = len(self._ran.lines), self._ran.lines
        to_stderr = next((end for end in _TO_STDERR if words[-len(end) :] == end), [])
        words = words[: len(words) - len(to_stderr)] or ["sh"]
        ends = self._plain([self._expand(word, self._code) for word in words])
        if to_stderr:
            lines[first:] = [Printed(one.at, one.text, True, one.every) for one in lines[first:]]
        elif path:
            path = self._expand(path, 0)
            written = "".join(f"{one.text}\n" for one in lines[first:] if not one.is_error)
            written = written if self._ran.ends_line else written[:-1]
            lines[first:] = [one for one in lines[first:] if one.is_error]
            self._ran.ends_line = ends_line
            if has_mark(path + written):  # a file is read as what it holds, and at any time
                self._code = self.other(words)
                return ends
            try:
                self.change(path, (self.files.get(path, "") if appends else "") + written)
            except OSError as error:
                self.say(f"{self.name}: can't create {path}: {error.strerror}", is_error=True)
                self._code = 1
        return ends

    def _plain(self, words: list[str]) -> bool:
        if any(set(word) & set(PUNCTUATION) and set(word) <= set(PUNCTUATION) for word in words):
            words = ["sh"]
        replaced = words[0] == "exec"
        words = words[1:] if replaced and len(words) > 1 else words
        assigned = [
            _ASSIGNMENT.fullmatch(word) for word in (words[1:] if words[0] == "export" and words[1:] else words)
        ]
        if words[0] not in ("echo", "printf") and not all(assigned) and any(map(has_mark, words)):
            words = ["sh"]
        name, rest = words[0].rpartition("/")[2], words[1:]
        if name == "exit":
            self._code = (int(rest[0]) & 255 if rest[0].isdigit() else 2) if rest else self._code
            return True
        if name == "set" and rest and set(rest[0]) <= set("-euxo"):
            self._ends_at_failure |= "e" in rest[0]
            self._code = 0
            return replaced
        if all(assigned):
            self.variables |= {one[1]: one[2] for one in assigned if one is not None}
            self._code = 0
            return replaced
        if assigned[0] is not None and name != "export":  # for this command alone
            before, self.variables = self.variables, {**self.variables, assigned[0][1]: assigned[0][2]}
            ends = self._plain(words[1:])
            self.variables = before
            return ends or replaced
        self._code = self.command([name, *rest])
        return replaced

    def _sleep(self, words: Sequence[str]) -> int:
        found = [_SLEEP.fullmatch(word) for word in words]
        if words and words[0] in ("infinity", "inf"):
            raise _Stopped
        if not found or None in found:
            self.say(f"sleep: invalid number '{' '.join(words)}'", is_error=True)
            return 1
        self.last(sum(float(one[1]) * _SECONDS[one[2]] for one in found if one is not None))
        return 0


def _evenly(turns: Sequence[Sequence[Printed]], periods: Sequence[float]) -> list[Printed] | None:
    """The lines of all turns of a loop; None if those that were gone through do not go on evenly."""
    if len(turns) == 1:
        return [replace(one, every=periods[0]) for one in turns[0]]
    if max(periods) - min(periods) > _STILL_SECONDS or len({len(one) for one in turns}) > 1:
        return None
    found = list[Printed]()
    for same in zip(*turns, strict=True):
        text = progression([one.text for one in same])
        if text is None or max(one.at for one in same) - min(one.at for one in same) > _STILL_SECONDS:
            return None
        found.append(replace(same[0], text=text, every=periods[0]))
    return found


def _is_quoted(found: re.Match[str], mark: str = "'") -> bool:
    return found.string[: found.start()].count(mark) % 2 == 1


def _bytes(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmgBKMG]?)", text)
    scale = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3}
    return float(found[1]) * 1024.0 ** scale[found[2].lower()] if found else 0.0


def _count(words: Sequence[str]) -> int:
    for name in ("--vm", "-m"):
        if name in words[:-1] and words[words.index(name) + 1].isdigit():
            return max(1, int(words[words.index(name) + 1]))
    return 1
