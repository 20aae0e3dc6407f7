"""The usage of cards over a time, as the bands of a chart and as a table of the same numbers."""

from __future__ import annotations

from collections.abc import Mapping

from haru.dashboard.views import tables
from haru.dashboard.views.looks import look
from haru.dashboard.views.usage import OTHERS, Allocation, Band

COLUMNS = (
    tables.Column("work", "Used by"),
    tables.Column("now", "Now", numeric=True),
    tables.Column("mean", "Mean", numeric=True),
    tables.Column("hours", "Card-hours", numeric=True),
)


_TOKENS = {"inUse": "in-use", "held": "in-use"}


def usage_chart(found: Allocation) -> dict[str, object]:
    """Make the bands of a chart, from where something was observed; unobserved slots are gaps.

    A value holds until the next one: the last slot's is there twice, where it begins and where it ends.
    """
    first = next((index for index, seen in enumerate(found.seen) if seen), 0)
    slots = [*range(first, len(found.seen)), len(found.seen) - 1]
    x = [round((found.since + index * found.slot) / 1000) for index in range(first, len(found.seen) + 1)]
    series = [
        {
            "name": band.name,
            "look": _look(band),
            "values": [round(band.cards[slot], 3) if found.seen[slot] else None for slot in slots],
        }
        for band in found.bands
    ]
    return {"x": x, "series": series}


def usage_table(found: Allocation, query: Mapping[str, str]) -> tables.Table:
    """Make the table of the same numbers."""
    rows = [
        (
            _cell(band),
            tables.number(round(band.now, 2)),
            tables.number(round(found.mean(band), 2)),
            tables.number(round(found.hours(band), 2)),
        )
        for band in found.bands
    ]
    return tables.table("hours", "Cards by who held them", COLUMNS, rows, query)


def _look(band: Band) -> str:
    work = band.use.workload
    return look(work) if work is not None else _TOKENS.get(band.use.kind, band.use.kind)


def _cell(band: Band) -> tables.Cell:
    work = band.use.workload
    return tables.text(band.name) if work is None or work == OTHERS else tables.work(work)
