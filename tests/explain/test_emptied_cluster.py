"""The cluster in which nothing runs but some pods: the same as by removing one after the other, at a bounded cost."""

from __future__ import annotations

import random

import pytest
from benchmarks.decision_objects import cluster_of, gang, member, taken_member

from haru.engine import SchedulerCache, Snapshot
from haru.engine.state import NodeInfo
from haru.explain import explain, hypothesis

CARDS, NODES = 4, 5


def _cluster(rng: random.Random) -> tuple[SchedulerCache, list[str]]:
    """Running pods with and without cards, of gangs and alone, being deleted or averse to others; pending ones."""
    cluster, names = cluster_of(NODES, 1, CARDS), list[str]()
    for number in range(rng.randrange(1, NODES * CARDS)):
        name, node, card = f"p-{number}", f"node-{number // CARDS:05}", number % CARDS
        made = member(name, rng.choice(("", "a", "b")), rng.randrange(2), node=node, card=f"gpu-{card}")
        if rng.random() < 0.2:
            made[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if rng.random() < 0.2:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"of": "none"}}}
            apart = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            made[0]["spec"]["affinity"] = {"podAntiAffinity": apart}
        if rng.random() < 0.1 and len(made) > 1:
            made = made[1:]  # A claim whose pod has gone.
        for obj in made:
            cluster.apply(obj)
        names.append(f"default/{name}")
    for obj in gang("waiting", 2, 1):
        cluster.apply(obj)
    return cluster, names


def _state(snapshot: Snapshot) -> object:
    nodes = {
        name: (set(node.pods), dict(node.requested), node.scoring_requested) for name, node in snapshot.nodes.items()
    }
    for _, requested, _ in nodes.values():
        assert all(value >= 0 for value in requested.values())
    devices = {name: snapshot.allocated.use(pool) for pool in snapshot.devices.pools for name in pool}
    taken = {name: (set(use.devices), set(use.shares)) for name, use in devices.items()}
    groups = {path: (state.count, state.scheduled) for path, state in snapshot.podgroup_index.states.items()}
    index = snapshot.pod_index
    return nodes, set(snapshot.pods), dict(snapshot.claims), taken, groups, set(index.anti_affinity)


@pytest.mark.parametrize("seed", range(20))
def test_emptied_at_once_is_emptied_pod_by_pod(seed: int) -> None:
    rng = random.Random(seed)
    cluster, names = _cluster(rng)
    snapshot = cluster.snapshot()
    kept = rng.sample(names, rng.randrange(min(3, len(names)) + 1))
    rest = [path for path in snapshot.pods if path not in kept]
    one_by_one = snapshot
    for path in rest:
        one_by_one = hypothesis.without_pods(one_by_one, [path])
    assert _state(hypothesis.without_pods(snapshot, rest)) == _state(one_by_one)
    # Claims of pods that have gone are free, too.
    assert _state(hypothesis.emptied(snapshot, kept)) == _state(hypothesis.emptied(one_by_one, kept))


def test_work_that_never_fits_makes_each_node_anew_only_for_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(NODES, 1, CARDS)
    for node in range(NODES):
        for card in range(CARDS):
            for obj in taken_member(f"p-{node}-{card}", f"node-{node:05}", [card]):
                cluster.apply(obj)
    made = gang("large", 2, CARDS + 1)
    for obj in made:
        cluster.apply(obj)
    snapshot, without, removed = cluster.snapshot(), NodeInfo.without_pods, list[int]()

    def counted(node: NodeInfo, paths: set[str]) -> NodeInfo:
        removed.append(len(paths))
        return without(node, paths)

    monkeypatch.setattr(NodeInfo, "without_pods", counted)
    empty = hypothesis.emptied(snapshot, ())
    assert removed == [CARDS] * NODES
    # What every decision reads as a whole tells of no pods that were not in it.
    assert empty.pod_index.anti_affinity == {}
    assert explain(snapshot, "podgroup", made[0]).verdict == "NeverFits"
