"""What flows into the commands of a shell and out of them: redirections, pipes, loops over lines. Pure.

Source: POSIX sh.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from haru.kube.simulated_containers.shell_expansion import ShellExpansion
from haru.kube.simulated_containers.shell_input import DOCUMENT, HERE, Document
from haru.kube.simulated_containers.shell_output import Printed, Stopped
from haru.kube.simulated_containers.shell_pipes import is_quiet, texts, through
from haru.kube.simulated_containers.shell_words import NESTED, SILENT, redirected
from haru.kube.simulated_containers.text import has_mark

_READING: Final = re.compile(
    rf"\|\s*({HERE}?)while\s+(?:IFS=\s+)?read\s+(?:-r\s+)?(\w+)\s*[;\n]\s*do\s(.*?)[;\n]\s*done\b", re.DOTALL
)
"""A loop over the lines that a command prints."""
_READER: Final = "\2"


class _Reader(NamedTuple):
    """A loop over lines: its variable, its commands, and whether the shell runs it itself."""

    variable: str
    text: str
    is_here: bool


class ShellRedirection(ShellExpansion):
    """The ways of what commands read and print. How a single command is run is left to others."""

    name = "sh"

    def __init__(self, variables: Mapping[str, str], files: MutableMapping[str, str] | None = None) -> None:
        super().__init__(variables, files)
        self._readers: list[_Reader] = []
        self._documents: list[Document] = []

    @abstractmethod
    def _simple(self, words: list[str]) -> bool:
        """Run one command of a shell; whether the shell ends with it."""

    def _with_readers(self, text: str) -> str:
        """Commands with their loops over lines as stages of pipes."""
        return _READING.sub(self._reader, text)

    def _with_input(self, words: list[str]) -> bool:
        """Run a command that reads a file, or a document of the script."""
        place = words.index("<")
        rest, source = words[:place] + words[place + 2 :], words[place + 1]
        if source == "/dev/null" or not rest:
            return self._simple(["true"] if rest in ([], ["cat"]) else rest)
        if source.startswith(DOCUMENT):
            text = self._document(self._documents[int(source.removeprefix(DOCUMENT))])
            self._pipe(lambda: self.print_text(text), [rest])
            return False
        path = self._expand(source, 0)
        with self._captured() as printed:
            self._plain(["cat", path])
        if self._code:
            self.say(f"{self.name}: can't open {path}: no such file", is_error=True)
        elif rest[0] == "read":
            self.variables[rest[-1]] = printed[0].text.strip() if printed else ""
            self._code = int(not printed)
        else:
            self._pipe(lambda: self._ran.lines.extend(printed), [rest])
        return False

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
        if path == "/dev/null":
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
            words, path, appends = redirected([word for word in stage if word != SILENT] or ["sh"])
            lines = self._piped([self._expand(word, 0) for word in words], lines, goes_on=stopped is not None)
            if path:
                self._tee(self._expand(path, 0), lines, appends=appends)
                lines = ()
        self._ran.lines += lines
        if stopped is not None:
            raise stopped

    def _piped(self, words: list[str], lines: Sequence[Printed], *, goes_on: bool) -> Sequence[Printed]:
        """What one command prints of the output of the one before."""
        code, self._code = self._code, 0
        if words[0].startswith(_READER):
            return self._read_all(self._readers[int(words[0].removeprefix(_READER))], lines, code)
        if words[0] == "tee" and words[1:]:
            appends = words[1] == "-a"
            for path in words[1 + appends :]:
                self._tee(path, lines, appends=appends)
            return lines
        if words[0] == "dd" and (path := _written_by_dd(words[1:])):
            self._tee(path, lines, appends=False, said=f"dd: can't open '{path}'")
            if not self._code and not goes_on:
                for way in ("in", "out"):
                    self.say(f"{'0+1' if lines else '0+0'} records {way}", is_error=True)
            return ()
        shown = through(words, lines, None if goes_on else self.at)
        if shown is None:
            self._code = self.other(words)
        elif words[0] == "grep":
            self._code = int(not shown)
            return () if is_quiet(words) else shown
        return shown or ()

    def _tee(self, path: str, lines: Sequence[Printed], *, appends: bool, said: str = "") -> None:
        now = self.at
        for one, text in texts(lines):
            self.at = one.at
            try:
                self.change(path, text, appends=appends, every=one.every)
            except OSError as error:
                self.say(f"{said or f'tee: {path}'}: {error.strerror}", is_error=True)
                self._code = 1
                break
            appends = True
        self.at = now

    def _reader(self, found: re.Match[str]) -> str:
        if NESTED.search(found[3]):
            return found[0]
        self._readers.append(_Reader(found[2], found[3], bool(found[1])))
        return f"| {_READER}{len(self._readers) - 1}"

    def _read_all(self, reader: _Reader, lines: Sequence[Printed], code: int) -> Sequence[Printed]:
        """Go through a loop over lines, after a command with this code; what it prints."""
        if reader.is_here and code:
            self._code = code
            return ()
        before = dict(self.variables)
        found, is_left = self._read_each(reader.variable, reader.text, lines)
        if not reader.is_here:
            self.variables = before
        elif not is_left:  # by then there is nothing more to read
            self.variables[reader.variable] = ""
        return found

    def _read_each(self, name: str, text: str, lines: Sequence[Printed]) -> tuple[list[Printed], bool]:
        """Run commands for each line: what they print, and whether `break` came. Nothing may take time over a line."""
        now, found, changes, is_left = self.at, list[Printed](), self._ran.changes, False
        for one in lines:
            self.at, self.variables[name], first, is_left = one.at, one.text.strip(), len(changes), True
            with self._captured() as printed, self._in_loop():
                self._commands(text)
                is_left = False
            if self.at > one.at:
                self._code = self.other(["while"])
                break
            found += [replace(each, every=one.every) for each in printed]
            changes[first:] = [replace(each, every=one.every) for each in changes[first:]]
            if is_left:
                break
        self.at = now
        return found, is_left


def _written_by_dd(words: Sequence[str]) -> str:
    """The file into which `dd` writes its input; empty for other options."""
    said = dict(word.partition("=")[::2] for word in words)
    return said.get("of", "") if said.keys() <= {"of", "conv"} else ""
