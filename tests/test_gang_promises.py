"""The tests that docs/reference/gang-promises.md names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "gang-promises.md"


def test_every_test_that_holds_a_promise_exists() -> None:
    named = re.findall(r"`([a-z_/]+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) > 50
    for file, name in named:
        text = (ROOT / "tests" / file).read_text()
        assert re.search(rf"^(async )?def {name}\(", text, re.M), f"tests/{file} has no {name}"


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    bare = [row for row in rows if "::test_" not in row and not row.startswith("| situation ")]
    assert bare == []
