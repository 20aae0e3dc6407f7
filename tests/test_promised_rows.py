"""The tests that the tables of docs/reference name are there, and every row names one or says what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "promises.md"
CONFORMANCE = ROOT / "docs" / "reference" / "api-conformance.md"
SECURITY = ROOT / "docs" / "security.md"
TOPICS = [
    "Workloads, PodGroups and Jobs",
    "Gangs",
    "Topology",
    "Preemption",
    "Ordinary pods",
    "Devices on a node",
    "Pods on a node",
    "Mutating policies",
    "The external token signer",
    "Servers of different versions",
    "Autoscalers and signing requests",
]


def rows(text: str) -> list[list[str]]:
    """The cells of all rows but the heads of tables."""
    lines = [
        line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| situation"))
    ]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize(
    ("page", "at_least"), [(PAGE, 150), (CONFORMANCE, 90), (SECURITY, 30)], ids=["promises", "conformance", "security"]
)
def test_every_test_named_on_page_exists(page: Path, at_least: int) -> None:
    named = re.findall(r"`([a-z0-9_/]+\.py)::(\w+)`", page.read_text())
    assert len(named) > at_least
    for file, name in named:
        text = (ROOT / "tests" / file).read_text()
        assert re.search(rf"^(async )?def {name}\(", text, re.M), f"tests/{file} has no {name}"


def test_every_promise_has_expectation_and_tests() -> None:
    tests = re.compile(r"`[a-z0-9_/]+\.py::test_\w+`(, `[a-z0-9_/]+\.py::test_\w+`)*")
    wrong = [row for row in rows(PAGE.read_text()) if len(row) != 3 or not row[1] or not tests.fullmatch(row[2])]
    assert wrong == []


def test_every_conformance_row_is_done_with_tests_or_open() -> None:
    recorded = r"^\| sequences \|.*\n(\|.*\n)+"  # the counts of recorded answers, not rows with tests
    text = re.sub(recorded, "", CONFORMANCE.read_text(), flags=re.M).replace("| row | state | tests |", "| situation")
    tests = re.compile(r"`[a-z0-9_/]+\.py::test_\w+`(, `[a-z0-9_/]+\.py::test_\w+`)*")
    for row in rows(text):
        state, named = row[1], row[2] if len(row) > 2 else ""
        assert state.startswith(("done", "open: ")), row
        assert not state.startswith("done") or tests.fullmatch(named), row


def test_every_security_claim_names_tests() -> None:
    tests = re.compile(r"`[a-z0-9_/]+\.py::test_\w+`(, `[a-z0-9_/]+\.py::test_\w+`)*")
    tables = re.findall(r"((?:^\|.*\n)+)", SECURITY.read_text(), re.M)
    assert len(tables) >= 8
    for table in tables:
        head, _, *claims = table.splitlines()
        assert head.endswith("| tests |"), head
        assert [claim for claim in claims if not tests.fullmatch(claim.strip("| ").split(" | ")[-1])] == []


def test_situations_are_unique_per_section() -> None:
    for section in PAGE.read_text().split("\n## ")[1:]:
        situations = [row[0] for row in rows(section)]
        assert len(set(situations)) == len(situations) >= 10


def test_every_topic_has_rows() -> None:
    sections = PAGE.read_text().split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == TOPICS
