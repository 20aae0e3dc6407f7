"""What a simulated container does: the trivial commands of its spec, run in virtual time. Pure.

Understood are `true`, `false`, `sleep N`, `echo WORDS`, `stress --vm-bytes N` (which is killed above the memory limit),
and `sh -c` of these and `exit N`, joined by `;`, `&&`, `||` and line breaks. From the first command that is not
understood on, the container runs until it is stopped.
Source: commands of POSIX sh; exit codes and reasons as kubelet and containerd report them.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity

OOM_KILLED: Final = "OOMKilled"
START_ERROR: Final = "StartError"
OOM_EXIT_CODE: Final = 137
_START_EXIT_CODE: Final = 128
_SHELLS: Final = ("sh", "bash", "ash", "dash")
_BUILTINS: Final = ("exit", "set", "cd", "export")
"""Commands of shells only: nothing of that name is in `$PATH`."""
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SLEEP: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+|\?))")
_REFERENCE: Final = re.compile(r"\$\((\w+)\)")
_PUNCTUATION: Final = ";&|<>()\n"
_OPERATORS: Final = {"", ";", "&&", "||"}
_TO_STDERR: Final = (["1", ">&", "2"], [">&", "2"])
_MOST_COMMANDS: Final = 1000
_NOT_FOUND: Final = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    'unable to start container process: error during container init: exec: "{}": executable file not found in $PATH'
)
_FILLING_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Script:
    """What a container prints, by seconds from its start, and how it ends; without an end it runs on."""

    lines: tuple[tuple[float, str], ...] = ()
    ends_after: float | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""

    @property
    def end_reason(self) -> str:
        """The reason of the state `terminated`."""
        return self.reason or ("Error" if self.exit_code else "Completed")


RUNS_ON: Final = Script()


def script_of(pod: Obj, container: Mapping[str, Any]) -> Script | None:
    """What the command of a container does; None if it has none, or one that says nothing and runs on."""
    if not (container.get("command") or container.get("args")):
        return None
    given = [*(container.get("command") or ()), *(container.get("args") or ())]
    variables = {"HOSTNAME": pod["metadata"]["name"]}
    for one in container.get("env") or ():
        if "valueFrom" not in one:
            variables[one["name"]] = one.get("value") or ""
    argv = [_REFERENCE.sub(lambda found: variables.get(found[1], found[0]), str(word)) for word in given]
    shell = _Shell(variables, _memory_limit(container))
    script = shell.program(argv)
    return None if script == RUNS_ON else script


def _memory_limit(container: Mapping[str, Any]) -> float:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    try:
        return parse_quantity(limit).nano / 1e9 if limit is not None else math.inf
    except ValueError:
        return math.inf


class _Stopped(Exception):
    """The program has ended, or runs on."""


class _Shell:
    """Run one program; time passes only in `sleep`."""

    def __init__(self, variables: Mapping[str, str], memory: float) -> None:
        self._variables, self._memory = variables, memory
        self._lines: list[tuple[float, str]] = []
        self._at, self._code = 0.0, 0
        self._ends_at_failure = False

    def program(self, argv: Sequence[str]) -> Script:
        """What this program does, given as its words."""
        name = argv[0].rpartition("/")[2]
        if name in _BUILTINS:
            return Script((), 0.0, _START_EXIT_CODE, START_ERROR, _NOT_FOUND.format(name))
        try:
            options = [word for word in argv[1:-1] if word.startswith("-")]
            if name in _SHELLS and len(argv) >= 3 and options == [*argv[1:-1]] and "c" in options[-1]:
                self._ends_at_failure = any("e" in option for option in options)
                self._text(argv[-1])
            else:
                self._code = self._command([name, *argv[1:]])
        except _Stopped as stopped:
            if stopped.args:
                return Script(tuple(self._lines), self._at, OOM_EXIT_CODE, str(stopped.args[0]))
            return Script(tuple(self._lines))
        return Script(tuple(self._lines), self._at, self._code)

    def _text(self, text: str) -> None:
        try:
            commands = list(_commands(text))
        except ValueError as error:
            self._lines.append((self._at, f"sh: syntax error: {str(error).lower()}"))
            self._code = 2
            return
        for number, (operator, words) in enumerate(commands):
            if number >= _MOST_COMMANDS:
                raise _Stopped
            if (operator == "&&" and self._code) or (operator == "||" and not self._code):
                continue
            following = commands[number + 1][0] if number + 1 < len(commands) else ""
            if self._simple([_expanded(word, self._variables, self._code) for word in words]):
                return
            if self._ends_at_failure and self._code and following not in ("&&", "||"):
                return

    def _simple(self, words: list[str]) -> bool:
        """Run one command of a shell; whether the shell ends with it."""
        replaced = words[0] == "exec"
        words = words[1:] if replaced and len(words) > 1 else words
        name, rest = words[0].rpartition("/")[2], words[1:]
        if name == "exit":
            self._code = (int(rest[0]) & 255 if rest[0].isdigit() else 2) if rest else self._code
            return True
        if name == "set" and rest and set(rest[0]) <= set("-euxo"):
            self._ends_at_failure |= "e" in rest[0]
            self._code = 0
        else:
            self._code = self._command([name, *rest])
        return replaced

    def _command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""
        name, rest = words[0], words[1:]
        if name in ("true", ":"):
            return 0
        if name == "false":
            return 1
        if name == "sleep":
            return self._sleep(rest)
        if name == "echo":
            self._lines.append((self._at, " ".join(rest[1:] if rest and rest[0] in ("-n", "-e", "-ne") else rest)))
            return 0
        if name in ("stress", "stress-ng") and "--vm-bytes" in rest[:-1]:
            wanted = _bytes(rest[rest.index("--vm-bytes") + 1]) * _count(rest)
            if wanted > self._memory:
                self._at += _FILLING_SECONDS
                raise _Stopped(OOM_KILLED)
        raise _Stopped

    def _sleep(self, words: Sequence[str]) -> int:
        found = [_SLEEP.fullmatch(word) for word in words]
        if words and words[0] in ("infinity", "inf"):
            raise _Stopped
        if not found or None in found:
            self._lines.append((self._at, f"sleep: invalid number '{' '.join(words)}'"))
            return 1
        self._at += sum(float(one[1]) * _SECONDS[one[2]] for one in found if one is not None)
        return 0


def _expanded(word: str, variables: Mapping[str, str], code: int) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return str(code) if name == "?" else variables.get(name, "")

    return _VARIABLE.sub(value, word)


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a script, each with the operator before it. Raises ValueError for unbalanced quotes."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    operator, words, in_comment = "", list[str](), False
    for token in lexer:
        in_comment = (in_comment or token.startswith("#")) and "\n" not in token
        if in_comment:
            continue
        if set(token) <= set(_PUNCTUATION) and token.strip("\n") in _OPERATORS:
            if words:
                yield operator, _without_redirection(words)
                words = []
                operator = token.strip("\n")
        else:
            words.append(token)
    if words:
        yield operator, _without_redirection(words)


def _without_redirection(words: list[str]) -> list[str]:
    """The words without `>&2`; any other redirection, pipe or subshell is a command that is not understood."""
    kept = next((words[: -len(end)] for end in _TO_STDERR if words[-len(end) :] == end), words)
    if not kept or any(set(word) & set(_PUNCTUATION) and set(word) <= set(_PUNCTUATION) for word in kept):
        return ["sh"]
    return ["sh"] if any("`" in word or "$(" in word for word in kept) else kept


def _bytes(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmgBKMG]?)", text)
    scale = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3}
    return float(found[1]) * 1024.0 ** scale[found[2].lower()] if found else 0.0


def _count(words: Sequence[str]) -> int:
    for name in ("--vm", "-m"):
        if name in words[:-1] and words[words.index(name) + 1].isdigit():
            return max(1, int(words[words.index(name) + 1]))
    return 1
