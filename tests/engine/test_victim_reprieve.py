"""Reprieve of victims: the lexicographically greatest set, with few fit checks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.engine.preemption.reprieve import reprieve, reprieve_one_by_one


class Room:
    """Units weigh something, and what stays may not weigh more than there is room for."""

    def __init__(self, weights: Sequence[int], room: int) -> None:
        self._weights = weights
        self._left = room
        self.questions = 0

    def fits_with(self, units: Sequence[int]) -> bool:
        self.questions += 1
        return sum(self._weights[unit] for unit in units) <= self._left

    def keep(self, units: Sequence[int]) -> None:
        self._left -= sum(self._weights[unit] for unit in units)
        assert self._left >= 0


def greatest(weights: Sequence[int], room: int) -> list[int]:
    """By looking at every subset, the greatest first."""
    for stays in itertools.product((True, False), repeat=len(weights)):
        if sum(weight for weight, stay in zip(weights, stays, strict=True) if stay) <= room:
            return [number for number, stay in enumerate(stays) if not stay]
    raise AssertionError("nothing fits always")


@given(st.lists(st.integers(0, 5), max_size=9), st.integers(0, 25), st.lists(st.integers(0, 3), min_size=9, max_size=9))
def test_reprieved_set_equals_greedy_definition(weights: list[int], room: int, levels: list[int]) -> None:
    falling = sorted(levels, reverse=True)
    expected = greatest(weights, room)
    assert reprieve(range(len(weights)), Room(weights, room), lambda number: falling[number]) == expected
    assert reprieve_one_by_one(range(len(weights)), Room(weights, room)) == expected
    if sum(weights) > room:
        ground = Room(weights, room)
        assert reprieve(range(len(weights)), ground, lambda number: falling[number], refused=True) == expected


@pytest.mark.parametrize(
    ("weights", "room", "victims"),
    [
        ([1] * 10_000, 10_000, 0),
        ([1] * 10_000, 9_999, 1),
        ([1] * 10_000, 9_936, 64),
        ([5, *[0] * 9_999], 4, 1),
        ([*[0] * 9_999, 5], 4, 1),
        (list(itertools.chain.from_iterable([[0] * 999, [9]] * 10)), 0, 10),
    ],
    ids=["none", "the last", "the last of many", "the first", "the only one that weighs", "here and there"],
)
def test_number_of_fit_checks_is_victims_times_logarithm(weights: list[int], room: int, victims: int) -> None:
    ground = Room(weights, room)
    assert len(reprieve(range(len(weights)), ground, lambda number: number // -100)) == victims
    assert ground.questions <= 2 * (victims + 1) * ceil(log2(len(weights))) + 2


def test_adjacent_victims_cost_one_fit_check_each() -> None:
    ground = Room([1] * 1_000, 900)
    assert len(reprieve(range(1_000), ground, lambda number: 0)) == 100
    assert ground.questions <= 100 + ceil(log2(1_000)) + 1


@pytest.mark.parametrize(
    ("level", "first"),
    [(lambda number: 0, [1_000, 500, 750, 625]), (lambda number: -(number // 300), [1_000, 600, 900, 750])],
    ids=["one level", "four levels"],
)
def test_first_split_is_between_priority_levels(level: Callable[[int], int], first: list[int]) -> None:
    asked: list[int] = []

    class Asked(Room):
        def fits_with(self, units: Sequence[int]) -> bool:
            asked.append(len(units))
            return super().fits_with(units)

    reprieve(range(1_000), Asked([1] * 1_000, 610), level)
    assert asked[:4] == first


def test_no_candidates_need_no_fit_check() -> None:
    ground = Room([], 0)
    assert reprieve(range(0), ground, lambda number: 0) == []
    assert ground.questions == 0
