"""Run the text of a shell script as far as it is understood, command by command, without a process. Pure.

What a command does says `trivial_shell.py`; here are loops, conditions and lists of commands. Their words are expanded
in `shell_expansion.py`, what they read and print goes the ways of `shell_redirection.py`.
Time passes only in commands. A loop without an end is gone through until it is seen how it goes on.
Source: POSIX sh.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from haru.kube.simulated_containers.cluster_network import NETWORK_PROGRAM
from haru.kube.simulated_containers.shell_expansion import NUMBER
from haru.kube.simulated_containers.shell_input import fed, with_documents
from haru.kube.simulated_containers.shell_output import Change, Printed, Stopped
from haru.kube.simulated_containers.shell_redirection import ShellRedirection
from haru.kube.simulated_containers.shell_traps import without_handlers
from haru.kube.simulated_containers.shell_words import (
    BESIDE,
    FILE_TEST,
    MOST_COMMANDS,
    NESTED,
    PUNCTUATION,
    SILENT,
    Choice,
    Loop,
    first_choice,
    first_loop,
    joined,
    parsed,
    redirected,
    stages,
    unrolled,
    without_groups,
    words_in,
)
from haru.kube.simulated_containers.text import has_mark

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_TO_STDERR: Final = (["1", ">&", "2"], [">&", "2"])
_LOOP: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*while\s+(true|:|\[ (?:1|true) \]|sleep\s+\S+)\s*[;\n]\s*do\s(.*?)[;\n]\s*done"
    r"\s*(?:\|([^;&\n]+))?;?\s*$",
    re.DOTALL,
)
_IN_BACKGROUND: Final = re.compile(r"(\bsleep\s+[^\s;&|]+)\s*&\s*;?\s*wait\b(?:\s+\$!)?")


_FIRST_PID: Final = 7
_NO_CHILD: Final = 127


class _Job(NamedTuple):
    """A command beside the shell: when it ends, with which code, and what of it is not understood."""

    ends: float
    code: int
    unknown: str


class ShellInterpreter(ShellRedirection):
    """Run the text of a shell.

    `files` are what it can read, and then what it has written. A file that may not be written raises OSError.
    """

    def __init__(self, variables: Mapping[str, str], files: MutableMapping[str, str] | None = None) -> None:
        super().__init__(variables, files)
        self._ends_at_failure = False
        self._jobs: dict[str, _Job] = {}

    @abstractmethod
    def last(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    def command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""

    # -- loops and conditions -----------------------------------------------------------------------------------------

    def text(self, text: str) -> bool:
        """Run a whole script; whether the shell has ended with it."""
        text, self._documents = with_documents(without_handlers(text))
        text = without_groups(_IN_BACKGROUND.sub(r"\1", self._with_arrays(fed(joined(text)))))
        text = unrolled(text)
        loop = _LOOP.search(text)
        if loop is None:
            return self._commands(text)
        before = text[: loop.start()].strip(" ;\n")
        if before and self._commands(before):
            return True
        body = f"{loop[1]}\n{loop[2]}" if loop[1].startswith("sleep") else loop[2]
        if loop[3]:
            self._pipe(lambda: self._for_ever(body), list(stages(words_in(loop[3]))))
        else:
            self._for_ever(body)
        return False

    def _for_ever(self, text: str) -> None:
        """Go through an endless loop; what is asked of the network or of files may change its turns for a while."""
        if NETWORK_PROGRAM.search(text) or FILE_TEST.search(text):
            self._go_through(lambda: self._commands(text) or None, text, is_endless=True)
            return
        with self._in_loop():
            self._endless(lambda: self._commands(text), text)

    def _commands(self, text: str) -> bool:
        """Run commands in turn; whether the shell has ended with one."""
        text = self._with_readers(text)
        loop = first_loop(text)
        if loop is not None:
            before, after = text[: loop.start].strip(" ;\n"), text[loop.end :].strip(" ;\n")
            ended = (bool(before) and self._commands(before)) or self._run_loop(loop)
            return ended or (bool(after) and self._commands(after))
        text = self._prepared(text)
        choice = first_choice(text)
        if choice is None:
            return self._plain_commands(text)
        if any(NESTED.search(one.text) for one in choice.branches):
            self.other(["if"])
        before, after = text[: choice.start].strip(" ;\n"), text[choice.end :].strip(" ;\n")
        if before and self._plain_commands(before):
            return True
        return self._choose(choice) or (bool(after) and self._commands(after))

    def _choose(self, choice: Choice) -> bool:
        """Run the commands of the first branch whose condition holds; whether the shell has ended."""
        for condition, text in choice.branches:
            holds = self._holds(condition) if condition else True
            if holds is None or holds:
                return holds is None or self._plain_commands(text)
        self._code = 0
        return False

    def _holds(self, condition: str) -> bool | None:
        """Whether commands succeed, whose failure ends no shell; None if it has ended with one."""
        ends, self._ends_at_failure = self._ends_at_failure, False
        has_ended = self._plain_commands(self._prepared(condition))
        self._ends_at_failure = ends
        return None if has_ended else not self._code

    def _run_loop(self, loop: Loop) -> bool:
        """Go through a loop that ends; whether the shell has ended in it."""
        if loop.kind != "for":
            return self._count(loop.kind == "while", loop.head, loop.body)
        for word in self._all_words(loop.head)[:MOST_COMMANDS]:
            self.variables[loop.name], is_left = word, True
            with self._in_loop():
                if self._commands(loop.body):
                    return True
                is_left = False
            if is_left:
                break
        return False

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
            if self._ends_at_failure and self._code and following not in ("&&", "||") and words[0] != "!":
                return True
        return False

    # -- commands beside the shell ------------------------------------------------------------------------------------

    def _begin_beside(self, words: list[str]) -> None:
        """Run a command for which the shell does not wait. It may print only at its beginning."""
        begin, before, unknown = self.at, dict(self.variables), ""
        line, change = len(self._ran.lines), len(self._ran.changes)
        try:
            self._simple(words)
            ends = self.at
        except Stopped as stopped:
            if stopped.args:
                raise
            unknown, self._ran.unknown = self._ran.unknown, ""
            ends = math.inf
        left: list[Printed | Change] = [*self._ran.lines[line:], *self._ran.changes[change:]]
        if any(one.at > begin or one.every for one in left):
            self.other(words)
        self.at, self.variables = begin, before
        self._last_pid = str(_FIRST_PID + len(self._jobs))
        self._jobs[self._last_pid] = _Job(ends, self._code, unknown)
        self._code = 0

    def _wait(self, pids: Sequence[str]) -> int:
        """Wait for commands beside the shell, for all of them if none is named; the code of the last."""
        code = 0
        for pid in pids or self._jobs:
            job = self._jobs.get(pid)
            if job is None:
                code = _NO_CHILD
                continue
            if math.isinf(job.ends):
                self._ran.unknown = job.unknown
                raise Stopped
            self.last(max(0.0, job.ends - self.at))
            code = job.code if pids else 0
        return code

    # -- one command --------------------------------------------------------------------------------------------------

    def _simple(self, words: list[str]) -> bool:
        """Run one command of a shell; whether the shell ends with it."""
        if words[-1] == BESIDE:
            self._begin_beside(words[:-1])
            return False
        number = next((place for place, word in enumerate(words) if word != "!"), 0)
        if number:
            ends = self._simple(words[number:])
            self._code = int(not self._code) if number % 2 else self._code
            return ends
        piped = list(stages(words))
        if len(piped) > 1:
            self._pipe(lambda: self._simple(piped[0]), piped[1:])
            return False
        if SILENT in words:
            with self._captured() as printed:
                ends = self._simple([word for word in words if word != SILENT] or ["true"])
            self._ran.lines += [one for one in printed if not one.is_error]
            return ends
        if "<" in words[:-1]:
            return self._with_input(words)
        words, path, appends = redirected(words)
        to_stderr = next((end for end in _TO_STDERR if words[-len(end) :] == end), [])
        words = [self._expand(word, self._code) for word in words[: len(words) - len(to_stderr)] or ["sh"]]
        if to_stderr:
            with self._captured() as printed:
                ends = self._plain(words)
            self._ran.lines += [replace(one, is_error=True) for one in printed]
            return ends
        return self._into_file(words, self._expand(path, 0), appends=appends) if path else self._plain(words)

    def _plain(self, words: list[str]) -> bool:
        words = [one for word in words for one in self._matching(word)] or ["sh"]
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
            self._code = (int(rest[0]) & 255 if NUMBER.fullmatch(rest[0]) else 2) if rest else self._code
            return True
        if name == "break":
            self.leave_loop()
            return replaced
        if name == "wait":
            self._code = self._wait(rest)
            return replaced
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
