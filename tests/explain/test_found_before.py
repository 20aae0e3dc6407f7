"""An explanation with remedies that takes what one without them found says the same, and asks no more than alone."""

from __future__ import annotations

from typing import Any

import pytest
from test_situations import EVERY

from haru.explain import entry
from haru.explain.diagnosis import pending

WORK = ("verdict_of", "diagnose", "explain_gated")


def test_what_was_found_without_remedies_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def count(name: str) -> None:
        find = getattr(pending, name)

        def counted(*args: Any) -> Any:
            asked.append(name)
            return find(*args)

        monkeypatch.setattr(pending, name, counted)

    for name in WORK:
        count(name)
    alone, compared = entry.explain, 0

    def in_two_steps(*args: Any, **given: Any) -> Any:
        nonlocal compared
        given.pop("remedies", None)
        asked.clear()
        expected = alone(*args, **given)
        once, found = list(asked), {}  # type: ignore[var-annotated]
        asked.clear()
        plain = alone(*args, remedies=False, found=found, **given)
        assert not plain.remedies
        told = alone(*args, remedies=True, found=found, **given)
        assert told == expected
        assert asked == once
        asked.clear()
        compared += bool(once)
        return told

    monkeypatch.setattr(entry, "explain", in_two_steps)
    for _, one in EVERY:
        one.explanation()
    assert compared > 50
