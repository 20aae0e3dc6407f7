"""Tables sort and filter by the address, and numbers that nobody knows come last in both directions."""

from __future__ import annotations

import pytest

from haru.dashboard.views import tables
from haru.dashboard.views.tables import Column

COLUMNS = (Column("name", "Name"), Column("cards", "Cards", numeric=True))
ROWS = [
    (tables.text("b"), tables.number(2)),
    (tables.text("A"), tables.number(None)),
    (tables.text("c"), tables.number(10)),
]


def names(query: dict[str, str]) -> list[str]:
    return [row[0].text for row in tables.table("t", "T", COLUMNS, ROWS, query).rows]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("", ["b", "A", "c"]), ("name", ["A", "b", "c"]), ("-name", ["c", "b", "A"]), ("cards", ["b", "c", "A"]),
     ("-cards", ["c", "b", "A"]), ("nothing", ["b", "A", "c"])],
)  # fmt: skip
def test_rows_are_sorted_as_address_says(sort: str, expected: list[str]) -> None:
    assert names({"t.sort": sort, "other.sort": "name"}) == expected


def test_find_keeps_rows_with_the_text_and_counts_all() -> None:
    found = tables.table("t", "T", COLUMNS, ROWS, {"t.find": " a "}, most=1)
    assert ([row[0].text for row in found.rows], found.found, found.total) == (["A"], 1, 3)
    few = tables.table("t", "T", COLUMNS, ROWS, {}, most=2)
    assert (len(few.rows), few.found) == (2, 3)
