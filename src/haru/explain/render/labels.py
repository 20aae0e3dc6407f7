"""Lines with a label before the first of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def labelled(label: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, indented, the first after its label."""
    for number, line in enumerate(lines):
        yield f"{label + ' ' if not number else '':<9}{line}"
