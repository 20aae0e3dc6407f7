"""Files to documents: the text of each, its object, and where in the text every part of it stands.

A stream is cut at its `---` lines, which cannot stand inside a document, so a document that is no YAML does not hide
the others. Objects inside a List are objects of their own. PyYAML's node tree gives lines, and edits their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from haru.kube.yaml import YamlError, check_depth, load_all
from haru.lint.paths import Keys, resolve

MAX_BYTES = 3 << 20
"""What an API server takes in one request."""
MAX_DEPTH = 200
MAX_VALUES = 200_000
_BOUNDARY = re.compile(r"^(?:---(?=\s|$)|\.\.\.[ \t]*(?:\r?\n|$))", re.MULTILINE)
_EMPTY = re.compile(r"(?:---)?\s*(?:(?:#|%)[^\n]*(?:\n\s*|$))*")
_LINE = re.compile(r"\bline (\d+)")


@dataclass(slots=True)
class Document:
    """One document of a file. `problem` says why it has no object."""

    text: str
    number: int
    first_line: int
    value: Any = None
    problem: str = ""
    check: str = "yaml-syntax"
    """The check that the problem belongs to."""
    nodes: Any = field(default=None, repr=False)

    def line_of(self, keys: Keys) -> int:
        """The line (from one) of what the keys lead to, or of the last thing on the way that has one."""
        return self.first_line + line_in(self.nodes, keys)


def split(text: str) -> list[str]:
    """The documents of a stream; joined they are the text again."""
    starts = [match.start() if match[0].startswith("-") else match.end() for match in _BOUNDARY.finditer(text)]
    bounds = [0, *(start for start in starts if start), len(text)]
    pieces = [text[start:end] for start, end in pairwise(bounds) if end > start]
    joined: list[str] = []
    for piece in pieces:
        # What comes before the first document (a directive, a comment) belongs to it.
        if joined and is_blank(joined[-1]) and "---" not in joined[-1]:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def is_blank(text: str) -> bool:
    """Whether a document holds nothing but comments."""
    return _EMPTY.fullmatch(text) is not None


def read(text: str) -> Iterator[Document]:
    """Every document that is not empty."""
    line, number = 1, 0
    for piece in split(text):
        if not is_blank(piece):
            number += 1
            yield parse(piece, number, line)
        line += piece.count("\n")


def parse(text: str, number: int = 1, first_line: int = 1) -> Document:
    """One document; never raises for a text, whatever is in it."""
    document = Document(text, number, first_line)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        document.problem = f"the document is larger than {MAX_BYTES} bytes, more than an API server takes"
        document.check = "yaml-size"
        return document
    try:
        values = load_all(text)
    except YamlError as error:
        document.problem = _LINE.sub(lambda match: f"line {int(match[1]) + first_line - 1}", str(error))
        if "not an object" in document.problem:
            document.problem = f"line {first_line}: the document is no object: start it with apiVersion and kind"
            document.check = "yaml-object"
        elif "max depth" in document.problem or "aliasing" in document.problem:
            document.check = "yaml-size"
        return document
    except (ValueError, RecursionError) as error:
        document.problem = f"error converting YAML to JSON: line {first_line}: {error}"
        return document
    document.value = values[0] if values else None
    if values and not isinstance(values[0], dict):
        document.problem, document.check = f"line {first_line}: the document is no object", "yaml-object"
    elif too_big := _too_big(document.value, first_line):
        document.problem, document.check = too_big, "yaml-size"
    else:
        document.nodes = compose(text)
    return document


def compose(text: str) -> Any:
    """The node tree of a text that is YAML; None where there is none."""
    import yaml

    check_depth(text)
    try:
        return yaml.compose(text, Loader=_loader())
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


@cache
def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def line_in(node: Any, keys: Keys) -> int:
    """The line (from zero) of what the keys lead to: of its key, where it has one."""
    line = node.start_mark.line if node is not None else 0
    for key in keys:
        found = child(node, key)
        if found is None:
            break
        mark, node = found
        line = mark.start_mark.line
    return int(line)


def child(node: Any, key: str | int) -> tuple[Any, Any] | None:
    """(the node to point at, the node of the value) of an entry or item."""
    if node is None:
        return None
    if isinstance(key, int):
        is_list = node.id == "sequence" and key < len(node.value)
        return (node.value[key], node.value[key]) if is_list else None
    if node.id != "mapping":
        return None
    for key_node, value_node in node.value:
        if key_node.id == "scalar" and key_node.value == key:
            return key_node, value_node
    return None


def written(document: Document, path: str, prefix: Keys = ()) -> str:
    """The text of a scalar as it stands in the file, without quotes; empty where there is none."""
    value, node = document.value, document.nodes
    for key in prefix:
        value = value[key]
    keys, rest = resolve(value, path)
    for key in (*prefix, *keys):
        found = child(node, key)
        node = found[1] if found is not None else None
    return str(node.value) if node is not None and node.id == "scalar" and not rest else ""


def place(document: Document, path: str, prefix: Keys = ()) -> int:
    """The line of a path below `prefix`."""
    value = document.value
    for key in prefix:
        value = value[key]
    return document.line_of((*prefix, *resolve(value, path)[0]))


def _too_big(value: Any, line: int) -> str:
    depth, count, level = 0, 0, [value]
    while level:
        depth += 1
        count += len(level)
        if depth > MAX_DEPTH:
            return f"error converting YAML to JSON: line {line}: nested deeper than {MAX_DEPTH} levels"
        if count > MAX_VALUES:
            return f"error converting YAML to JSON: line {line}: more than {MAX_VALUES} values"
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
        ]
    return ""
