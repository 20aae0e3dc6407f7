"""A decision about a pod that names its node, as a DaemonSet's pods do, hardly depends on how many others there are."""

from __future__ import annotations

import pytest
from counted_calls import SIZES, Steps, assert_flat, steps
from engine_objects import node, options, pod

from haru.engine import SchedulerCache, decide
from haru.kube.meta import Obj

MOST = {100: 1.1, 1000: 1.3}
"""How much more it may take on so many nodes than on ten: their names are copied, as a whole."""


def of_node(number: int, cpu: str) -> Obj:
    name = {"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}
    required = {"nodeSelectorTerms": [{"matchFields": [name]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return pod(f"p{number}", cpu=cpu, affinity=affinity)


def decided_after_others(nodes: int, cpu: str, status: str) -> Steps:
    cache = SchedulerCache()
    for number in range(nodes):
        cache.apply(node(f"n{number}"))

    def decided(waiting: Obj) -> None:
        assert decide(cache.snapshot(), [waiting], group=None, options=options()).status == status

    for number in range(3):
        decided(of_node(number, cpu))
        bound = of_node(number, "1m")
        cache.apply({**bound, "spec": {**bound["spec"], "nodeName": f"n{number}"}})
    cache.snapshot()
    return steps(lambda: decided(of_node(5, cpu)))


@pytest.mark.parametrize("sizes", SIZES)
def test_pod_that_names_its_node_takes_as_much_among_many_nodes_as_among_few(sizes: tuple[int, ...]) -> None:
    costs = {size: decided_after_others(size, "1m", "scheduled") for size in sizes}
    assert_flat(costs, "a pod that names its node", MOST[max(sizes)])
