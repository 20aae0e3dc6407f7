"""Edits to a YAML text that leave the rest of it alone: comments, order, quoting, blank lines.

Each edit finds its place in the node tree, changes that span of the text, and is believed only if the new text reads
as the old object with the same edit done to it. Source: PyYAML's marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from haru.kube.yaml import YamlError, dump, load_all
from haru.lint.documents import child, compose
from haru.lint.findings import Edit, Insert, Remove, Rename, Replace, Unwrap, Wrap
from haru.lint.paths import Keys, resolve


def edited(value: Any, edit: Edit, prefix: Keys = ()) -> tuple[Keys | None, Any]:
    """The keys of the place that an edit means, and the value with it done; no keys when it cannot be done."""
    below = value
    for key in prefix:
        below = below[key]
    keys, rest = resolve(below, edit.path)
    keys = (*prefix, *keys)
    if rest or (not keys and not isinstance(edit, Insert)):
        return None, value
    at = keys if isinstance(edit, Insert | Wrap) else keys[:-1]
    if isinstance(edit, Wrap) and not keys:
        return None, value
    try:
        return keys, _changed(value, at, edit, keys)
    except (KeyError, TypeError, IndexError):
        return None, value


def _changed(value: Any, at: Keys, edit: Edit, keys: Keys) -> Any:
    """A copy of the value in which what is at `at` was changed."""
    if at:
        copied: Any = dict(value) if isinstance(value, dict) else list(value)
        copied[at[0]] = _changed(value[at[0]], at[1:], edit, keys)
        return copied
    if isinstance(value, list):
        return _changed_list(value, edit, keys)
    return _changed_mapping(value, edit, keys)


def _changed_list(value: list[Any], edit: Edit, keys: Keys) -> list[Any]:
    if isinstance(edit, Insert) and not edit.key:
        return [*value, edit.value]
    index = keys[-1] if keys else None
    if not isinstance(index, int):
        raise TypeError(edit.path)
    if isinstance(edit, Replace):
        return [*value[:index], edit.value, *value[index + 1 :]]
    if isinstance(edit, Remove):
        return [*value[:index], *value[index + 1 :]]
    raise KeyError(edit.path)


def _changed_mapping(value: Any, edit: Edit, keys: Keys) -> Any:
    if value is not None and not isinstance(value, dict):
        raise TypeError(edit.path)
    if value is None:
        if not isinstance(edit, Insert):
            raise TypeError(edit.path)
        return {edit.key: edit.value} if edit.key else [edit.value]
    if isinstance(edit, Insert):
        if not edit.key or edit.key in value:
            raise KeyError(edit.key)
        return {**value, edit.key: edit.value}
    if isinstance(edit, Wrap):
        moved = {name: value[name] for name in edit.keys}
        if edit.key in value:
            raise KeyError(edit.key)
        return {**{name: inner for name, inner in value.items() if name not in edit.keys}, edit.key: moved}
    name = keys[-1]
    rest = {key: inner for key, inner in value.items() if key != name}
    if isinstance(edit, Replace):
        return {**value, name: edit.value}
    if isinstance(edit, Remove):
        return rest
    if isinstance(edit, Unwrap) and not isinstance(value[name], dict | None):
        raise TypeError(edit.path)
    added = {edit.key: value[name]} if isinstance(edit, Rename) else (value[name] or {})
    if any(key in rest for key in added):
        raise KeyError(name)
    return {**rest, **added}


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")


class EditError(Exception):
    """The edit cannot be done to this text."""


def apply_edit(text: str, edit: Edit, prefix: Keys = ()) -> str:
    """The text of one document with an edit done below `prefix`. EditError when it cannot be done safely."""
    value = _read(text)
    keys, wanted = edited(value, edit, prefix)
    if keys is None:
        raise EditError(f"{edit.path} is not in the text as written")
    tree = compose(text)
    for candidate in _candidates(text, tree, keys, edit):
        try:
            if _read(candidate) == wanted:
                return candidate
        except EditError:
            continue
    raise EditError(f"{edit.path} cannot be changed in the text as written")


def _read(text: str) -> Any:
    try:
        values = load_all(text)
    except (YamlError, ValueError, RecursionError) as error:
        raise EditError(str(error)) from None
    return values[0] if values else None


def _candidates(text: str, tree: Any, keys: Keys, edit: Edit) -> list[str]:
    """Texts that may be what is wanted, the one that changes least first."""
    if isinstance(edit, Insert):
        return _insert(text, _follow(tree, keys), edit)
    if isinstance(edit, Wrap):
        return [_wrap(text, _follow(tree, keys), edit)]
    holder, key = _follow(tree, keys[:-1]), keys[-1]
    found = child(holder, key)
    if found is None:
        raise EditError(f"{edit.path} has no place in the text")
    if isinstance(edit, Replace):
        return _replace(text, found[1], edit)
    if isinstance(edit, Rename):
        return [_splice(text, found[0].start_mark.index, found[0].end_mark.index, _flow(edit.key))]
    if isinstance(edit, Remove):
        return [_remove(text, holder, key)]
    return [_unwrap(text, holder, found)]


def _follow(tree: Any, keys: Keys) -> Any:
    for key in keys:
        found = child(tree, key)
        if found is None:
            raise EditError(f"{key} has no place in the text")
        tree = found[1]
    return tree


# --- places


def _splice(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]


def _end(text: str, node: Any) -> int:
    """Where a node's own text ends: marks of block collections reach over the comments behind them."""
    while node.id != "scalar" and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if node.id == "mapping" else last
    start, end = node.start_mark.index, node.end_mark.index
    return int(start + len(text[start:end].rstrip())) if end > start else int(end)


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _flows(value: Any) -> list[str]:
    """A value on one line: as it looks best, and as it can stand anywhere."""
    import yaml

    text = str(yaml.dump(value, default_flow_style=True, width=10**9, sort_keys=False, allow_unicode=True))
    return [text.removesuffix("\n").removesuffix("\n..."), _flow(value)]


def _flow(value: Any) -> str:
    """A value on one line, quoted wherever it could be read as something else."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and _read(f"a: {value}") == {"a": value}:
            return value
        if "'" not in value and value.isprintable():
            return f"'{value}'"
    return json.dumps(value)


def _shifted(block: str, by: int) -> str:
    """The lines after the first moved right, or left where they have the room."""
    first, *rest = block.split("\n")
    if by >= 0:
        moved = [" " * by + line if line.strip() else line for line in rest]
    else:
        moved = [line[-by:] if line[:-by].strip() == "" else line.lstrip(" ") for line in rest]
    return "\n".join([first, *moved])


# --- edits


def _replace(text: str, node: Any, edit: Replace) -> list[str]:
    start, end = node.start_mark.index, _end(text, node)
    candidates = []
    span = text[start:end]
    for old, new in edit.parts:
        span = span.replace(old, new) if span.count(old) == 1 else ""
    if edit.parts and span:
        candidates.append(_splice(text, start, end, span))
    gap = " " if start and text[start - 1] not in " \n" else ""
    return [*candidates, *(_splice(text, start, end, gap + plain) for plain in _flows(edit.value))]


def _insert(text: str, node: Any, edit: Insert) -> list[str]:
    value = {edit.key: edit.value} if edit.key else [edit.value]
    if node.id == "scalar" or not node.value:
        start, end = node.start_mark.index, node.end_mark.index
        gap = " " if start and text[start - 1] not in " \n" else ""
        return [_splice(text, start, end, gap + plain) for plain in _flows(value)]
    end = _end(text, node)
    if node.flow_style:
        close = text.rindex("}" if node.id == "mapping" else "]", node.start_mark.index, end)
        at = len(text[:close].rstrip(" ,\n"))
        return [_splice(text, at, close, ", " + _flow(value)[1:-1])]
    last = _line_end(text, end)
    first = node.value[0][0] if node.id == "mapping" else node.value[0]
    column = first.start_mark.column if node.id == "mapping" else node.start_mark.column
    block = dump(value).rstrip("\n")
    return [_splice(text, last, last, "\n" + _shifted(" " * column + block, column))]


def _remove(text: str, holder: Any, key: str | int) -> str:
    if holder.id == "mapping":
        entries = [(k.start_mark.index, _end(text, v)) for k, v in holder.value]
        at = next(i for i, (k, _) in enumerate(holder.value) if k.value == key)
    else:
        entries = [(item.start_mark.index, _end(text, item)) for item in holder.value]
        at = int(key)
    start, end = entries[at]
    empty = "{}" if holder.id == "mapping" else "[]"
    if len(entries) == 1:
        start = holder.start_mark.index
        return _splice(text, start, max(end, _end(text, holder)), empty)
    if holder.flow_style:
        if at + 1 < len(entries):
            return _splice(text, start, entries[at + 1][0], "")
        return _splice(text, entries[at - 1][1], end, "")
    line = _line_start(text, start)
    if holder.id == "sequence":
        dash = text.rfind("-", line, start)
        if dash < 0 or text[line:dash].strip():
            raise EditError("the item does not begin a line of its own")
        start = dash
    elif text[line:start].strip():  # behind a dash: the next entry takes the place
        return _splice(text, start, entries[at + 1][0], "")
    return _splice(text, line, min(_line_end(text, end) + 1, len(text)), "")


def _wrap(text: str, node: Any, edit: Wrap) -> str:
    entries = [(k.value, k.start_mark.index, _end(text, v)) for k, v in node.value]
    if node.flow_style:
        moved = [text[start:end] for name, start, end in entries if name in edit.keys]
        kept = [text[start:end] for name, start, end in entries if name not in edit.keys]
        inner = f"{edit.key}: {{{', '.join(moved)}}}"
        return _splice(text, node.start_mark.index, _end(text, node), "{" + ", ".join([*kept, inner]) + "}")
    column = node.value[0][0].start_mark.column
    runs: list[list[tuple[int, int]]] = []
    together = False
    for name, start, end in entries:
        if name in edit.keys:
            if not together:
                runs.append([])
            runs[-1].append((start, _line_end(text, end)))
        together = name in edit.keys
    pieces = [_shifted(text[run[0][0] : run[-1][1]], 2) for run in runs]
    block = f"\n{' ' * (column + 2)}".join([f"{edit.key}:", *pieces])
    for run in reversed(runs[1:]):
        text = _splice(text, _line_start(text, run[0][0]), min(run[-1][1] + 1, len(text)), "")
    return _splice(text, runs[0][0][0], runs[0][-1][1], block)


def _unwrap(text: str, holder: Any, found: tuple[Any, Any]) -> str:
    key, inner = found
    start = key.start_mark.index
    if inner.id != "mapping" or not inner.value:
        return _remove(text, holder, key.value)
    parts = [text[k.start_mark.index : _end(text, v)] for k, v in inner.value]
    if holder.flow_style:
        return _splice(text, start, _end(text, inner), ", ".join(parts))
    column = key.start_mark.column
    if inner.flow_style:
        return _splice(text, start, _end(text, inner), f"\n{' ' * column}".join(parts))
    first = inner.value[0][0].start_mark
    block = _shifted(text[first.index : _line_end(text, _end(text, inner))], column - first.column)
    comments = _comments_between(text[key.end_mark.index : first.index], column)
    line = _line_start(text, start)
    end = _line_end(text, _end(text, inner))
    return text[:line] + comments + text[line:start] + block + text[end:]


def _comments_between(text: str, column: int) -> str:
    found: Sequence[str] = re.findall(r"#[^\n]*", text)
    return "".join(f"{' ' * column}{comment}\n" for comment in found)
