"""The allocator against brute force: whether it fits, and the first choice, on problems of at most seven devices."""

from __future__ import annotations

from typing import Any

import pytest
from brute_force import first
from device_objects import DRIVER, claim, exact, slice_
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


def test_constraint_on_all_devices_is_an_error_before_a_lack_of_room() -> None:
    shared = {"name": "a", "allowMultipleAllocations": True, "capacity": {"slots": {"value": "2"}}}
    asks = [
        {"name": "some", "exactly": exact(1)},
        {"name": "every", "exactly": exact(None)},
    ]
    constraint = {"requests": ["every"], "matchAttribute": f"{DRIVER}/root"}
    given = {**problem(0), "slices": [slice_("one", [shared])], "claims": [claim("c", *asks, constraints=[constraint])]}
    with pytest.raises(dra.AllocationError, match=r"request every: cannot add device .*/a because a claim constraint"):
        answer({**given, "taken": []})


def test_allocator_agrees_with_brute_force() -> None:
    found, fitting = disagreements(range(300))
    assert found == {}
    assert 60 < fitting < 240  # both outcomes occur often enough to mean something


@pytest.mark.nightly
def test_allocator_agrees_with_brute_force_on_20000_problems() -> None:
    found, _ = disagreements(range(1000, 21_000))
    assert found == {}
