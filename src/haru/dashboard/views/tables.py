"""Tables that every page can sort and filter, by the address: `?NAME.sort=-since&NAME.find=text`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from haru.dashboard.views.workloads import Workload

MOST_ROWS = 200
MOST_LINKS = 8

Kind = Literal["text", "link", "links", "work", "works", "time", "number", "badge", "command"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its text, what it is sorted by, and what it links to. `tone` is that of a badge (good, later, bad)."""

    text: str
    order: tuple[int, float, str]
    kind: Kind = "text"
    href: str = ""
    work: Workload | None = None
    tone: str = ""
    links: tuple[tuple[str, str], ...] = ()
    """Texts with their addresses; the text that follows them says how many more there are."""
    works: tuple[Workload, ...] = ()


def text(value: str) -> Cell:
    """Make a cell of plain text."""
    return Cell(value, (0, 0.0, value.casefold()))


def link(value: str, href: str) -> Cell:
    """Make a cell with a link."""
    return Cell(value, (0, 0.0, value.casefold()), "link", href)


def links(values: Sequence[tuple[str, str]], most: int = MOST_LINKS) -> Cell:
    """Make a cell with several links, as texts with addresses; of many the first."""
    title = ", ".join(text for text, _ in values[:most])
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return Cell(title + more, (0, 0.0, title.casefold()), "links", links=tuple(values[:most]), href=more)


def works(values: Sequence[Workload]) -> Cell:
    """Make a cell with several workloads, each with its colour and its link."""
    title = ", ".join(each.title for each in values)
    return Cell(title, (0, 0.0, title), "works", works=tuple(values))


def work(value: Workload) -> Cell:
    """Make a cell with a workload in its colour; the link leads to its page."""
    title = value.title
    return Cell(title, (0, 0.0, title), "work", value.path, value)


def time(value: str) -> Cell:
    """Make a cell with a time (RFC 3339), shown as an age."""
    return Cell(value, (0, 0.0, value), "time")


def number(value: float | None, shown: str = "") -> Cell:
    """Make a cell with a number, sorted by it; None is shown as a dash and comes last."""
    if value is None:
        return Cell("–", (1, 0.0, ""), "number")
    return Cell(shown or f"{value:g}", (0, value, ""), "number")


def badge(value: str, tone: str = "") -> Cell:
    """Make a cell with a state."""
    return Cell(value, (0, 0.0, value), "badge", tone=tone)


def command(value: str) -> Cell:
    """Make a cell with a command that can be copied."""
    return Cell(value, (0, 0.0, value), "command")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in the address, and its title."""

    key: str
    title: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What of a table is shown: `total` rows there are, `found` match `find`, `rows` are the first of those."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int
    found: int
    find: str
    sort: str
    descending: bool


def table(
    name: str,
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    query: Mapping[str, str],
    most: int = MOST_ROWS,
) -> Table:
    """Sort and filter rows as a query says; without one they stay in their order."""
    every = [tuple(row) for row in rows]
    find = query.get(f"{name}.find", "").strip()
    wanted = find.casefold()
    found = [row for row in every if not wanted or any(wanted in cell.text.casefold() for cell in row)]
    asked = query.get(f"{name}.sort", "")
    key, descending = asked.removeprefix("-"), asked.startswith("-")
    at = next((index for index, column in enumerate(columns) if column.key == key), None)
    if at is not None:
        known = [row for row in found if not row[at].order[0]]
        known.sort(key=lambda row: row[at].order, reverse=descending)
        found = known + [row for row in found if row[at].order[0]]
    sort = key if at is not None else ""
    return Table(name, caption, tuple(columns), tuple(found[:most]), len(every), len(found), find, sort, descending)
