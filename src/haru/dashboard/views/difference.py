"""What a change comes to, as a page shows it: before and after, and by workload what starts, moves, waits or ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from haru.dashboard.redaction.objects import HIDDEN
from haru.dashboard.views import tables
from haru.dashboard.views.tables import Cell, Column, Table
from haru.dashboard.views.workloads import ANOTHER, Workload
from haru.engine import Reason
from haru.whatif import Comparison
from haru.whatif.text import amount_text
from haru.whatif.usage import Amount

COLUMNS = (
    Column("workload", "Workload"),
    Column("pods", "Pods", numeric=True),
    Column("what", "What happens"),
    Column("where", "Where"),
    Column("why", "Why"),
)
_OUTCOMES = {
    "Restarts": ("starts again", ""),
    "Waits": ("waits", "later"),
    "Lost": ("is lost", "bad"),
    "GoesWithNode": ("goes with its node", ""),
    "Deleted": ("is deleted", "bad"),
}


@dataclass(frozen=True, slots=True)
class Level:
    """How full something is, before and after, in parts of 100, with the amounts as text."""

    name: str
    before: float
    after: float
    text: str


@dataclass(frozen=True, slots=True)
class DifferencePage:
    """What a change comes to. `counts`: pods by what happens to them."""

    changes: tuple[str, ...]
    harmless: bool
    counts: tuple[tuple[str, int], ...]
    levels: tuple[Level, ...]
    table: Table
    still_waiting: int
    gangs: tuple[str, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    work: Workload
    what: str
    tone: str
    where: str
    why: str


def difference_page(found: Comparison, query: Mapping[str, str]) -> DifferencePage:
    """Make the page of a comparison."""
    rows: Counter[_Row] = Counter(_rows(found))
    cells = [_cells(row, count) for row, count in rows.items()]
    counts: dict[str, int] = defaultdict(int)
    for row, count in rows.items():
        counts[row.what] += count
    gangs = (f"{gang.path}: {gang.placed} of {gang.min_count}" for gang in found.gangs if not _is_hidden(gang.path))
    levels = tuple(_level(name, before, after) for name, (before, after) in found.usage.items())
    table = tables.table("what", "What happens", COLUMNS, cells, query)
    errors = tuple(text for text in found.errors if HIDDEN not in text)
    return DifferencePage(
        found.changes, found.harmless, tuple(counts.items()), levels, table, found.still_waiting, tuple(gangs), errors
    )


def _is_hidden(path: str) -> bool:
    return path.partition("/")[0] == HIDDEN


def _rows(found: Comparison) -> Iterator[_Row]:
    for start in found.starts:
        yield _Row(_work(start.path, start.workload), "starts", "good", start.node, "")
    for displaced in found.displaced:
        what, tone = _OUTCOMES[displaced.outcome]
        where = f"{displaced.node} → {displaced.new_node}" if displaced.new_node else displaced.node
        hidden = _is_hidden(displaced.path)
        why = "" if hidden else "; ".join((displaced.cause.message, _said(displaced.reasons))).strip("; ")
        yield _Row(_work(displaced.path, displaced.workload), what, tone, where, why)
    for wait in found.waits:
        why = "" if _is_hidden(wait.path) else _said(wait.reasons)
        yield _Row(_work(wait.path, wait.workload), "waits", "later", "", why)


def _work(path: str, name: str) -> Workload:
    namespace = path.partition("/")[0]
    return ANOTHER if namespace == HIDDEN else Workload(namespace, name)


def _said(reasons: Iterable[Reason]) -> str:
    """The reasons without names of hidden objects, which are in none that is about work that is shown."""
    return "; ".join(dict.fromkeys(reason.message for reason in reasons if HIDDEN not in reason.message))


def _cells(row: _Row, count: int) -> tuple[Cell, ...]:
    return (
        tables.work(row.work),
        tables.number(count),
        tables.badge(row.what, row.tone),
        tables.text(row.where),
        tables.text(row.why),
    )


def _level(name: str, before: Amount, after: Amount) -> Level:
    text = f"{amount_text(name, before)} → {amount_text(name, after)}"
    return Level(name, 100 * before.share, 100 * after.share, text)
