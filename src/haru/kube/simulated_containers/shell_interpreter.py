"""Run the text of a shell script as far as it is understood, command by command, without a process. Pure.

What a command does says `trivial_shell.py`; here are loops, conditions, variables, substitutions, redirections, pipes.
Time passes only in commands. A loop without an end is gone through until it is seen how it goes on.
Source: POSIX sh.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import unquote

from haru.kube.simulated_containers.cluster_network import NETWORK_PROGRAM
from haru.kube.simulated_containers.shell_input import (
    DOCUMENT,
    HERE,
    OUTPUT_TO_COME,
    SUM,
    Document,
    computed,
    fed,
    is_quoted,
    to_come,
    with_documents,
)
from haru.kube.simulated_containers.shell_loops import ShellLoops
from haru.kube.simulated_containers.shell_output import Printed, Stopped
from haru.kube.simulated_containers.shell_pipes import is_quiet, texts, through
from haru.kube.simulated_containers.shell_words import (
    MOST_COMMANDS,
    NESTED,
    PUNCTUATION,
    SILENT,
    Choice,
    Loop,
    expanded,
    first_choice,
    first_loop,
    joined,
    parsed,
    redirected,
    stages,
    unrolled,
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
_READING: Final = re.compile(
    rf"\|\s*({HERE}?)while\s+(?:IFS=\s+)?read\s+(?:-r\s+)?(\w+)\s*[;\n]\s*do\s(.*?)[;\n]\s*done\b", re.DOTALL
)
"""A loop over the lines that a command prints."""
_READER: Final = "\2"
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_SUBSTITUTION: Final = re.compile(r"\$\(([\w\s./-]+)\)")
_PATTERN: Final = re.compile(r"[*?]")
_JOINED: Final = re.compile(r"[|;>]")
_RANDOM: Final = re.compile(r"\$(?:RANDOM\b|\{RANDOM\})")
_ARRAY: Final = re.compile(r"(?:^|(?<=[;\n]))[ \t]*([A-Za-z_]\w*)=\(([^()`$]*)\)")
_ELEMENT: Final = re.compile(r"\$\{(\w+)\[(\d+|\$\w+|\$\{\w+\})\]\}")
_IN_BACKGROUND: Final = re.compile(r"(\bsleep\s+[^\s;&|]+)\s*&\s*;?\s*wait\b(?:\s+\$!)?")


class _Reader(NamedTuple):
    """A loop over lines: its variable, its commands, and whether the shell runs it itself."""

    variable: str
    text: str
    is_here: bool


class ShellInterpreter(ShellLoops):
    """Run the text of a shell.

    `files` are what it can read, and then what it has written. A file that may not be written raises OSError.
    """

    name = "sh"

    def __init__(self, variables: Mapping[str, str], files: MutableMapping[str, str] | None = None) -> None:
        super().__init__(variables, files)
        self._ends_at_failure = False
        self._readers: list[_Reader] = []
        self._arrays: dict[str, list[str]] = {}
        self._documents: list[Document] = []

    @abstractmethod
    def command(self, words: Sequence[str]) -> int:
        """Run a program; its exit code."""

    @abstractmethod
    def other(self, words: Sequence[str]) -> int:
        """A program that is not understood."""

    def matching(self, pattern: str) -> Sequence[str] | None:
        """The files whose paths match a pattern; None where it is not known what is there."""
        return None

    def told(self, name: str, rest: Sequence[str]) -> list[str] | None:
        """What a program prints that tells what is known from the beginning; None for another program."""
        return None

    # -- loops and conditions -----------------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Run a whole script."""
        text, self._documents = with_documents(text)
        text = unrolled(_IN_BACKGROUND.sub(r"\1", _ARRAY.sub(self._array, fed(joined(text)))))
        loop = _LOOP.search(text)
        if loop is None:
            self._commands(text)
            return
        before = text[: loop.start()].strip(" ;\n")
        if before and self._commands(before):
            return
        body = f"{loop[1]}\n{loop[2]}" if loop[1].startswith("sleep") else loop[2]
        if loop[3]:
            self._pipe(lambda: self._for_ever(body), list(stages(words_in(loop[3]))))
        else:
            self._for_ever(body)

    def _for_ever(self, text: str) -> None:
        """Go through an endless loop; what the network is asked for in it may change its turns for a while."""
        if NETWORK_PROGRAM.search(text):
            self._go_through(lambda: self._commands(text) or None, text)
            return
        with self._in_loop():
            self._endless(lambda: self._commands(text), text)

    def _commands(self, text: str) -> bool:
        """Run commands in turn; whether the shell has ended with one."""
        text = _READING.sub(self._reader, text)
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

    def _all_words(self, text: str) -> list[str]:
        """The words of a loop, its variables and their words in their place."""
        words = self._expand(text, self._code).replace('"', " ").split()
        return [one for word in words for one in self._matching(word)]

    def _matching(self, word: str) -> Sequence[str]:
        """The files that a pattern stands for (`/data/*`); the word itself if it is none, or there is none."""
        if not word.startswith("/") or not _PATTERN.search(word):
            return (word,)
        found = self.matching(word)
        if found is None:
            self.other([word])
        return found or (word,)

    def _prepared(self, text: str) -> str:
        """Commands with what is known of their substitutions by now."""
        return _SUBSTITUTION.sub(self._substituted, to_come(text))

    def _value(self, name: str) -> str:
        """The value of a variable in a sum."""
        return self.variables.get(name, "0") if name != "RANDOM" else self.random()

    def _substituted(self, found: re.Match[str]) -> str:
        """The output of a command in place of it; its text, where that is not known before or is quoted."""
        words = found[1].split()
        shown = self.told(words[0].rpartition("/")[2], words[1:]) if words else None
        if shown is None or is_quoted(found) or (len(shown) > 1 and is_quoted(found, '"')):
            return found[0]
        return " ".join(shown)

    def _expand(self, word: str, code: int) -> str:
        """A word with its variables, and with what commands print at this moment."""
        text = _RANDOM.sub(lambda _: self.random(), _ELEMENT.sub(self._element, word))
        text = expanded(text, self.variables, code)
        return self._bounded(OUTPUT_TO_COME.sub(self._output, text))

    def _array(self, found: re.Match[str]) -> str:
        self._arrays[found[1]] = words_in(found[2])
        return "true"

    def _element(self, found: re.Match[str]) -> str:
        """One of an array's words; nothing where it has none."""
        words, number = self._arrays.get(found[1], ()), expanded(found[2], self.variables, 0)
        return words[int(number)] if _NUMBER.fullmatch(number) and int(number) < len(words) else ""

    def _output(self, found: re.Match[str]) -> str:
        """What a command prints, in one line unless it stands in quotes."""
        joint, _, text = unquote(found[1]).partition(":")
        if joint == SUM:
            number = computed(text, self._value)
            return number if number is not None else str(self.other(["sh"]))
        with self._captured() as printed:
            words = words_in(text)
            if _JOINED.search(text):
                self._plain_commands(text)
            else:
                self._plain([self._expand(word, self._code) for word in words if word != SILENT])
        self._ran.lines += [one for one in printed if one.is_error and SILENT not in words]
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
            if self._ends_at_failure and self._code and following not in ("&&", "||") and words[0] != "!":
                return True
        return False

    # -- one command --------------------------------------------------------------------------------------------------

    def _simple(self, words: list[str]) -> bool:
        """Run one command of a shell; whether the shell ends with it."""
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

    def _document(self, document: Document) -> str:
        """The text of a document, with the values of its variables unless it is quoted."""
        if document.is_quoted:
            return document.text
        parts = [self._expand(self._prepared(part), self._code) for part in document.text.split("\\$")]
        if any("$(" in part or "`" in part for part in parts):
            self.other(["sh"])
        return "$".join(parts)

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
        shown = through(words, lines, None if goes_on else self.at)
        if shown is None:
            self._code = self.other(words)
        elif words[0] == "grep":
            self._code = int(not shown)
            return () if is_quiet(words) else shown
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
            self._code = (int(rest[0]) & 255 if _NUMBER.fullmatch(rest[0]) else 2) if rest else self._code
            return True
        if name == "break":
            self.leave_loop()
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
