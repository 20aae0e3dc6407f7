"""Recorded decisions and explanations come out as they were: a tenth of them by day, all at night."""

from __future__ import annotations

import golden_journal
import pytest

EVERY = 10


@pytest.fixture(scope="module")
def histories() -> list[list[golden_journal.Obj]]:
    return golden_journal.read(golden_journal.JOURNAL)


def test_every_tenth_golden_history_is_reproduced(histories: list[list[golden_journal.Obj]]) -> None:
    assert [text for history in histories[::EVERY] for text in golden_journal.differences(history)] == []


@pytest.mark.nightly
def test_all_golden_histories_are_reproduced(histories: list[list[golden_journal.Obj]]) -> None:
    assert [text for history in histories for text in golden_journal.differences(history)] == []


def test_planted_difference_in_a_decision_and_an_explanation_is_found(
    histories: list[list[golden_journal.Obj]],
) -> None:
    history = next(h for h in histories if any("explain" in entry for entry in h))
    planted = [
        {**entry, "decision": {**entry["decision"], "message": "other"}}
        if "decide" in entry
        else {**entry, "explanation": {**entry["explanation"], "verdict": "other"}}
        if "explain" in entry
        else entry
        for entry in history
    ]
    changed = sum("decide" in entry or "explain" in entry for entry in history)
    assert len(list(golden_journal.differences(planted))) == changed > 1
