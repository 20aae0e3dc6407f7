"""The pods that wait are those that a look at all pods finds, whichever snapshots were asked before."""

from __future__ import annotations

from random import Random

import pytest
from engine_objects import pod

from haru.engine import SchedulerCache, Snapshot
from haru.engine.state import PodInfo
from haru.explain.pending_pods import pending_pods


def by_all(snapshot: Snapshot) -> dict[str, PodInfo]:
    return {path: each for path, each in snapshot.pods.items() if not (each.node or each.terminal)}


@pytest.mark.parametrize("seed", range(5))
def test_pending_pods_are_those_of_the_snapshot_that_is_asked(seed: int) -> None:
    rng, cache, snapshots = Random(seed), SchedulerCache(), list[Snapshot]()
    for _ in range(60):
        made = pod(f"p{rng.randrange(12)}", node=rng.choice(("", "", "n1")))
        made["status"]["phase"] = rng.choice(("Pending", "Pending", "Succeeded"))
        if rng.random() < 0.2:
            made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        (cache.remove if rng.random() < 0.3 else cache.apply)(made)
        snapshots.append(cache.snapshot())
        asked = snapshots[-1] if rng.random() < 0.6 else rng.choice(snapshots)
        assert dict(pending_pods(asked)) == by_all(asked)
    assert {len(by_all(snapshot)) for snapshot in snapshots} > {1, 2, 3}


def test_pods_that_were_told_stay_as_they_were() -> None:
    cache = SchedulerCache.of([pod("a")])
    before = pending_pods(cache.snapshot())
    cache.apply(pod("b"))
    assert set(pending_pods(cache.snapshot())) == {"default/a", "default/b"}
    assert set(before) == {"default/a"}
