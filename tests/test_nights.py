"""Nights have seeds of their own, and as many."""

from __future__ import annotations

import pytest

import nights
from nights import tonight


@pytest.mark.parametrize("seeds", [range(20), range(1000, 1200), range(1, 51, 10)])
def test_each_night_has_as_many_seeds_of_its_own(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    monkeypatch.setattr(nights, "NIGHT", 0)
    assert tonight(seeds) == seeds
    monkeypatch.setattr(nights, "NIGHT", 331)
    found = tonight(seeds)
    assert len(found) == len(seeds) and not {*found} & {*seeds}
    # What a test takes from a seed by its remainder it takes each night.
    assert [seed % 4 for seed in found] == [seed % 4 for seed in seeds]
