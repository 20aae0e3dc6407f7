"""Tables within texts: in columns of equal width, or left to who shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""The names of the columns, and the rows."""
Block = str | Table
"""A line of a text, or a table in it."""
_INDENT = " " * 9


def aligned(found: Table) -> str:
    """A table as kubectl prints it: columns of equal width, three spaces apart; `-` stands for nothing."""
    head, rows = found
    lines = [head, *([cell or "-" for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = ("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def blocks_text(blocks: Iterable[Block]) -> str:
    """The lines, with the tables below their labels."""
    return "\n".join(_lines(blocks))


def _lines(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, str):
            yield block
        else:
            yield from (f"{_INDENT}{line}" for line in aligned(block).split("\n"))
