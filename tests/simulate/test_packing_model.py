"""The packing model: what a node has is never exceeded, what fits is never refused, the least loss is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.simulate.packing import CARD, Machine, Node, Packer, Shape, after, candidates
from haru.simulate.policies import POLICIES, make_policy

MODELS = ("A", "B")
machines = st.lists(
    st.builds(
        Machine,
        st.integers(1, 20).map(lambda cores: cores * 1000),
        st.integers(1, 20).map(lambda amount: amount * 1024),
        st.integers(0, 4),
        st.sampled_from(MODELS),
    ),
    min_size=1,
    max_size=5,
)
cpu, memory = st.integers(0, 8000), st.integers(0, 8192)
models = st.sampled_from((frozenset[str](), frozenset({"A"}), frozenset(MODELS), frozenset({"gone"})))
shapes = st.one_of(
    st.builds(Shape, cpu, memory, st.just(0), st.just(0), st.just(frozenset[str]())),
    st.builds(Shape, cpu, memory, st.just(1), st.sampled_from((1, 190, 250, 470, 500, 810, 999)), models),
    st.builds(Shape, cpu, memory, st.integers(1, 4), st.just(CARD), models),
)
work = st.lists(shapes, max_size=20)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40, deadline=None)
@given(machines=machines, work=work)
def test_packing_never_exceeds_capacity_and_refuses_only_without_fit(
    name: str, machines: Sequence[Machine], work: Sequence[Shape]
) -> None:
    packer = Packer(machines, make_policy(name, Counter(work), machines))
    placed: dict[int, list[Shape]] = {}
    for shape in work:
        fitting = [index for index, node in enumerate(packer.nodes) if node.fits(shape)]
        chosen = packer.place(shape)
        assert (chosen is None) == (not fitting)
        if chosen is not None:
            assert chosen in fitting
            placed.setdefault(chosen, []).append(shape)
    for index, node in enumerate(packer.nodes):
        mine = placed.get(index, [])
        assert node.cpu == node.machine.cpu - sum(shape.cpu for shape in mine) >= 0
        assert node.memory == node.machine.memory - sum(shape.memory for shape in mine) >= 0
        assert sum(node.rooms) == node.machine.cards * CARD - sum(shape.amount for shape in mine)
        assert len(node.rooms) <= node.machine.cards and all(0 < room <= CARD for room in node.rooms)
        assert all(not shape.models or node.machine.model in shape.models for shape in mine)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None)
@given(machines=machines, work=work)
def test_first_node_with_lowest_loss_is_chosen(name: str, machines: Sequence[Machine], work: Sequence[Shape]) -> None:
    policy = make_policy(name, Counter(work), machines)
    packer = Packer(machines, policy)
    for shape in work:
        losses = [(policy.rate(node, shape)[0], index) for index, node in enumerate(packer.nodes) if node.fits(shape)]
        expected = min(losses)[1] if losses else None
        assert packer.place(shape) == expected


@settings(max_examples=15, deadline=None)
@given(machines=machines, work=work)
def test_packing_is_deterministic(machines: Sequence[Machine], work: Sequence[Shape]) -> None:
    for name in POLICIES:
        both = [Packer(machines, make_policy(name, Counter(work), machines)) for _ in range(2)]
        assert [both[0].place(shape) for shape in work] == [both[1].place(shape) for shape in work]


@pytest.mark.parametrize(
    ("rooms", "shape", "index", "expected"),
    [
        ((1000, 500), Shape(0, 0, 1, 500), 1, (1000,)),
        ((1000, 500), Shape(0, 0, 1, 300), 0, (700, 500)),
        ((500, 1000, 1000), Shape(0, 0, 1, 1000), 0, (500, 1000)),
        ((1000, 300, 1000), Shape(0, 0, 2, 1000), 0, (300,)),
    ],
)
def test_free_card_capacities_after_placement(
    rooms: tuple[int, ...], shape: Shape, index: int, expected: tuple[int, ...]
) -> None:
    assert after(rooms, shape, index) == expected


def test_equal_free_capacities_are_tried_once() -> None:
    assert list(candidates((500, 1000, 500, 200), 300)) == [0, 1]


def test_whole_cards_must_be_on_one_node() -> None:
    node = Node(Machine(1000, 1000, 2, "A"))
    assert node.fits(Shape(1000, 1000, 2, CARD))
    assert not node.fits(Shape(1000, 1000, 3, CARD))
    node.take(Shape(0, 0, 1, 100), (900, 1000))
    assert not node.fits(Shape(1000, 1000, 2, CARD)) and node.fits(Shape(0, 0, 2, 900)) is True


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match='no policy "worst-fit": there are first-fit, best-fit'):
        make_policy("worst-fit", {}, [])
