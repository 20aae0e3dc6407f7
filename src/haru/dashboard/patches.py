"""What differs between two versions of a page, by lines: what a browser that has one needs to have the other."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

_BEGIN, _END = '<div id="content"', "</main>"
_MOST_COMPARED = 400
"""Lines between the first and the last that differ, up to which they are matched with each other."""
Splice = tuple[int, int, list[str]] | tuple[int, int, int, str]
"""From which line on how many lines are replaced, by which; or in which line from where on how many characters."""


def content_of(page: str) -> str:
    """Return what stands in the element `content` of a page; all of it where there is none."""
    begin = page.find(_BEGIN)
    if begin < 0:
        return page
    begin, end = page.index(">", begin) + 1, page.rindex(_END)
    return page[begin : page.rindex("</div>", begin, end)]


def splices(old: Sequence[str], new: Sequence[str]) -> list[Splice]:
    """Return what to replace in lines, from the last to the first, so that they become others."""
    first = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    most = min(len(old), len(new)) - first
    last = next((n for n in range(most) if old[-1 - n] != new[-1 - n]), most)
    before, after = old[first : len(old) - last], new[first : len(new) - last]
    if len(before) == len(after):
        differing = (at for at in reversed(range(len(before))) if before[at] != after[at])
        return [_within(first + at, before[at], after[at]) for at in differing]
    if len(before) + len(after) > _MOST_COMPARED:
        return [(first, len(before), list(after))]
    found: list[Splice] = []
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            found.append((first + a, b - a, list(after[c:d])))
    return found[::-1]


def _within(at: int, old: str, new: str) -> Splice:
    """What to replace in one line. Browsers count characters in UTF-16, so that others than plain ones go whole."""
    if not (old.isascii() and new.isascii()):
        return (at, 1, [new])
    most = min(len(old), len(new))
    first = _shared(old, new)
    last = min(_shared(old[::-1], new[::-1]), most - first)
    return (at, first, len(old) - last - first, new[first : len(new) - last])


def _shared(one: str, other: str) -> int:
    """How many characters two texts share from their beginning, by halving."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def applied(lines: Sequence[str], found: Sequence[Any]) -> list[str]:
    """Return lines with splices carried out, as the browser does it."""
    made = list(lines)
    for each in found:
        if len(each) == 4:
            at, begin, count, text = each
            made[at] = made[at][:begin] + text + made[at][begin + count :]
        else:
            at, count, texts = each
            made[at : at + count] = texts
    return made
