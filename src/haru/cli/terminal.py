"""Show text and tables as wide as the terminal, with colour; as they are where stdout is no terminal.

NO_COLOR and TERM=dumb are honoured. `rich` is imported on a terminal only.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""The names of the columns, and the rows."""
_STYLES = {
    "Runs": "green",
    "Starting": "green",
    "FitsLater": "yellow",
    "FitsIf": "magenta",
    "NeverFits": "bold red",
}
_LABEL = re.compile(r"^[a-z][a-z ]{1,7} (?= *\S)")
_COMMAND = re.compile(r"\b(kubectl|haru) [a-z]")
_INDENT = 9
_LEAST_WIDTH = 40


def is_terminal() -> bool:
    """Tell whether stdout is a terminal that can do more than print lines."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def print_lines(text: str) -> None:
    """Print the lines of an explanation."""
    if not is_terminal():
        print(text)
        return
    from rich.console import Console

    show_lines(Console(highlight=False), text)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], plain: str) -> None:
    """Print a table; `plain` is what stands for it where stdout is no terminal."""
    if not is_terminal():
        print(plain)
        return
    from rich.console import Console

    show_table(Console(highlight=False), head, rows)


def print_blocks(blocks: Sequence[str | Table], plain: str) -> None:
    """Print the lines and tables of an explanation; `plain` is what stands for them where stdout is no terminal."""
    if not is_terminal():
        print(plain)
        return
    from rich.console import Console

    show_blocks(Console(highlight=False), blocks)


def show_blocks(console: Console, blocks: Sequence[str | Table]) -> None:
    """Show lines as `show_lines` does, and tables as `show_table` does, below their labels."""
    for number, block in enumerate(blocks):
        if isinstance(block, str):
            show_lines(console, block, begins=not number)
        else:
            show_table(console, *block, indent=_INDENT)


def show_lines(console: Console, text: str, *, begins: bool = True) -> None:
    """Wrap lines below their labels; a line with a command is left to the terminal, so that it can be copied.

    The first line of an answer has no label, unless the text does not begin one.
    """
    for number, line in enumerate(text.splitlines(), 0 if begins else 1):
        if _COMMAND.search(line) or console.width < _LEAST_WIDTH:
            console.print(_styled(line, first=not number), soft_wrap=True)
            continue
        indent = _INDENT if number else 2
        deeper = len(line[indent:]) - len(line[indent:].lstrip()) if number else 0
        wrapped = textwrap.wrap(
            line,
            console.width,
            subsequent_indent=" " * (indent + deeper),
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
        for part in wrapped or [""]:
            console.print(_styled(part, first=not number), soft_wrap=True)


def _styled(line: str, *, first: bool) -> Text:
    from rich.text import Text

    found = Text(line)
    if first:
        for verdict, style in _STYLES.items():
            found.highlight_regex(rf"(?<=: ){verdict}(?=:|$)", style)
    elif label := _LABEL.match(line):
        found.stylize("bold", 0, label.end())
    return found


def show_table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]], *, indent: int = 0) -> None:
    """A table without lines, whose cells wrap."""
    from rich.padding import Padding
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in head:
        table.add_column(name, overflow="fold", no_wrap=name in ("PODS", "SINCE", "VERDICT", "STARTS"))
    for row in rows:
        table.add_row(*(Text(cell or "-", style=_STYLES.get(cell, "")) for cell in row))
    console.print(Padding(table, (0, 0, 0, indent)))
