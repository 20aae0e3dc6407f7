"""The text of a shell script: its commands, words, redirections and loops over words, before any of it is run. Pure.

Source: POSIX sh, as far as `shell_interpreter.py` runs it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from haru.kube.simulated_containers.cluster_network import NETWORK_PROGRAM
from haru.kube.simulated_containers.shell_pipes import FIELD

PUNCTUATION: Final = ";&|<>()\n"
_OPERATORS: Final = {"", ";", "&&", "||"}
_FOR: Final = re.compile(r"(?:^|(?<=[;\n]))\s*for\s+(\w+)\s+in\s+([^;\n]*)[;\n]\s*do\s(.*?)[;\n]\s*done\b", re.DOTALL)
NESTED: Final = re.compile(r"(?:^|[;&|\n])\s*(?:for|while|until|if|case)\s")
_RANGE: Final = re.compile(r"(?:\$\(|`)seq\s+(?:(\d{1,9})\s+)?(\d{1,9})[)`]|\{(\d{1,9})\.\.(\d{1,9})\}")
_MOST_TEXT: Final = 100_000
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+|\?))")
BESIDE: Final = "&"
"""The last word of a command for which the shell does not wait."""
MOST_COMMANDS: Final = 1000
SILENT: Final = "\3"
"""The word that stands for the redirection of errors to nowhere."""
_TO_NOWHERE: Final = re.compile(r"(?:&>|>&)\s*/dev/null|(?<![\d>])1?>\s*/dev/null\s+2>\s*(?:&1|/dev/null)")
_ERRORS_TO_NOWHERE: Final = re.compile(r"(?<=\s)2>\s*/dev/null")
_LOOP: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*(?:(while|until)\s+([^;\n]+?)|for\s+(\w+)\s+in\s+([^;\n]*?))\s*[;\n]\s*do\s(.*?)[;\n]\s*done\b"
    r"[ \t]*",
    re.DOTALL,
)
_COMPARISON: Final = re.compile(r"\[\[? [^][;\n]+ (?:-[a-z]{2}|!?==?) [^][;\n]+ \]\]?")
"""A condition that compares values, which nobody but the loop itself changes."""
FILE_TEST: Final = re.compile(r"(?:\[\[?|\btest)\s+(?:!\s+)?-[defrs]\s")
_OF_FILES: Final = re.compile(rf"(?:!\s+)?(?:{FILE_TEST.pattern}|(?:cat|grep|ls)\s)[^;&|]+")
"""A condition on files, which others may write."""
_IF: Final = re.compile(r"(?:^|(?<=[;\n]))\s*if\s(.*?)[;\n]\s*fi\b[ \t]*", re.DOTALL)
_BRANCH: Final = re.compile(r"[;\n]\s*(?:elif|else)\s")
_THEN: Final = re.compile(r"[;\n]\s*then\s")
_ALWAYS: Final = ("true", ":", "[ 1 ]", "[ true ]")
_BREAK: Final = re.compile(r"\bbreak\b")
_LOOPS: Final = re.compile(r"(?:^|[;&|(\n]|\b(?:then|else|do)\s)\s*(?:for|while|until|case)\s")
_WHOLE_SUBSTITUTION: Final = re.compile(r"\$\(([^()]*)\)")


_AWK: Final = re.compile(r"\bawk((?:\s+-F\s*\S+)?)\s+(?:'\{|\{')\s*print\s+\$(\d{1,5}|NF)\s*;?\s*(?:\}'|'\})")
"""A program of `awk` that prints one field."""


_GROUP: Final = re.compile(
    r"((?:^|(?<=[;\n]))[ \t]*)([^\s;&|\n{}][^;&|\n{}]*?)\s*(\|\||&&)\s*\{\s([^{}]*?)[;\n]\s*\}(?=\s*(?:[;\n]|$))"
)


class Loop(NamedTuple):
    """A loop in a text: its condition, or its words and their variable."""

    start: int
    end: int
    kind: str
    head: str
    name: str
    body: str


def first_loop(text: str) -> Loop | None:
    """The first loop that is gone through turn by turn: until values compare, network or files say so, or `break`."""
    for found in _LOOP.finditer(text):
        kind, condition, body = found[1] or "for", found[2] or "", found[5]
        if _LOOPS.search(body):
            continue
        if kind == "for":
            is_known = "`" not in found[4] and "$(" not in _RANGE.sub(_numbers, found[4])
            is_known = is_known and all(word.startswith(("/", "$")) for word in found[4].split() if "*" in word)
        else:
            waits = NETWORK_PROGRAM.search(condition) or (condition in _ALWAYS and _BREAK.search(body))
            is_known = bool(waits or _COMPARISON.fullmatch(condition) or _OF_FILES.fullmatch(condition))
        if is_known:
            alone = _WHOLE_SUBSTITUTION.fullmatch(condition)
            head = _RANGE.sub(_numbers, found[4]) if kind == "for" else alone[1] if alone else condition
            return Loop(found.start(), found.end(), kind, head, found[3] or "", body)
    return None


class Branch(NamedTuple):
    """Commands and what has to succeed for them; nothing has to before those of `else`."""

    condition: str
    text: str


class Choice(NamedTuple):
    """An `if` in a text."""

    start: int
    end: int
    branches: list[Branch]


def first_choice(text: str) -> Choice | None:
    """The first `if` with all its branches; None if there is none that is understood."""
    found = _IF.search(text)
    if found is None:
        return None
    branches = list[Branch]()
    for part in _BRANCH.split(found[1]):
        words = _THEN.split(part, maxsplit=1)
        branches.append(Branch(words[0], words[1]) if len(words) == 2 else Branch("", part))
    is_whole = all(one.condition for one in branches[:-1]) and bool(branches[0].condition)
    return Choice(found.start(), found.end(), branches) if is_whole else None


def joined(text: str) -> str:
    """The text with its continued lines in one, words for errors that are thrown away, and for the fields of `awk`."""
    text = _AWK.sub(rf"awk\1 {FIELD}\2", text.replace("\\\n", " "))
    text = _TO_NOWHERE.sub(f"> /dev/null {SILENT}", text)
    return _ERRORS_TO_NOWHERE.sub(SILENT, text)


def without_groups(text: str) -> str:
    """The text with `A || { B; }` and `A && { B; }` written as choices."""

    def choice(found: re.Match[str]) -> str:
        begin, condition, joint, body = found.groups()
        if NESTED.search(body) or NESTED.search(condition):
            return found[0]
        otherwise = "true; else " if joint == "||" else ""
        return f"{begin}if {condition}; then {otherwise}{body.strip()}; fi"

    return _GROUP.sub(choice, text)


def unrolled(text: str) -> str:
    """The text with loops over words written out."""
    while (loop := _FOR.search(text)) and len(text) <= _MOST_TEXT:
        words = _RANGE.sub(_numbers, loop[2]).split()
        if any("$" in word or "`" in word or "*" in word for word in words) or NESTED.search(loop[3]):
            return text
        if _BREAK.search(loop[3]):
            return text
        turns = "; ".join(f"{loop[1]}={shlex.quote(word)}; {loop[3].strip()}" for word in words[:MOST_COMMANDS])
        text = f"{text[: loop.start()]} {turns or 'true'} {text[loop.end() :]}"
    return text


def _numbers(found: re.Match[str]) -> str:
    first, last = int(found[1] or found[3] or 1), int(found[2] or found[4])
    return " ".join(str(number) for number in range(first, min(last, first + MOST_COMMANDS) + 1))


def expanded(word: str, variables: Mapping[str, str], code: int) -> str:
    """A word with the values of its variables, and of `$?`."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return str(code) if name == "?" else variables.get(name, "")

    return _VARIABLE.sub(value, word)


def parsed(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a script, each with the operator before it. Raises ValueError for unbalanced quotes."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=PUNCTUATION)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    joint, words, in_comment = "", list[str](), False
    for token in lexer:
        in_comment = (in_comment or token.startswith("#")) and "\n" not in token
        if in_comment:
            continue
        if words and token.strip(";\n") == BESIDE:
            yield joint, [*_understood(words), BESIDE]
            words, joint = [], ""
        elif set(token) <= set(PUNCTUATION) and token.strip("\n") in _OPERATORS:
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


def stages(words: list[str]) -> Iterator[list[str]]:
    """The commands of a pipe: the one that prints, then each that its output goes through."""
    stage = list[str]()
    for word in words:
        if word == "|" and stage:
            yield stage
            stage = []
        else:
            stage.append(word)
    yield stage or ["sh"]


def redirected(words: list[str]) -> tuple[list[str], str, bool]:
    """A command without its `> FILE` or `>> FILE`, the file, and whether it is appended to."""
    if words[-3:] == ["2", ">&", "1"] and len(words) > 3:
        words = words[:-3]
    if len(words) > 2 and words[-2] in (">", ">>") and words[-1].startswith(("/", "$")):
        kept = words[:-2]
        return (kept[:-1] if kept[-1] == "1" and len(kept) > 1 else kept), words[-1], words[-2] == ">>"
    return words, "", False


def words_in(text: str) -> list[str]:
    """The words of a text; a command that is not understood, if its quotes are not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return ["sh"]
