"""The allocator against brute force: whether it fits, and the first choice, on problems of at most seven devices."""

from __future__ import annotations

from typing import Any

import pytest
from brute_force import first
from small_problems import problem

from haru import dra


def answer(given: dict[str, Any]) -> list[list[tuple[str, str, str]]] | None:
    arguments = {key: value for key, value in given.items() if key != "taken"}
    found = dra.allocate(**arguments, allocated=dra.AllocatedState(given["taken"]))
    if found is None:
        return None
    return [[(r["request"], r["pool"], r["device"]) for r in result["devices"]["results"]] for result in found]


def disagreements(seeds: range) -> tuple[dict[int, Any], int]:
    """What differs, by seed, and how many of the problems fit."""
    found, fitting = {}, 0
    for seed in seeds:
        given = problem(seed)
        expected = first(given)
        got = answer(given)
        fitting += expected is not None
        if got != expected:
            found[seed] = (expected, got)
    return found, fitting


def test_allocator_agrees_with_brute_force() -> None:
    found, fitting = disagreements(range(300))
    assert found == {}
    assert 60 < fitting < 240  # both outcomes occur often enough to mean something


@pytest.mark.nightly
def test_allocator_agrees_with_brute_force_on_20000_problems() -> None:
    found, _ = disagreements(range(1000, 21_000))
    assert found == {}
