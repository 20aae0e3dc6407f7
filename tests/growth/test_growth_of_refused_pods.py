"""What it takes to refuse a pod that fits nowhere hardly depends on how many nodes are full."""

from __future__ import annotations

import pytest
from benchmarks.decision_objects import Obj, cluster_of, fill, gang, member
from counted_calls import SIZES, Steps, assert_flat, steps

from haru.engine import Options, SchedulerCache, decide
from haru.engine.backfill import BackfillReservation
from haru.engine.framework import PreemptionOptions
from haru.engine.state import Nomination, PodKey

MOST = {100: 1.4, 1000: 2.5}
"""How much more it may take on so many nodes than on ten: their names and refusals are passed over."""
A_MEMBER = 750
"""Steps for one member more of a gang that fits nowhere: what refuses the first is told of all."""
OPTIONS = Options(preemption=PreemptionOptions(preempt_for_pods=True))


def full_cluster(nodes: int) -> SchedulerCache:
    cluster = cluster_of(nodes, max(1, nodes // 10), cards=2)
    fill(cluster, 1.0, cards=2)
    return cluster


def waiting(cluster: SchedulerCache, name: str) -> Obj:
    made = member(name, "", 1)
    for obj in made:
        cluster.apply(obj)
    return made[0]


def refuse(cluster: SchedulerCache, pod: Obj) -> None:
    decision = decide(cluster.snapshot(), [pod], group=None, options=OPTIONS)
    assert decision.status == "unschedulable" and "No preemption victims" in decision.message


def refused_after_others(cluster: SchedulerCache) -> Steps:
    for number in range(2):
        refuse(cluster, waiting(cluster, f"before-{number}"))
    pod = waiting(cluster, "new")
    cluster.snapshot()
    return steps(lambda: refuse(cluster, pod))


def keep_a_place(cluster: SchedulerCache) -> None:
    """A running pod has to end before the head of the queue takes its place."""
    head, node = waiting(cluster, "head"), cluster.snapshot().node_names[0]
    running = next(iter(cluster.snapshot().nodes[node].pods.values())).key
    place = Nomination(PodKey("default", "head", head["metadata"]["uid"]), node, 0)
    cluster.reserve(BackfillReservation(None, 0, (place,), frozenset({running})))


@pytest.mark.parametrize("sizes", SIZES)
def test_refusing_a_pod_takes_about_as_much_on_many_full_nodes_as_on_few(sizes: tuple[int, ...]) -> None:
    costs = {size: refused_after_others(full_cluster(size)) for size in sizes}
    assert_flat(costs, "refusing a pod", MOST[max(sizes)])


@pytest.mark.parametrize("sizes", SIZES)
def test_refusing_a_pod_beside_kept_places_takes_about_as_much_on_many_full_nodes(sizes: tuple[int, ...]) -> None:
    costs = {}
    for size in sizes:
        cluster = full_cluster(size)
        keep_a_place(cluster)
        costs[size] = refused_after_others(cluster)
    assert_flat(costs, "refusing a pod beside kept places", MOST[max(sizes)])


def test_a_member_more_of_a_refused_gang_takes_next_to_nothing() -> None:
    cluster, costs = full_cluster(10), {}
    for size in (4, 4, 104):
        made = gang(f"of-{len(costs)}-{size}", size, 1)
        for obj in made:
            cluster.apply(obj)
        pods, snapshot = [obj for obj in made if obj["kind"] == "Pod"], cluster.snapshot()
        with Steps() as counted:
            decision = decide(snapshot, pods, group=made[0], options=Options())
        assert {one.message.rpartition(". ")[2] for one in decision.members} == {"still not schedulable"}
        costs[size] = counted.count
    assert (costs[104] - costs[4]) / 100 < A_MEMBER
