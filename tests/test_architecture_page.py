"""Every path in the tables of docs/architecture.md exists, and every package stands in its table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "haru"
ENTRY_POINTS = {"__init__.py", "__main__.py"}


def paths_in(heading: str) -> list[str]:
    """The paths, as in `engine/state/cache.py` or `kube/`, that the rows of a section's table name in backticks."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return re.findall(r"`([a-z0-9_/]+(?:/|\.py))`", "\n".join(rows))


@pytest.mark.parametrize(
    ("heading", "at_least"),
    [("Packages", 50), ("The engine", 15), ("Where is …?", 20)],
    ids=["packages", "engine", "places"],
)
def test_every_path_in_a_table_exists(heading: str, at_least: int) -> None:
    named = paths_in(heading)
    assert len(named) >= at_least
    missing = [name for name in named if not (SOURCE / name).exists() or name.endswith("/") != (SOURCE / name).is_dir()]
    assert missing == []


def test_every_package_has_a_row() -> None:
    folders = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    modules = {path.name for path in SOURCE.glob("*.py")} - ENTRY_POINTS
    assert folders | modules <= set(paths_in("Packages"))


def test_every_folder_of_the_engine_has_a_row() -> None:
    folders = {f"engine/{path.parent.name}/" for path in (SOURCE / "engine").glob("*/__init__.py")}
    assert folders <= set(paths_in("The engine"))


def test_at_least_twenty_behaviours_have_a_place() -> None:
    section = PAGE.read_text().partition("\n## Where is …?\n")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 20
    assert [row for row in rows if not re.search(r"\| `[a-z0-9_/]+(/|\.py)`", row)] == []
