"""What explanations keep for later ones leaves past states of the cluster to be freed."""

from __future__ import annotations

import gc

import pytest
from benchmarks.decision_objects import cluster_of, member, take

from haru.engine import Options, SchedulerCache, Snapshot, decide
from haru.engine.state import PodInfo, overlay
from haru.explain import explain
from haru.kube.meta import Obj

SORTS, ON_NODES = 6, 4


def test_explanations_keep_no_pods_that_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sort of claims is explained once, then other pods run on all nodes."""
    monkeypatch.setattr(overlay, "_MOST_STATES", 1)
    others = _alive()
    cluster, before = cluster_of(2, 2), list[Obj]()
    for sort in range(SORTS):
        before = _replaced(cluster, before, sort)
        waiting = member(f"waiting-{sort}", "", 3 + sort, cpu="1")
        for obj in waiting:
            cluster.apply(obj)
        explain(cluster.snapshot(), "pod", waiting[0])
        for obj in waiting:
            cluster.remove(obj)
    _replaced(cluster, before, SORTS)
    cluster.snapshot()
    now = {id(pod) for pod in cluster.snapshot().pods.values()}
    kept = [obj for obj in _alive() if not any(obj is other for other in others) and id(obj) not in now]
    assert sum(type(obj) is Snapshot for obj in kept) <= 1
    # Those of one state at most, besides one for the results of all such pods.
    assert sum(type(obj) is PodInfo and obj.key.name.startswith("running") for obj in kept) <= ON_NODES + 2


def _replaced(cluster: SchedulerCache, before: list[Obj], number: int) -> list[Obj]:
    for obj in before:
        cluster.remove(obj)
    found: list[Obj] = []
    for place in range(ON_NODES):
        made = member(f"running-{number}-{place}", "", 1, cpu="1")
        for obj in made:
            cluster.apply(obj)
        decision = decide(cluster.snapshot(), made[:1], group=None, options=Options())
        assert decision.status == "scheduled", decision.message
        take(cluster, decision)
        found += made
    return found


def _alive() -> list[object]:
    gc.collect()
    return [obj for obj in gc.get_objects() if type(obj) in (Snapshot, PodInfo)]
