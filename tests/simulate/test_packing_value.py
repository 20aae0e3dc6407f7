"""The value of free devices and nodes, compared with hand counts and brute force."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.engine.packing_value import CARD, ExpectedRequest, PackingValue, room_prices


@pytest.mark.parametrize(
    ("sizes", "worth"),
    [
        ({}, {5: 0.0, 9: 0.0}),
        ({5: 10}, {4: 0.0, 5: 0.5, 9: 0.5}),
        ({8: 10}, {2: 0.0, 8: 1.0, 9: 1.0}),  # nothing goes beside it: it costs the whole card
        ({8: 10, 2: 30}, {2: 0.2, 8: 0.8, 4: 0.4}),  # small pieces in plenty: each hole is filled
        ({8: 30, 2: 10}, {2: 0.0, 8: 1.0, 4: 0.0}),  # too few small pieces: their holes are free
    ],
)
def test_prices_equal_values_computed_by_hand(sizes: dict[int, int], worth: dict[int, float]) -> None:
    prices = room_prices(sizes, 10)
    assert prices[0] == 0.0 and prices[10] == 1.0
    assert {room: round(prices[room], 6) for room in worth} == worth


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.integers(1, 10), st.integers(0, 40), max_size=5))
def test_no_filling_of_a_card_is_worth_more_than_the_card(sizes: dict[int, int]) -> None:
    prices = room_prices(sizes, 10)
    assert all(low <= high + 1e-9 for low, high in pairwise(prices))
    asked = [size for size, count in sizes.items() if count]
    for counts in product(range(11), repeat=min(len(asked), 3)):
        used = sum(size * count for size, count in zip(asked, counts, strict=False))
        if used <= 10:
            assert sum(prices[size] * count for size, count in zip(asked, counts, strict=False)) <= 1 + 1e-6


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.integers(1, 6), st.integers(1, 6), min_size=1, max_size=3))
def test_price_of_demand_is_between_lower_and_upper_bound(sizes: dict[int, int]) -> None:
    """Weak duality: the prices bound the cards from below; first fit bounds them from above."""
    prices = room_prices(sizes, 6)
    cost = sum(prices[size] * count for size, count in sizes.items())
    bins: list[int] = []
    for size in sorted(sizes, reverse=True):
        for _ in range(sizes[size]):
            index = next((index for index, used in enumerate(bins) if used + size <= 6), None)
            if index is None:
                bins.append(size)
            else:
                bins[index] += size
    total = sum(size * count for size, count in sizes.items())
    assert total / 6 - 1e-6 <= cost <= len(bins) + 1e-6


def test_size_above_card_is_refused() -> None:
    with pytest.raises(ValueError, match="size 11"):
        room_prices({11: 1}, 10)


MIX = {ExpectedRequest(4000, 1, CARD): 50, ExpectedRequest(16_000, 1, CARD): 50}


def test_free_cpu_limits_packing_value() -> None:
    potential = PackingValue(MIX)
    assert potential.worth(2.0, 1_000_000) == pytest.approx(2.0)
    assert potential.worth(2.0, 0) == 0.0
    # 8 cores a card: all of what needs 4, half of what needs 16.
    assert potential.worth(1.0, 8000) == pytest.approx(0.75)


def test_pod_is_placed_where_it_loses_least_packing_value() -> None:
    potential = PackingValue(MIX)

    def loss(cpu_left: int, asked: int) -> float:
        return potential.worth(2.0, cpu_left) - potential.worth(1.0, cpu_left - asked)

    poor, rich = 8000, 64_000
    assert loss(poor, 4000) < loss(rich, 4000)
    assert loss(rich, 16_000) < loss(17_000, 16_000)


def test_whole_cards_on_one_node_have_higher_value() -> None:
    potential = PackingValue({ExpectedRequest(1000, 2, CARD): 10, ExpectedRequest(1000, 1, CARD): 10})
    assert potential.cards((CARD, CARD)) > 2 * potential.cards((CARD,))


def test_requested_card_model_has_higher_value() -> None:
    potential = PackingValue(
        {ExpectedRequest(1000, 1, CARD, frozenset({"A"})): 10, ExpectedRequest(1000, 1, CARD): 10}, {"A": 10, "B": 10}
    )
    assert potential.scarcity("A") > potential.scarcity("B") == 0.0


def test_share_is_taken_from_the_card_with_lowest_loss() -> None:
    potential = PackingValue({ExpectedRequest(1000, 1, 500): 10, ExpectedRequest(1000, 1, CARD): 10})
    assert potential.taken((CARD, 500, 700), 500) == 1
    assert potential.taken((CARD, 400), 500) == 0
    assert potential.taken((400,), 500) is None
