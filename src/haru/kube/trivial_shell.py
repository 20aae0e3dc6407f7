"""Run trivial commands without a process: what they print, how long they take and how they end. Pure.

Understood are `true`, `false`, `sleep N`, `echo WORDS`, `cat FILE` of what was written, `stress --vm-bytes N` (killed
above the memory limit), and `sh -c` of these, of `exit N` and of `NAME=VALUE`, joined by `;`, `&&`, `||` and line
breaks; `if …; then …; else …; fi`, `while true; do …; done` and `for NAME in WORDS; do …; done` of these; `$((A + B))`;
`>` and `>>` into a file. Time passes
only in `sleep`. At the first command that is not understood the program counts as one that runs on.
Source: commands of POSIX sh.
"""

from __future__ import annotations

import math
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Final

OOM_KILLED: Final = "OOMKilled"
BUILTINS: Final = ("exit", "set", "cd", "export")
"""Commands of shells only: nothing of that name is in `$PATH`."""
SHELLS: Final = ("sh", "bash", "ash", "dash")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SLEEP: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+|\?))")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PUNCTUATION: Final = ";&|<>()\n"
_OPERATORS: Final = {"", ";", "&&", "||"}
_TO_STDERR: Final = (["1", ">&", "2"], [">&", "2"])
_LOOP: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*while\s+(true|:|sleep\s+\S+)\s*[;\n]\s*do\s(.*?)[;\n]\s*done\s*;?\s*$", re.DOTALL
)
_FOR: Final = re.compile(r"(?:^|(?<=[;\n]))\s*for\s+(\w+)\s+in\s+([^;\n]*)[;\n]\s*do\s(.*?)[;\n]\s*done\b", re.DOTALL)
_IF: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*if\s(.*?)[;\n]\s*then\s(.*?)(?:[;\n]\s*else\s(.*?))?[;\n]\s*fi\b[ \t]*", re.DOTALL
)
_ARITHMETIC: Final = re.compile(
    r"\$\(\(\s*([$\w{}]+)\s*([-+*/%])\s*([$\w{}]+)\s*\)\)|\$\(expr ([^\s()]+) ([-+/%]) ([^\s()]+)\)"
)
_SUBSTITUTION: Final = re.compile(r"\$\(([\w\s./-]+)\)")
_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
}  # fmt: skip
_NESTED: Final = re.compile(r"(?:^|[;&|\n])\s*(?:for|while|until|if|case)\s")
_RANGE: Final = re.compile(r"\$\(seq\s+(?:(\d+)\s+)?(\d+)\)|\{(\d+)\.\.(\d+)\}")
_MOST_COMMANDS: Final = 1000
_MOST_TEXT: Final = 100_000
_FILLING_SECONDS: Final = 1.0


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
        self.name = "sh"

    def run(self, argv: Sequence[str]) -> Ran:
        """What this program does, given as its words."""
        self.name = argv[0]
        name = argv[0].rpartition("/")[2]
        ran = self._ran
        try:
            options = [word for word in argv[1:-1] if word.startswith("-")]
            if name in SHELLS and len(argv) >= 3 and options == [*argv[1:-1]] and "c" in options[-1]:
                self._ends_at_failure = any("e" in option for option in options)
                self._text(argv[-1])
            else:
                self._code = self.command([name, *argv[1:]])
        except _Stopped as stopped:
            if not stopped.args:
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
        if name == "echo":
            option = rest[0] if rest and rest[0] in ("-n", "-e", "-ne") else ""
            self.say(" ".join(rest[1:] if option else rest), is_whole="n" not in option)
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
        text = _unrolled(text)
        loop = _LOOP.search(text)
        if loop is None:
            self._commands(text)
            return
        before = text[: loop.start()].strip(" ;\n")
        if before and self._commands(before):
            return
        began, first = self._at, len(self._ran.lines)
        condition = f"{loop[1]}\n" if loop[1].startswith("sleep") else ""
        if self._commands(condition + loop[2]):
            return
        period = self._at - began
        lines = self._ran.lines
        lines[first:] = [Printed(one.at, one.text, one.is_error, period) for one in lines[first:]]
        raise _Stopped

    def _commands(self, text: str) -> bool:
        """Run commands in turn; whether the shell has ended with one."""
        text = _SUBSTITUTION.sub(self._substituted, _ARITHMETIC.sub(self._computed, text))
        chosen = _IF.search(text)
        if chosen is None:
            return self._plain_commands(text)
        condition, then, other = chosen[1], chosen[2], chosen[3] or "true"
        if _NESTED.search(then) or _NESTED.search(other):
            raise _Stopped
        before, after = text[: chosen.start()].strip(" ;\n"), text[chosen.end() :].strip(" ;\n")
        if (before and self._plain_commands(before)) or self._plain_commands(condition):
            return True
        if self._plain_commands(other if self._code else then):
            return True
        return bool(after) and self._commands(after)

    def _computed(self, found: re.Match[str]) -> str:
        """The value of a sum, a product, a quotient or a remainder of whole numbers; otherwise its text."""
        words = [word for word in found.groups() if word is not None]
        values = [_expanded(word, self.variables, self._code) for word in (words[0], words[2])]
        first, second = (self.variables.get(value, value) for value in values)
        if not first.isdecimal() or not second.isdecimal() or (words[1] in "/%" and int(second) == 0):
            return found[0]
        return str(_OPERATIONS[words[1]](int(first), int(second)))

    def _substituted(self, found: re.Match[str]) -> str:
        """The output of a command in place of it; its text, where that is not known before or is quoted."""
        words = found[1].split()
        shown = self.told(words[0].rpartition("/")[2], words[1:]) if words else None
        quoted = found.string[: found.start()].count("'") % 2
        return found[0] if shown is None or quoted else " ".join(shown)

    def _plain_commands(self, text: str) -> bool:
        try:
            commands = list(_parsed(text))
        except ValueError as error:
            self.say(f"sh: syntax error: {str(error).lower()}", is_error=True)
            self._code = 2
            return True
        for number, (joint, words) in enumerate(commands):
            if number >= _MOST_COMMANDS:
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
        words, path, appends = _redirected(words)
        ends_line = self._ran.ends_line
        if path:
            self._ran.ends_line = True
        first, lines = len(self._ran.lines), self._ran.lines
        to_stderr = next((end for end in _TO_STDERR if words[-len(end) :] == end), [])
        words = words[: len(words) - len(to_stderr)] or ["sh"]
        ends = self._plain([_expanded(word, self.variables, self._code) for word in words])
        if to_stderr:
            lines[first:] = [Printed(one.at, one.text, True, one.every) for one in lines[first:]]
        elif path:
            path = _expanded(path, self.variables, 0)
            written = "".join(f"{one.text}\n" for one in lines[first:] if not one.is_error)
            written = written if self._ran.ends_line else written[:-1]
            lines[first:] = [one for one in lines[first:] if one.is_error]
            self._ran.ends_line = ends_line
            try:
                self.change(path, (self.files.get(path, "") if appends else "") + written)
            except OSError as error:
                self.say(f"{self.name}: can't create {path}: {error.strerror}", is_error=True)
                self._code = 1
        return ends

    def _plain(self, words: list[str]) -> bool:
        if any(set(word) & set(_PUNCTUATION) and set(word) <= set(_PUNCTUATION) for word in words):
            words = ["sh"]
        replaced = words[0] == "exec"
        words = words[1:] if replaced and len(words) > 1 else words
        name, rest = words[0].rpartition("/")[2], words[1:]
        if name == "exit":
            self._code = (int(rest[0]) & 255 if rest[0].isdigit() else 2) if rest else self._code
            return True
        if name == "set" and rest and set(rest[0]) <= set("-euxo"):
            self._ends_at_failure |= "e" in rest[0]
            self._code = 0
            return replaced
        assigned = [_ASSIGNMENT.fullmatch(word) for word in (rest if name == "export" and rest else words)]
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


def _unrolled(text: str) -> str:
    """The text with loops over words written out."""
    while (loop := _FOR.search(text)) and len(text) <= _MOST_TEXT:
        words = _RANGE.sub(_numbers, loop[2]).split()
        if any("$" in word or "`" in word or "*" in word for word in words) or _NESTED.search(loop[3]):
            return text
        turns = "; ".join(f"{loop[1]}={shlex.quote(word)}; {loop[3].strip()}" for word in words[:_MOST_COMMANDS])
        text = f"{text[: loop.start()]} {turns or 'true'} {text[loop.end() :]}"
    return text


def _numbers(found: re.Match[str]) -> str:
    first, last = int(found[1] or found[3] or 1), int(found[2] or found[4])
    return " ".join(str(number) for number in range(first, min(last, first + _MOST_COMMANDS) + 1))


def _expanded(word: str, variables: Mapping[str, str], code: int) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return str(code) if name == "?" else variables.get(name, "")

    return _VARIABLE.sub(value, word)


def _parsed(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a script, each with the operator before it. Raises ValueError for unbalanced quotes."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    joint, words, in_comment = "", list[str](), False
    for token in lexer:
        in_comment = (in_comment or token.startswith("#")) and "\n" not in token
        if in_comment:
            continue
        if set(token) <= set(_PUNCTUATION) and token.strip("\n") in _OPERATORS:
            if words:
                yield joint, _understood(words)
                words = []
                joint = token.strip("\n")
        else:
            words.append(token)
    if words:
        yield joint, _understood(words)


def _understood(words: list[str]) -> list[str]:
    """The words; a command that is not understood in place of a substitution."""
    return ["sh"] if any("`" in word or "$(" in word for word in words) else words


def _redirected(words: list[str]) -> tuple[list[str], str, bool]:
    """A command without its `> FILE` or `>> FILE`, the file, and whether it is appended to."""
    if words[-3:] == ["2", ">&", "1"] and len(words) > 3:
        words = words[:-3]
    if len(words) > 2 and words[-2] in (">", ">>") and words[-1].startswith(("/", "$")):
        kept = words[:-2]
        return (kept[:-1] if kept[-1] == "1" and len(kept) > 1 else kept), words[-1], words[-2] == ">>"
    return words, "", False


def _bytes(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmgBKMG]?)", text)
    scale = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3}
    return float(found[1]) * 1024.0 ** scale[found[2].lower()] if found else 0.0


def _count(words: Sequence[str]) -> int:
    for name in ("--vm", "-m"):
        if name in words[:-1] and words[words.index(name) + 1].isdigit():
            return max(1, int(words[words.index(name) + 1]))
    return 1
