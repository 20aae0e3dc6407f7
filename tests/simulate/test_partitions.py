"""Partitions of a trace's cluster: who owns a node, where pods go, and what is lost by it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_simulate_command import answer, data, refusal  # noqa: F401

from haru.simulate.draws import Draws
from haru.simulate.openb import Workload
from haru.simulate.packing import CARD, Machine, Shape
from haru.simulate.partitions import ROUTES, PartitionedPacker, Partitioning, split
from haru.simulate.policies import make_policy
from haru.simulate.replay import play, play_partitioned

machines = st.lists(
    st.builds(Machine, st.sampled_from([8_000, 64_000]), st.just(65_536), st.integers(0, 4), st.sampled_from("AB")),
    min_size=1,
    max_size=12,
)
MODELS = (frozenset[str](), frozenset("A"), frozenset("B"), frozenset("AB"))
shapes = st.lists(
    st.one_of(
        st.integers(0, 9_000).map(lambda cpu: Shape(cpu, 1_024)),
        st.sampled_from([250, 500, CARD]).map(lambda part: Shape(1_000, 64, 1, part)),
        st.tuples(st.integers(1, 4), st.sampled_from(MODELS)).map(lambda of: Shape(500, 64, of[0], CARD, of[1])),
    ),
    min_size=1,
    max_size=40,
)


def first_fit(_: object) -> object:
    return make_policy("first-fit", {}, ())


@given(machines, st.integers(1, 6))
def test_each_node_is_in_one_partition_and_models_are_dealt_evenly(cluster: list[Machine], count: int) -> None:
    parts = split(cluster, count)
    assert sum((Counter(part) for part in parts), Counter()) == Counter(cluster)
    for model in "AB":
        numbers = [sum(machine.model == model for machine in part) for part in parts]
        assert max(numbers) - min(numbers) <= 1


@given(machines, shapes, st.integers(1, 5), st.sampled_from(sorted(ROUTES)))
def test_partition_never_takes_more_than_its_nodes_have(
    cluster: list[Machine], pods: list[Shape], count: int, route: str
) -> None:
    parts = split(cluster, count)
    packer = PartitionedPacker(parts, first_fit, route, Draws(1))  # type: ignore[arg-type]
    taken: Counter[int] = Counter()
    for pod in pods:
        number = packer.place(pod)
        if number is not None:
            taken[number] += pod.amount
            assert not pod.models or any(machine.model in pod.models for machine in parts[number])
    for number, amount in taken.items():
        assert amount <= sum(machine.cards for machine in parts[number]) * CARD


@given(machines, shapes, st.integers(2, 4))
def test_route_any_drops_a_pod_only_if_no_partition_takes_it(
    cluster: list[Machine], pods: list[Shape], count: int
) -> None:
    parts = split(cluster, count)
    packer = PartitionedPacker(parts, first_fit, "any", Draws(1))  # type: ignore[arg-type]
    for pod in pods:
        before = [[(node.cpu, node.memory, node.rooms) for node in part.packer.nodes] for part in packer._parts]
        fits = any(node.fits(pod) for part in packer._parts for node in part.packer.nodes)
        assert (packer.place(pod) is not None) == fits
        if not fits:
            after = [[(node.cpu, node.memory, node.rooms) for node in part.packer.nodes] for part in packer._parts]
            assert after == before


@pytest.mark.parametrize("route", sorted(ROUTES))
@pytest.mark.parametrize("name", ["first-fit", "haru"])
def test_one_partition_is_the_whole_cluster(name: str, route: str) -> None:
    cluster = (Machine(16_000, 65_536, 2, "A"),) * 5 + (Machine(32_000, 65_536, 4, "B"),) * 3
    pods = tuple(Shape(1_000 + 500 * (n % 4), 1_024, 1, (250, 500, CARD)[n % 3]) for n in range(20))
    workload = Workload("small", cluster, pods)

    def policy(of: object) -> object:
        return make_policy(name, workload.demand, cluster)

    parted = play_partitioned(workload, policy, Partitioning(1, route), 42)  # type: ignore[arg-type]
    assert parted == play(workload, make_policy(name, workload.demand, cluster), 42)


def test_unknown_route_is_refused() -> None:
    with pytest.raises(ValueError, match='no route "nearest": there are random, least-requested, any'):
        PartitionedPacker([], first_fit, "nearest", Draws(1))  # type: ignore[arg-type]


def test_command_compares_numbers_of_partitions(data: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    flags = ("openb", "--data", data, "--policy", "haru", "--partitions", "1,2", "--seeds", "1-2")
    head, *rows = answer(capsys, *flags).splitlines()
    assert head.split()[:4] == ["WORKLOAD", "POLICY", "PARTITIONS", "SEEDS"]
    assert [row.split()[:4] for row in rows] == [["default", "haru", "1", "2"], ["default", "haru", "2", "2"]]
    told = json.loads(answer(capsys, *flags, "--route", "any", "-o", "json"))["rows"]
    assert [(row["partitions"], row["route"], row["seed"]) for row in told] == [
        (1, "any", 1), (1, "any", 2), (2, "any", 1), (2, "any", 2),
    ]  # fmt: skip


def test_bad_partitions_are_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    trace = ("openb", "--data", data)
    assert "--partitions: 0: write a whole number from 1 on" in refusal(capsys, *trace, "--partitions", "0")
    assert "--route: near: there are random" in refusal(capsys, *trace, "--partitions", "2", "--route", "near")
    assert "give --partitions, too" in refusal(capsys, *trace, "--route", "any")
