"""What a change comes to, as a page shows it: before and after, and by workload what starts, moves, waits or ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from haru.dashboard.redaction.objects import HIDDEN
from haru.dashboard.views import tables
from haru.dashboard.views.tables import Cell, Column, Table
from haru.dashboard.views.workloads import ANOTHER, Workload
from haru.engine import Reason
from haru.explain.card_counts import WHOLE
from haru.kube.names import counted
from haru.whatif import Comparison
from haru.whatif.text import amount_text
from haru.whatif.usage import Amount

COLUMNS = (
    Column("workload", "Workload"),
    Column("pods", "Pods", numeric=True),
    Column("what", "What happens"),
    Column("from", "From"),
    Column("to", "To"),
    Column("why", "Why"),
)
_OUTCOMES = {
    "Restarts": ("starts again", ""),
    "Waits": ("waits", "later"),
    "Lost": ("is lost", "bad"),
    "GoesWithNode": ("goes with its node", ""),
    "Deleted": ("is deleted", "bad"),
}
_OF_MANY = {
    "starts": "start", "starts again": "start again", "waits": "wait", "is lost": "are lost",
    "goes with its node": "go with their node", "is deleted": "are deleted",
}  # fmt: skip
_CARDS: tuple[tuple[Literal["held", "reserved", "free", "unavailable"], str], ...] = (
    ("held", "in-use"), ("reserved", "reserved"), ("free", "free"), ("unavailable", "unavailable")
)  # fmt: skip
"""The words of a bar of cards with their CSS classes."""
_MOST_NODES = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: what it is, its CSS class, and its width in percent of the longer bar of the two."""

    title: str
    look: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """How much there is of something and what of it is in use, drawn and as text."""

    segments: tuple[Segment, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Level:
    """How full something is, before and after."""

    name: str
    before: Bar
    after: Bar


@dataclass(frozen=True, slots=True)
class DifferencePage:
    """What a change comes to. `counts`: how many pods what happens to, each with its tone."""

    changes: tuple[str, ...]
    harmless: bool
    counts: tuple[tuple[str, str], ...]
    levels: tuple[Level, ...]
    table: Table
    still_waiting: int
    gangs: tuple[str, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """What happens to a pod: from a node (empty: it had none) to another (empty: to none)."""

    work: Workload
    what: str
    tone: str
    left: str
    taken: str
    why: str


def difference_page(found: Comparison, query: Mapping[str, str]) -> DifferencePage:
    """Make the page of a comparison."""
    rows: dict[tuple[Workload, str], list[_Row]] = defaultdict(list)
    counts: Counter[tuple[str, str]] = Counter()
    for row in _rows(found):
        rows[row.work, row.what].append(row)
        counts[row.what, row.tone] += 1
    cells = [_cells(alike) for alike in rows.values()]
    gangs = (f"{gang.path}: {gang.placed} of {gang.min_count}" for gang in found.gangs if not _is_hidden(gang.path))
    levels = tuple(_level(name, before, after) for name, (before, after) in found.usage.items())
    table = tables.table("what", "What happens", COLUMNS, cells, query)
    errors = tuple(text for text in found.errors if HIDDEN not in text)
    told = tuple(_counted(*each) for each in counts.items())
    return DifferencePage(found.changes, found.harmless, told, levels, table, found.still_waiting, tuple(gangs), errors)


def _is_hidden(path: str) -> bool:
    return path.partition("/")[0] == HIDDEN


def _rows(found: Comparison) -> Iterator[_Row]:
    for start in found.starts:
        yield _Row(_work(start.path, start.workload), "starts", "good", "", start.node, "")
    for displaced in found.displaced:
        what, tone = _OUTCOMES[displaced.outcome]
        hidden = _is_hidden(displaced.path)
        why = "" if hidden else "; ".join((displaced.cause.message, _said(displaced.reasons))).strip("; ")
        work = _work(displaced.path, displaced.workload)
        yield _Row(work, what, tone, displaced.node, displaced.new_node or "", why)
    for wait in found.waits:
        why = "" if _is_hidden(wait.path) else _said(wait.reasons)
        yield _Row(_work(wait.path, wait.workload), "waits", "later", "", "", why)


def _work(path: str, name: str) -> Workload:
    namespace = path.partition("/")[0]
    return ANOTHER if namespace == HIDDEN else Workload(namespace, name)


def _said(reasons: Iterable[Reason]) -> str:
    """The reasons without names of hidden objects, which are in none that is about work that is shown."""
    return "; ".join(dict.fromkeys(reason.message for reason in reasons if HIDDEN not in reason.message))


def _cells(alike: Sequence[_Row]) -> tuple[Cell, ...]:
    """One row of the table for all pods of a workload to which the same happens."""
    return (
        tables.work(alike[0].work),
        tables.number(len(alike)),
        tables.badge(alike[0].what, alike[0].tone),
        _nodes(row.left for row in alike),
        _nodes(row.taken for row in alike),
        tables.text("; ".join(dict.fromkeys(row.why for row in alike if row.why))),
    )


def _nodes(names: Iterable[str]) -> Cell:
    return tables.links([(name, f"/node/{name}") for name in sorted({*names} - {""})], _MOST_NODES)


def _counted(what: tuple[str, str], pods: int) -> tuple[str, str]:
    text, tone = what
    return f"{counted(pods, 'pod')} {text if pods == 1 else _OF_MANY[text]}", tone


def _level(name: str, before: Amount, after: Amount) -> Level:
    scale = max(before.total, after.total) or 1.0
    bars = (Bar(tuple(_segments(each, scale)), amount_text(name, each)) for each in (before, after))
    return Level(name, *bars)


def _segments(amount: Amount, scale: float) -> Iterator[Segment]:
    """The parts of a bar; `scale` is the amount that is 100 percent."""
    cards = amount.cards
    if cards is None:
        parts = [("in use", "in-use", amount.used), ("free", "free", amount.total - amount.used)]
    else:
        parts = [(word, look, getattr(cards, word) / WHOLE) for word, look in _CARDS]
    x = 0.0
    for title, look, size in parts:
        width = 100 * size / scale
        if width > 0:
            yield Segment(f"{size / (amount.total or 1):.0%} {title}", look, round(x, 3), round(width, 3))
        x += width
