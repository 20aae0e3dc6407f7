"""The words of a shell: variables, arrays, patterns of files, sums, and what commands print in their place. Pure.

Source: POSIX sh.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Final
from urllib.parse import unquote

from haru.kube.simulated_containers.shell_input import (
    OUTPUT_TO_COME,
    SUM,
    Document,
    computed,
    is_quoted,
    to_come,
)
from haru.kube.simulated_containers.shell_loops import ShellLoops
from haru.kube.simulated_containers.shell_words import SILENT, expanded, words_in

NUMBER: Final = re.compile(r"[0-9]{1,19}")
_SUBSTITUTION: Final = re.compile(r"\$\(([\w\s./-]+)\)")
_PATTERN: Final = re.compile(r"[*?]")
_JOINED: Final = re.compile(r"[|;<>]")
_RANDOM: Final = re.compile(r"\$(?:RANDOM\b|\{RANDOM\})")
_ARRAY: Final = re.compile(r"(?:^|(?<=[;\n]))[ \t]*([A-Za-z_]\w*)=\(([^()`$]*)\)")
_ELEMENT: Final = re.compile(r"\$\{(\w+)\[(\d+|\$\w+|\$\{\w+\})\]\}")


class ShellExpansion(ShellLoops):
    """What stands for other words in a shell. Programs, and how commands are run, are left to others."""

    def __init__(self, variables: Mapping[str, str], files: MutableMapping[str, str] | None = None) -> None:
        super().__init__(variables, files)
        self._arrays: dict[str, list[str]] = {}
        self._last_pid = ""
        """Of the command that was begun last beside the shell."""

    @abstractmethod
    def other(self, words: Sequence[str]) -> int:
        """A program that is not understood."""

    @abstractmethod
    def _plain_commands(self, text: str) -> bool:
        """Run commands without loops and conditions; whether the shell has ended with one."""

    @abstractmethod
    def _plain(self, words: list[str]) -> bool:
        """Run a command that is neither piped nor redirected; whether the shell ends with it."""

    def matching(self, pattern: str) -> Sequence[str] | None:
        """The files whose paths match a pattern; None where it is not known what is there."""
        return None

    def told(self, name: str, rest: Sequence[str]) -> list[str] | None:
        """What a program prints that tells what is known from the beginning; None for another program."""
        return None

    def _with_arrays(self, text: str) -> str:
        """A script without its arrays, which are known from here on."""
        return _ARRAY.sub(self._array, text)

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
        text = expanded(text.replace("$!", self._last_pid), self.variables, code)
        return self._bounded(OUTPUT_TO_COME.sub(self._output, text))

    def _array(self, found: re.Match[str]) -> str:
        self._arrays[found[1]] = words_in(found[2])
        return "true"

    def _element(self, found: re.Match[str]) -> str:
        """One of an array's words; nothing where it has none."""
        words, number = self._arrays.get(found[1], ()), expanded(found[2], self.variables, 0)
        return words[int(number)] if NUMBER.fullmatch(number) and int(number) < len(words) else ""

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

    def _document(self, document: Document) -> str:
        """The text of a document, with the values of its variables unless it is quoted."""
        if document.is_quoted:
            return document.text
        parts = [self._expand(self._prepared(part), self._code) for part in document.text.split("\\$")]
        if any("$(" in part or "`" in part for part in parts):
            self.other(["sh"])
        return "$".join(parts)
