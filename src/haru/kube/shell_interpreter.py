"""Run the text of a shell script as far as it is understood, command by command, without a process. Pure.

What a command does says `trivial_shell.py`; here are loops, conditions, variables, substitutions, redirections, pipes.
Time passes only in commands. A loop without an end is gone through until it is seen how it goes on.
Source: POSIX sh.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote, unquote

from haru.kube.shell_output import TURNS, Change, Printed, Ran, Stopped, Turn, evenly
from haru.kube.shell_pipes import texts, through
from haru.kube.shell_words import MOST_COMMANDS, NESTED, PUNCTUATION, expanded, parsed, redirected, stages, unrolled
from haru.kube.simulated_text import RESERVED, has_mark

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_TO_STDERR: Final = (["1", ">&", "2"], [">&", "2"])
_LOOP: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*while\s+(true|:|\[ (?:1|true) \]|sleep\s+\S+)\s*[;\n]\s*do\s(.*?)[;\n]\s*done"
    r"\s*(?:\|([^;&\n]+))?;?\s*$",
    re.DOTALL,
)
_COUNTING: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*(while|until)\s+(\[\[? [^][;\n]+ (?:-[a-z]{2}|!?==?) [^][;\n]+ \]\]?)\s*"
    r"[;\n]\s*do\s(.*?)[;\n]\s*done\b[ \t]*",
    re.DOTALL,
)
"""A loop that compares values, which nobody but itself changes."""
_READING: Final = re.compile(
    r"\|\s*while\s+(?:IFS=\s+)?read\s+(?:-r\s+)?(\w+)\s*[;\n]\s*do\s(.*?)[;\n]\s*done\b", re.DOTALL
)
"""A loop over the lines that a command prints."""
_READER: Final = "\2"
_LOOPS: Final = re.compile(r"\b(?:for|while|until|case)\s")
_CONDITION: Final = re.compile(r"(?:^|[;&|\n\s])(?:if|test|\[|&&|\|\|)[;&|\n\s\[]")
_IF: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*if\s(.*?)[;\n]\s*then\s(.*?)(?:[;\n]\s*else\s(.*?))?[;\n]\s*fi\b[ \t]*", re.DOTALL
)
_ARITHMETIC: Final = re.compile(
    r"\$\(\(\s*([$\w{}]+)\s*([-+*/%])\s*([$\w{}]+)\s*\)\)|\$\(expr ([^\s()]+) ([-+/%]) ([^\s()]+)\)"
)
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_SIGN: Final = 1 << 63
"""Shells compute with 64 bits."""
_SUBSTITUTION: Final = re.compile(r"\$\(([\w\s./-]+)\)")
_COMMAND: Final = re.compile(
    r"\$\(\s*((?:date|cat|head|tail|wc|ls)(?: [^()`|;&<>]*)?)\)|`\s*((?:date|cat|head|tail|wc|ls)(?: [^()`|;&<>]*)?)`"
)
"""A command whose output is put in when the command around it is run."""
_OUTPUT_TO_COME: Final = re.compile("\1([^\1]*)\1")
_ARRAY: Final = re.compile(r"(?:^|(?<=[;\n]))[ \t]*([A-Za-z_]\w*)=\(([^()`$]*)\)")
_ELEMENT: Final = re.compile(r"\$\{(\w+)\[(\d+|\$\w+|\$\{\w+\})\]\}")
_IN_BACKGROUND: Final = re.compile(r"(\bsleep\s+[^\s;&|]+)\s*&\s*;?\s*wait\b(?:\s+\$!)?")
_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
}  # fmt: skip
_MOST_TEXT: Final = 10_000_000
"""How long all that a program prints, writes and puts into its words may be: text that doubles in a loop ends it."""
_MOST_TURNS: Final = 100
"""Of an endless loop with conditions, which may end it, or change what its turns do."""


class ShellInterpreter(ABC):
    """Run the text of a shell.

    `files` are what it can read, and then what it has written. A file that may not be written raises OSError.
    """

    name = "sh"

    def __init__(self, variables: Mapping[str, str], files: MutableMapping[str, str] | None = None) -> None:
        self.variables = {name: RESERVED.sub("", value) for name, value in variables.items()}
        self.files: MutableMapping[str, str] = {} if files is None else files
        self.at = 0.0
        """How many seconds have passed."""
        self._ran = Ran()
        self._code = 0
        self._ends_at_failure = False
        self._readers: list[tuple[str, str]] = []
        """The loops over lines: the variable of each, and its commands."""
        self._arrays: dict[str, list[str]] = {}
        self._left = _MOST_TEXT

    @abstractmethod
    def command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""

    @abstractmethod
    def other(self, words: Sequence[str]) -> int:
        """A program that is not understood."""

    def told(self, name: str, rest: Sequence[str]) -> list[str] | None:
        """What a program prints that tells what is known from the beginning; None for another program."""
        return None

    def sees_others(self) -> bool:
        """Whether it has read a file that somebody else may change meanwhile."""
        return False

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

    # -- loops and conditions -----------------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Run a whole script."""
        text = unrolled(_IN_BACKGROUND.sub(r"\1", _ARRAY.sub(self._array, text)))
        loop = _LOOP.search(text)
        if loop is None:
            self._commands(text)
            return
        before = text[: loop.start()].strip(" ;\n")
        if before and self._commands(before):
            return
        condition = f"{loop[1]}\n" if loop[1].startswith("sleep") else ""
        if loop[3]:
            self._pipe(lambda: self._endless(condition + loop[2]), list(stages(_words(loop[3]))))
        else:
            self._endless(condition + loop[2])

    def _endless(self, text: str) -> None:
        """Go through an endless loop: once, and again where the turns differ, to see how they go on."""
        ran, before, (first, changes) = self._ran, dict(self.variables), (len(self._ran.lines), len(self._ran.changes))
        turns, begins = list[Turn](), [self.at]
        most = _MOST_TURNS if _CONDITION.search(text) else TURNS
        while not turns or (len(turns) < most and self._differs(turns[0], before)):
            line, change = len(ran.lines), len(ran.changes)
            if self._commands(text):
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

    def _commands(self, text: str) -> bool:
        """Run commands in turn; whether the shell has ended with one."""
        text = _READING.sub(self._reader, text)
        loop = _COUNTING.search(text)
        if loop is not None and not _LOOPS.search(loop[3]):
            before, after = text[: loop.start()].strip(" ;\n"), text[loop.end() :].strip(" ;\n")
            ended = (bool(before) and self._commands(before)) or self._count(loop[1] == "while", loop[2], loop[3])
            return ended or (bool(after) and self._commands(after))
        text = _COMMAND.sub(_output_to_come, text)
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
        raise Stopped

    def _computed(self, found: re.Match[str]) -> str:
        """The value of a sum, a product, a quotient or a remainder of whole numbers; otherwise its text."""
        words = [word for word in found.groups() if word is not None]
        before = found.string[: found.start()]
        if any(re.search(rf"\b{re.escape(word.strip('${}'))}=.", before, re.DOTALL) for word in (words[0], words[2])):
            return found[0]  # the variable changes before this is computed
        values = [expanded(word, self.variables, self._code) for word in (words[0], words[2])]
        first, second = (self.variables.get(value, value) for value in values)
        if not _NUMBER.fullmatch(first) or not _NUMBER.fullmatch(second) or (words[1] in "/%" and int(second) == 0):
            return found[0]
        return str((_OPERATIONS[words[1]](int(first), int(second)) + _SIGN) % (2 * _SIGN) - _SIGN)

    def _substituted(self, found: re.Match[str]) -> str:
        """The output of a command in place of it; its text, where that is not known before or is quoted."""
        words = found[1].split()
        shown = self.told(words[0].rpartition("/")[2], words[1:]) if words else None
        if shown is None or _is_quoted(found) or (len(shown) > 1 and _is_quoted(found, '"')):
            return found[0]
        return " ".join(shown)

    def _expand(self, word: str, code: int) -> str:
        """A word with its variables, and with what commands print at this moment."""
        text = expanded(_ELEMENT.sub(self._element, word), self.variables, code)
        return self._bounded(_OUTPUT_TO_COME.sub(self._output, text))

    def _array(self, found: re.Match[str]) -> str:
        self._arrays[found[1]] = _words(found[2])
        return "true"

    def _element(self, found: re.Match[str]) -> str:
        """One of an array's words; nothing where it has none."""
        words, number = self._arrays.get(found[1], ()), expanded(found[2], self.variables, 0)
        return words[int(number)] if _NUMBER.fullmatch(number) and int(number) < len(words) else ""

    def _output(self, found: re.Match[str]) -> str:
        """What a command prints, in one line unless it stands in quotes."""
        joint, _, text = unquote(found[1]).partition(":")
        with self._captured() as printed:
            self._plain([self._expand(word, self._code) for word in _words(text)])
        self._ran.lines += [one for one in printed if one.is_error]
        return ("\n" if joint else " ").join(one.text for one in printed if not one.is_error)

    def _plain_commands(self, text: str) -> bool:
        try:
            commands = list(parsed(text))
        except ValueError as error:
            self.say(f"sh: syntax error: {str(error).lower()}", is_error=True)
            self._code = 2
            return True
        for number, (joint, words) in enumerate(commands):
            if number >= MOST_COMMANDS:
                raise Stopped
            if (joint == "&&" and self._code) or (joint == "||" and not self._code):
                continue
            following = commands[number + 1][0] if number + 1 < len(commands) else ""
            if self._simple(words):
                return True
            if self._ends_at_failure and self._code and following not in ("&&", "||"):
                return True
        return False

    # -- one command --------------------------------------------------------------------------------------------------

    def _simple(self, words: list[str]) -> bool:
        """Run one command of a shell; whether the shell ends with it."""
        piped = list(stages(words))
        if len(piped) > 1:
            self._pipe(lambda: self._simple(piped[0]), piped[1:])
            return False
        words, path, appends = redirected(words)
        to_stderr = next((end for end in _TO_STDERR if words[-len(end) :] == end), [])
        words = [self._expand(word, self._code) for word in words[: len(words) - len(to_stderr)] or ["sh"]]
        if to_stderr:
            with self._captured() as printed:
                ends = self._plain(words)
            self._ran.lines += [replace(one, is_error=True) for one in printed]
            return ends
        return self._into_file(words, self._expand(path, 0), appends=appends) if path else self._plain(words)

    def _into_file(self, words: list[str], path: str, *, appends: bool) -> bool:
        """Run a command whose output goes into a file."""
        with self._captured() as printed:
            ends = self._plain(words)
            text = "".join(f"{one.text}\n" for one in printed if not one.is_error)
            text = text if self._ran.ends_line else text[:-1]
        self._ran.lines += [one for one in printed if one.is_error]
        if has_mark(path):
            self._code = self.other(words)
            return ends
        try:
            self.change(path, text, appends=appends)
        except OSError as error:
            self.say(f"{self.name}: can't create {path}: {error.strerror}", is_error=True)
            self._code = 1
        return ends

    def _pipe(self, run: Callable[[], object], piped: Sequence[list[str]]) -> None:
        """Run something, and what its output goes through."""
        stopped: Stopped | None = None
        with self._captured() as printed:
            try:
                run()
            except Stopped as error:
                stopped = error
        self._ran.lines += [one for one in printed if one.is_error]
        lines: Sequence[Printed] = [one for one in printed if not one.is_error]
        for stage in piped:
            words, path, appends = redirected(stage)
            lines = self._piped([self._expand(word, 0) for word in words], lines, goes_on=stopped is not None)
            if path:
                self._tee(self._expand(path, 0), lines, appends=appends)
                lines = ()
        self._ran.lines += lines
        if stopped is not None:
            raise stopped

    def _piped(self, words: list[str], lines: Sequence[Printed], *, goes_on: bool) -> Sequence[Printed]:
        """What one command prints of the output of the one before."""
        self._code = 0
        if words[0].startswith(_READER):
            return self._read_each(*self._readers[int(words[0].removeprefix(_READER))], lines)
        if words[0] == "tee" and words[1:]:
            appends = words[1] == "-a"
            for path in words[1 + appends :]:
                self._tee(path, lines, appends=appends)
            return lines
        shown = through(words, lines, None if goes_on else self.at)
        if shown is None:
            self._code = self.other(words)
        return shown or ()

    def _tee(self, path: str, lines: Sequence[Printed], *, appends: bool) -> None:
        now = self.at
        for one, text in texts(lines):
            self.at = one.at
            try:
                self.change(path, text, appends=appends, every=one.every)
            except OSError as error:
                self.say(f"tee: {path}: {error.strerror}", is_error=True)
                self._code = 1
                break
            appends = True
        self.at = now

    def _reader(self, found: re.Match[str]) -> str:
        if NESTED.search(found[2]):
            return found[0]
        self._readers.append((found[1], found[2]))
        return f"| {_READER}{len(self._readers) - 1}"

    def _read_each(self, name: str, text: str, lines: Sequence[Printed]) -> list[Printed]:
        """Run commands for each line; what they print. Who takes time over a line is not understood."""
        now, found, changes = self.at, list[Printed](), self._ran.changes
        for one in lines:
            self.at, self.variables[name], first = one.at, one.text.strip(), len(changes)
            with self._captured() as printed:
                self._commands(text)
            if self.at > one.at:
                self._code = self.other(["while"])
                break
            found += [replace(each, every=one.every) for each in printed]
            changes[first:] = [replace(each, every=one.every) for each in changes[first:]]
        self.at = now
        return found

    def _plain(self, words: list[str]) -> bool:
        words = words or ["sh"]
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
            self._code = (int(rest[0]) & 255 if _NUMBER.fullmatch(rest[0]) else 2) if rest else self._code
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


def _words(text: str) -> list[str]:
    """The words of a text; a command that is not understood, if its quotes are not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return ["sh"]


def _output_to_come(found: re.Match[str]) -> str:
    """What stands for the output of a command until the command around it is run; its text, where it is quoted."""
    if _is_quoted(found):
        return found[0]
    joint = "lines" if _is_quoted(found, '"') else ""
    return f"\1{quote(f'{joint}:{found[1] or found[2]}', safe='')}\1"


def _is_quoted(found: re.Match[str], mark: str = "'") -> bool:
    return found.string[: found.start()].count(mark) % 2 == 1
