"""What a simulated shell puts into its text: output of commands, sums, and documents that stand in the script. Pure.

Source: POSIX sh, as far as `shell_interpreter.py` runs it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from haru.kube.simulated_containers.cluster_network import NETWORK_PROGRAMS

_PRINTING: Final = (
    "awk",
    "cat",
    "cut",
    "date",
    "echo",
    "grep",
    "head",
    "ls",
    "printf",
    "tail",
    "wc",
    *NETWORK_PROGRAMS,
)
_PIECE: Final = rf"(?:{'|'.join(_PRINTING)})(?: [^()`|;&<>]*)?(?:(?:>>?|<)\s*[^\s()`|;&<>]+\s*)?"
_WITH_OUTPUT: Final = rf"((?:(?:env|hostname|id)(?: [^()`|;&<>]*)?\|\s*)?{_PIECE}(?:\s*[|;]\s*{_PIECE})*)"
_COMMAND: Final = re.compile(rf"\$\(\s*{_WITH_OUTPUT}\)|`\s*{_WITH_OUTPUT}`")
"""A command whose output is put in when the command around it is run."""
OUTPUT_TO_COME: Final = re.compile("\1([^\1]*)\1")
SUM: Final = "sum"
_ARITHMETIC: Final = re.compile(
    r"\$\(\(\s*([\w${}\s+*/%-]+?)\s*\)\)|\$\(expr ([^\s()]+ [-+/%] [^\s()]+|[^\s()]+ \\?\* [^\s()]+)\)"
)
"""Whole numbers and variables, joined by operators."""
DOCUMENT: Final = "\4"
"""Begins the word that stands for a document in the script."""
HERE: Final = "\5"
"""Before a loop that the shell itself runs, and none of its children: its variables stay."""
_TERM: Final = re.compile(r"\$\{\w+\}|\$?\w+|[-+*/%]")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_SIGN: Final = 1 << 63
"""Shells compute with 64 bits."""
_TIMES: Final[Mapping[str, Callable[[int, int], int]]] = {
    "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
}  # fmt: skip
_BEGIN: Final = re.compile(r"(?<!<)<<(-?)\s*(\\?)(['\"]?)(\w+)\3(?![\w<])")
_READ: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*(while\s+(?:IFS=\S*\s+)?read\s+(?:-r\s+)?\w+\s*[;\n]\s*do\s.*?[;\n]\s*done)\b(?!\s*[<|])",
    re.DOTALL,
)
_READ_FROM: Final = re.compile(
    r"(?:^|(?<=[;\n]))\s*(while\s+(?:IFS=\S*\s+)?read\s+(?:-r\s+)?\w+\s*[;\n]\s*do\s.*?[;\n]\s*done)"
    r"\s*<\s*([^\s;&|<>]+|\x04\d+)",
    re.DOTALL,
)


class Document(NamedTuple):
    """Text that a command reads; in one that is not quoted the values of variables are put in."""

    text: str
    is_quoted: bool


def computed(text: str, value: Callable[[str], str]) -> str | None:
    """The value of a sum of products of whole numbers; None for what is not understood."""
    words = _TERM.findall(text)
    if not words or len(words) % 2 == 0:
        return None
    total, sign, product = 0, 1, _number(words[0], value)
    for joint, word in zip(words[1::2], words[2::2], strict=True):
        number = _number(word, value)
        if product is None or number is None or (joint in "/%" and number == 0):
            return None
        if joint in _TIMES:
            product = _TIMES[joint](product, number)
        elif joint in "+-":
            total, sign, product = total + sign * product, 1 if joint == "+" else -1, number
        else:
            return None
    return None if product is None else str((total + sign * product + _SIGN) % (2 * _SIGN) - _SIGN)


def _number(word: str, value: Callable[[str], str]) -> int | None:
    text = word if word.isdecimal() else value(word.strip("${}"))
    return int(text) if _NUMBER.fullmatch(text) else None


def with_documents(text: str) -> tuple[str, list[Document]]:
    """The text with a word in place of each document that stands in it (`<<EOF`)."""
    if "<<" not in text:
        return text, []
    lines, kept, found = text.split("\n"), list[str](), list[Document]()
    while lines:
        line = lines.pop(0)
        begins = list(_BEGIN.finditer(line))
        for begin in begins:
            body = list[str]()
            while lines and (lines[0].lstrip("\t") if begin[1] else lines[0]) != begin[4]:
                one = lines.pop(0)
                body.append(one.lstrip("\t") if begin[1] else one)
            del lines[:1]
            line = line.replace(begin[0], f"< {DOCUMENT}{len(found)} ", 1)
            found.append(Document("".join(f"{one}\n" for one in body), bool(begin[2] or begin[3])))
        kept.append(line)
    return "\n".join(kept), found


def fed(text: str) -> str:
    """The text with loops over the lines of a file, or of the input, written as loops over what `cat` reads."""
    return _READ.sub(rf" cat | {HERE}\1", _READ_FROM.sub(rf" cat < \2 | {HERE}\1", text))


def to_come(text: str) -> str:
    """The text with what stands for the output of commands, and for sums, until the command around them is run."""
    return _ARITHMETIC.sub(_number_to_come, _COMMAND.sub(_output_to_come, text))


def _number_to_come(found: re.Match[str]) -> str:
    return found[0] if is_quoted(found) else f"\1{quote(f'{SUM}:{found[1] or found[2]}', safe='')}\1"


def _output_to_come(found: re.Match[str]) -> str:
    if is_quoted(found):
        return found[0]
    joint = "lines" if is_quoted(found, '"') else ""
    return f"\1{quote(f'{joint}:{found[1] or found[2]}', safe='')}\1"


def is_quoted(found: re.Match[str], mark: str = "'") -> bool:
    """Whether it stands in quotes, as far as their number tells."""
    return found.string[: found.start()].count(mark) % 2 == 1
