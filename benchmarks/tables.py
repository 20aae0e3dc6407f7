"""Tables of results, for people at a terminal and for the documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

Line = Sequence[str]


def plain(heads: Line, lines: Sequence[Line], texts: frozenset[int] = frozenset((0,))) -> str:
    """Columns side by side; those whose numbers are in `texts` begin on the left, the others are figures."""
    cells = [heads, *lines]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number in texts else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def markdown(heads: Line, lines: Sequence[Line], texts: frozenset[int] = frozenset((0,))) -> str:
    """The same in Markdown."""
    rule = ["---" if number in texts else "---:" for number in range(len(heads))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *lines))


def write_section(path: Path, name: str, text: str) -> None:
    """Put text between the marks `<!-- name -->` and `<!-- /name -->` of a document. ValueError if they are missing."""
    document = path.read_text()
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = document.partition(opening)
    _, ended, after = rest.partition(closing)
    if not found or not ended:
        raise ValueError(f"{path}: give the place of the table by {opening} and {closing}")
    path.write_text(f"{before}{opening}\n\n{text}\n\n{closing}{after}")
