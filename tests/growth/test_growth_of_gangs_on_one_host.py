"""A gang that has to be on one host takes about as much on many equal hosts as on few, placed or refused."""

from __future__ import annotations

import pytest
from benchmarks.decision_objects import HOSTNAME, cluster_of, gang, take
from counted_calls import SIZES, Steps, assert_flat, steps

from haru.engine import Decision, Options, SchedulerCache, decide

MOST = {100: 1.3, 1000: 1.3}
"""How much more it may take on so many nodes than on ten."""


def decided(cluster: SchedulerCache, name: str, cards: int) -> tuple[Decision, Steps]:
    made = gang(name, 3, cards, HOSTNAME)
    for obj in made:
        cluster.apply(obj)
    found = list[Decision]()
    snapshot = cluster.snapshot()
    counted = steps(lambda: found.append(decide(snapshot, made[1::2], group=made[0], options=Options())))
    take(cluster, found[0])
    return found[0], counted


def decided_after_others(nodes: int, cards: int, status: str) -> Steps:
    cluster = cluster_of(nodes, 1, cards=4)
    for number in range(4):
        decision, counted = decided(cluster, f"g{number}", cards)
        assert decision.status == status
    return counted


@pytest.mark.parametrize("sizes", SIZES)
def test_gang_is_placed_on_one_of_many_equal_hosts_at_the_same_cost(sizes: tuple[int, ...]) -> None:
    costs = {size: decided_after_others(size, 1, "scheduled") for size in sizes}
    assert_flat(costs, "a gang that fits on one host", MOST[max(sizes)])


@pytest.mark.parametrize("sizes", SIZES)
def test_gang_that_fits_on_no_single_host_is_refused_at_the_same_cost(sizes: tuple[int, ...]) -> None:
    costs = {size: decided_after_others(size, 2, "unschedulable") for size in sizes}
    assert_flat(costs, "a gang that fits on no host", MOST[max(sizes)])
