"""Decisions on a cluster that was followed change by change equal those on the same cluster read anew."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from changing_cluster import ChangingCluster
from test_queueing_hints import waiting

from haru.engine import Decision, Options, SchedulerCache, decide
from haru.engine.state import namespaced_name
from nights import tonight

_STEPS = 25


def told(decision: Decision) -> tuple[Any, ...]:
    """All but the version of the snapshot."""
    return decision.status, decision.message, decision.members, decision.reasons, decision.evictions


def follow(seed: int) -> None:
    world = ChangingCluster(Random(seed))
    pods, group = waiting(world, 1 + seed % 3)
    options = Options(new_share_id=lambda: "share")
    for step in range(_STEPS):
        world.change()
        followed = world.cluster.snapshot()
        others = [*world.objects.values(), *pods, *([group] if group is not None else []), *followed.claims.values()]
        anew = {(obj["kind"], namespaced_name(obj)): obj for obj in others}
        expected = decide(SchedulerCache.of(list(anew.values())).snapshot(), pods, group=group, options=options)
        assert told(decide(followed, pods, group=group, options=options)) == told(expected), f"seed {seed}, step {step}"


@pytest.mark.parametrize("seed", range(6))
def test_followed_cluster_is_decided_as_one_read_anew(seed: int) -> None:
    follow(seed)


@pytest.mark.nightly
def test_followed_clusters_are_decided_as_ones_read_anew_in_many_histories() -> None:
    for seed in tonight(range(6, 1500)):
        follow(seed)
