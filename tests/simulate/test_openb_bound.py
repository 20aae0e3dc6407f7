"""The bound of the openb trace: no placement that refuses nothing is above it, whatever the prices."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from benchmarks.openb_bound import (
    MOMENTS,
    Counts,
    Prices,
    bound,
    bounds,
    expected_counts,
    gauge_of,
    good_prices,
    is_heavy,
    priced,
    size_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_openb import workload

from haru.simulate.openb import Workload
from haru.simulate.packing import CARD, Machine, Node, Shape, after, candidates

SHAPES = st.builds(
    lambda cpu, memory, cards, part: Shape(cpu, memory, cards, part if cards == 1 else CARD * bool(cards)),
    st.sampled_from([1000, 3000, 4000]),
    st.sampled_from([1, 4]),
    st.sampled_from([0, 1, 1, 1, 1, 2]),
    st.sampled_from([100, 300, 450, 500, 700, 810, CARD]),
)
GAUGE = Shape(3000, 4, 1, 810)
MODEL = st.just("M")
MACHINES = st.lists(
    st.builds(
        Machine, st.sampled_from([4000, 9000, 30_000]), st.sampled_from([6, 60]), st.integers(1, 2), st.just("M")
    ),
    min_size=1,
    max_size=3,
)


def allocated(machines: list[Machine], pods: list[Shape], choices: random.Random) -> float:
    """The percentage of cards that a random placement allocates which refuses no pod that fits."""
    nodes = [Node(machine) for machine in machines]
    got = 0
    for pod in pods:
        fitting = [node for node in nodes if node.fits(pod)]
        if not fitting:
            continue
        node = choices.choice(fitting)
        rooms = node.rooms
        if pod.cards:
            index = choices.choice(list(candidates(rooms, pod.part))) if pod.part < CARD else 0
            rooms = after(rooms, pod, index)
        node.take(pod, rooms)
        got += pod.amount
    return 100 * got / (sum(machine.cards for machine in machines) * CARD)


def any_prices(pods: list[Shape], gauge: Shape, choices: random.Random) -> Prices:
    """Prices that nobody computed."""
    sizes = {True: set(), False: set()}  # type: dict[bool, set[int]]
    for pod in pods:
        if pod.cards and pod != gauge:
            sizes[is_heavy(pod, gauge)].add(size_of(pod))
    early, heavy = ({size: choices.randrange(0, 700_000) for size in sizes[True]} for _ in range(2))
    light = {size: choices.randrange(0, 700_000) for size in sizes[False]}
    return priced(early, heavy, light, choices.randrange(-90_000_000, 90_000_000), size_of(gauge))


@given(MACHINES, st.lists(SHAPES, max_size=12), st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_no_placement_that_refuses_nothing_exceeds_the_bound(
    machines: list[Machine], others: list[Shape], gauges: int, choices: random.Random
) -> None:
    pods = [*others, *[GAUGE] * gauges]
    choices.shuffle(pods)
    cluster = Workload("random", tuple(machines), tuple(pods))
    prices = [good_prices(expected_counts(cluster, GAUGE, moment), size_of(GAUGE)) for moment in MOMENTS[::4]]
    prices += [any_prices(pods, GAUGE, choices) for _ in range(2)]
    best = max(allocated(machines, pods, choices) for _ in range(10))
    for some in ([prices[0]], [prices[-1]], prices):
        assert best <= bound(pods, cluster.cards, GAUGE, some) + 1e-6


def test_bound_of_gauges_that_leave_holes_is_what_gauges_fill() -> None:
    small = Shape(3000, 4, 1, 450)
    size, two, none = size_of(GAUGE), Counter({45: 2}), Counter[int]()
    prices = [good_prices(Counts(2, none, two, none, gauges), size) for gauges in range(3)]
    assert bound([GAUGE, GAUGE, small, small], 2, GAUGE, prices) == pytest.approx(81.0)


def test_pod_that_needs_less_than_the_gauge_may_take_any_room() -> None:
    light = Shape(1000, 4, 1, CARD)
    whole, none = Counter({100: 3}), Counter[int]()
    prices = [good_prices(Counts(2, none, none, whole, gauges), size_of(GAUGE)) for gauges in (0, 1)]
    assert bound([GAUGE, light, light, light], 2, GAUGE, prices) == pytest.approx(100.0)


def test_workload_without_parts_of_cards_has_no_gauge() -> None:
    with pytest.raises(ValueError, match="no pod takes a part"):
        gauge_of([Shape(1, 1, 1, CARD), Shape(1, 1)])


def test_no_policy_reaches_97_percent_on_default() -> None:
    default = workload("default")
    assert gauge_of(default.pods) == Shape(3152, 5600, 1, 810)
    assert all(96.25 < found < 97.0 for found in bounds(default, [42]))


@pytest.mark.parametrize(("beside", "worth"), [(20, 80), (19, 0)])
def test_late_piece_needs_a_card_with_less_room_than_the_gauge(beside: int, worth: int) -> None:
    dear = 1_000_000
    prices = priced({80: 80 * dear}, {80: 0}, {beside: beside * dear}, 81 * dear, 81)
    assert prices.card == worth * dear
