"""Answers of a real kube-apiserver 1.36, replayed: a slice in every run, all of them at night."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import api_conformance


def test_page_has_the_differences_on_purpose() -> None:
    page = api_conformance.PAGE.read_text()
    assert page.endswith(api_conformance.section()), "run tools/api_conformance.py --write-page"


def test_difference_names_one_kind_and_one_resource_or_field_and_has_a_reason() -> None:
    rows = api_conformance.rows()
    assert rows
    for row in rows:
        assert row.keys() == {"kind", "resource", "field", "why"}
        assert "*" not in row["kind"] and row["field"].strip("*"), row
        # Tables are made alike for all resources; whatever else differs in all of them is no difference on purpose.
        assert "*" not in row["resource"] or row["field"] == "rows[*].object.metadata.managedFields", row
        assert len(row["why"].split()) > 5


def test_table_has_a_row_for_each_file() -> None:
    counts = {"crud": api_conformance.Counts(9, 10, 1)}
    assert api_conformance.table(counts, {}).splitlines()[-1] == "| crud | 10 | 90.0 % |  |"


def test_slice_of_recorded_answers_agrees(reference_data: Path) -> None:
    found = api_conformance.replay(reference_data / "vectors/api", ["special"], semantic=True, only="s*")
    counts = found.counts["special"]
    assert counts.steps > 40 and counts.agree >= counts.steps - 2, found.output


@pytest.mark.nightly
@pytest.mark.parametrize(("semantic", "share"), [(True, 0.999), (False, 0.985)])
def test_recorded_answers_agree(reference_data: Path, semantic: bool, share: float) -> None:
    found = api_conformance.replay(reference_data / "vectors/api", api_conformance.FILES, semantic=semantic)
    every = list(found.counts.values())
    steps = sum(counts.steps for counts in every)
    assert len(every) == len(api_conformance.FILES)
    assert sum(counts.agree for counts in every) >= share * steps, found.output
    assert not re.search(r"^ *\d+  (accepts|refuses|fails|code|no-answer)  ", found.output, re.MULTILINE), found.output
    assert sum(counts.allowed for counts in every) <= 0.01 * steps
