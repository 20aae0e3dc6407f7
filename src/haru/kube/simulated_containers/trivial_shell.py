"""Run trivial commands without a process: what they print, how long they take and how they end. Pure.

Understood are `true`, `false`, `sleep N`, `echo WORDS`, `printf`, `date`, `cat FILE` of what was written, `stress
--vm-bytes N` (killed above the memory limit), and `sh -c` of these and of what `shell_interpreter.py` runs. Time passes
only in `sleep`. At the first command that is not understood the program counts as one that runs on.
Source: commands of POSIX sh.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Final

from haru.kube.simulated_containers.shell_interpreter import ShellInterpreter
from haru.kube.simulated_containers.shell_output import Ran, Stopped
from haru.kube.simulated_containers.shell_pipes import counted, through
from haru.kube.simulated_containers.shell_traps import SIGNALS
from haru.kube.simulated_containers.standard_input import Given, StandardInput
from haru.kube.simulated_containers.text import RESERVED, date_format, date_mark, echoed, formatted

OOM_KILLED: Final = "OOMKilled"
BUILTINS: Final = ("exit", "set", "cd", "export", "trap")
"""Commands of shells only: nothing of that name is in `$PATH`."""
_FILTERS: Final = frozenset({"awk", "cut", "grep", "head", "sort", "tail"})
"""Which take their lines from the standard input if no file is named."""
SHELLS: Final = ("sh", "bash", "ash", "dash")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SLEEP: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_FILLING_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 1e9
"""Who sleeps for longer does not wake any more."""


class TrivialShell(ShellInterpreter):
    """Run one program, as far as it comes until then. `memory` is the limit in bytes."""

    def __init__(
        self,
        variables: Mapping[str, str],
        memory: float = math.inf,
        files: MutableMapping[str, str] | None = None,
        until: float = math.inf,
    ) -> None:
        super().__init__(variables, files)
        self._memory, self._until = memory, until
        self.stdin = StandardInput()
        self.has_clock = False
        """Whether who shows the lines knows when the program began, so that it may print dates."""

    def run(self, argv: Sequence[str]) -> Ran:
        """What this program does, given as its words."""
        argv = [RESERVED.sub("", word) for word in argv]
        self.name = argv[0]
        name = argv[0].rpartition("/")[2]
        ran = self._ran
        try:
            given = [*argv[1:-1]]
            options = given[:-1] if given[-1:] == ["--"] else given
            if name in SHELLS and options and all(one.startswith("-") for one in options) and "c" in options[-1]:
                self._ends_at_failure = any("e" in option for option in options)
                self.text(argv[-1])
            elif is_interactive(argv):
                self._commands_of_input()
            else:
                self._code = self.command([name, *argv[1:]])
        except RecursionError:  # one command too many after the other
            ran.unknown, ran.stopped_at = name, self.at
            return ran
        except Stopped as stopped:
            if not stopped.args:
                ran.stopped_at = self.at
                return ran
            ran.killed = str(stopped.args[0])
        ran.ends_after, ran.exit_code = self.at, self._code
        return ran

    def last(self, seconds: float) -> None:
        """Let time pass."""
        self.at += seconds
        if self.at > self._until:
            raise Stopped

    def command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""
        name, rest = words[0], words[1:]
        if name in ("true", ":"):
            return 0
        if name == "false":
            return 1
        if name == "sleep":
            return self._sleep(rest)
        if (code := self._on_input(name, rest)) is not None:
            return code
        text = echoed(rest) if name == "echo" else formatted(rest) if name == "printf" else None
        if text is not None:
            self.print_text(text)
            return 0
        if name == "trap" and len(rest) > 1 and SIGNALS.issuperset(rest[1:]):
            return 0
        form = date_format(rest, self.variables) if name == "date" and self.has_clock else None
        if form is not None:
            self.say(date_mark(form, self.at))
            return 0
        if name == "cat" and rest and all(path in self.files for path in rest):
            for path in rest:
                self.print_text(self.files[path])
            return 0
        if name in ("stress", "stress-ng") and "--vm-bytes" in rest[:-1]:
            wanted = _bytes(rest[rest.index("--vm-bytes") + 1]) * _count(rest)
            if wanted > self._memory:
                self.at += _FILLING_SECONDS
                raise Stopped(OOM_KILLED)
        return self.other(words)

    def other(self, words: Sequence[str]) -> int:
        """A program that is not understood: it runs on."""
        self._ran.unknown = words[0]
        raise Stopped

    # -- the standard input -------------------------------------------------------------------------------------------

    def _received(self) -> str | None:
        """The next text of the input, as soon as it comes; None at its end. Raises `Stopped` if nobody gives it."""
        given = self.stdin.take()
        if given is None:
            self._ran.awaits_input = True
            raise Stopped
        self.last(max(0.0, given.at - self.at))
        return given.text

    def _on_input(self, name: str, words: Sequence[str]) -> int | None:
        """Run a program that reads the input; None for any other one."""
        if name == "read":
            return self._read(words)
        if name == "cat" and list(words) in ([], ["-"]):
            self._pass_on()
            return 0
        if name == "wc" and counted(words, "") is not None and all(word.startswith("-") for word in words):
            self.say(counted(words, "".join(iter(self._received, None))) or "")
            return 0
        if name in _FILTERS and through([name, *words], (), self.at) is not None:
            self._pipe(self._pass_on, [[name, *words]])
            return self._code
        return None

    def _pass_on(self) -> None:
        while (text := self._received()) is not None:
            self.print_text(text)

    def _read(self, words: Sequence[str]) -> int:
        names = [word for word in words if word != "-r"] or ["REPLY"]
        if not all(name.isidentifier() for name in names):
            return self.other(["read", *words])
        line = ""
        while "\n" not in line and (text := self._received()) is not None:
            line += text
        line, line_break, rest = line.partition("\n")
        if rest:
            self.stdin.put_back(Given(self.at, rest))
        values = line.strip().split(None, len(names) - 1)
        for number, name in enumerate(names):
            self.variables[name] = values[number] if number < len(values) else ""
        return int(not line_break)

    def _commands_of_input(self) -> None:
        """Run the lines of the input, all that come together as one script."""
        begun = ""
        while (text := self._received()) is not None:
            script, line_break, begun = (begun + text).rpartition("\n")
            if line_break and self.text(script):
                return
        self.text(begun)

    def _sleep(self, words: Sequence[str]) -> int:
        found = [_SLEEP.fullmatch(word) for word in words]
        if words and words[0] in ("infinity", "inf"):
            raise Stopped
        if not found or None in found:
            self.say(f"sleep: invalid number '{' '.join(words)}'", is_error=True)
            return 1
        seconds = sum(float(one[1]) * _SECONDS[one[2]] for one in found if one is not None)
        if seconds > _LONGEST_SECONDS:
            raise Stopped
        self.last(seconds)
        return 0


def _bytes(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmgBKMG]?)", text)
    scale = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3}
    return float(found[1]) * 1024.0 ** scale[found[2].lower()] if found else 0.0


def _count(words: Sequence[str]) -> int:
    for name in ("--vm", "-m"):
        if name in words[:-1] and (count := words[words.index(name) + 1]).isdecimal():
            return max(1, int(count[:9]))
    return 1


def is_interactive(argv: Sequence[str]) -> bool:
    """Whether a command is a shell that reads what to do."""
    return argv[0].rpartition("/")[2] in SHELLS and all(word.startswith("-") and "c" not in word for word in argv[1:])
