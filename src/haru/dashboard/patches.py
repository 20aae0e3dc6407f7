"""What differs between two versions of a page, by lines: what a browser that has one needs to have the other."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

_BEGIN, _END = '<div id="content"', "</main>"
_MOST_COMPARED = 400
"""Lines between the first and the last that differ, up to which they are matched with each other."""
Splice = tuple[int, int, list[str]]
"""From which line on how many lines are replaced, by which."""


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
        return [(first + at, count, list(after[at : at + count])) for at, count in reversed(_runs(before, after))]
    if len(before) + len(after) > _MOST_COMPARED:
        return [(first, len(before), list(after))]
    found: list[Splice] = []
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            found.append((first + a, b - a, list(after[c:d])))
    return found[::-1]


def _runs(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Where lines of equal number differ: from where on, and how many in a row."""
    found: list[tuple[int, int]] = []
    for at, (a, b) in enumerate(zip(old, new, strict=True)):
        if a == b:
            continue
        if found and sum(found[-1]) == at:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((at, 1))
    return found


def applied(lines: Sequence[str], found: Sequence[Any]) -> list[str]:
    """Return lines with splices carried out, as the browser does it."""
    made = list(lines)
    for at, count, texts in found:
        made[at : at + count] = texts
    return made
