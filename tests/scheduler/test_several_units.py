"""Several units of all kinds on one cluster that changes: each is decided as by an engine that remembers nothing.

One unit's decision must leave nothing behind that another one's is made from.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from changing_cluster import ZONE, ChangingCluster, obj
from test_followed_cluster import told
from test_queueing_hints import GROUP, HARD_DEFAULT

from haru.engine import Decision, Options, SchedulerCache, Snapshot, decide
from haru.engine.equivalence import NoCache
from haru.engine.framework import DEFAULT_PROFILE, PreemptionOptions
from nights import tonight

Obj = dict[str, Any]
Unit = tuple[list[Obj], Obj | None]
_STEPS = 25
_ONE_DEVICE = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
_CLAIM = {"devices": {"requests": [{"name": "r", "exactly": _ONE_DEVICE}]}}
_OWNED = {"owned": True}


def claim(world: ChangingCluster, name: str) -> list[Obj]:
    """A claim, and the entry of a pod that names it."""
    world.take("ResourceClaim", None, obj("ResourceClaim", name, "resource.k8s.io/v1", metadata=_OWNED, spec=_CLAIM))
    return [{"name": "gpu", "resourceClaimName": name}]


def unit(world: ChangingCluster, number: int) -> Unit:
    """A pod or a gang, of which perhaps not everybody is needed."""
    size, alike = world.random.choice((1, 1, 2, 3)), world.chance(2)
    pods: list[Obj] = []
    for member in range(size):
        spec = world.plain_spec() if size == 1 and world.chance(2) else world.spec(gang=size > 1)
        if alike and pods:
            spec = dict(pods[0]["spec"])
        if world.chance(3):
            spec["priority"] = world.random.choice((0, 5, 10))
        if world.chance(4):
            spec["hostname"] = "h"
        if size > 1:
            spec["schedulingGroup"] = {"podGroupName": f"g{number}"}
            if world.chance(2):
                spec["resourceClaims"] = claim(world, f"gpu-{number}-{member}")
        metadata = {"labels": {"app": world.app()}, **_OWNED}
        pods.append(obj("Pod", f"w{number}-{member}", spec=spec, status={"phase": "Pending"}, metadata=metadata))
    group = None
    if size > 1:
        policy: Obj = {"schedulingPolicy": {"gang": {"minCount": world.random.choice((size, size - 1))}}}
        if world.chance(3):
            policy["schedulingConstraints"] = {"topology": [{"key": ZONE}]}
        group = obj("PodGroup", f"g{number}", GROUP, spec=policy, metadata=_OWNED)
    for made in (*pods, *([group] if group is not None else [])):
        world.take(made["kind"], None, made)
    return pods, group


def decided(snapshot: Snapshot, one: Unit, seed: int) -> Decision:
    numbers = itertools.count()
    preemption = PreemptionOptions(preempt_for_pods=seed % 2 == 1, preempt_for_groups=seed % 2 == 1)
    profile = HARD_DEFAULT if seed % 4 == 3 else DEFAULT_PROFILE
    options = Options(profile=profile, preemption=preemption, new_share_id=lambda: f"share-{next(numbers)}")
    return decide(snapshot, one[0], group=one[1], options=options)


def follow(seed: int) -> None:
    world = ChangingCluster(Random(seed))
    claim(world, "gpu")
    units = [unit(world, number) for number in range(world.random.randrange(2, 5))]
    for step in range(_STEPS):
        world.change()
        followed = world.cluster.snapshot()
        without = SchedulerCache(NoCache())
        for made in world.objects.values():
            without.apply(made)
        world.random.shuffle(units)
        for one in units:
            found, expected = decided(followed, one, seed), decided(without.snapshot(), one, seed)
            assert told(found) == told(expected), f"seed {seed}, step {step}, {one[0][0]['metadata']['name']}"


@pytest.mark.parametrize("seed", range(5))
def test_decisions_in_turn_equal_those_of_an_engine_without_a_cache(seed: int) -> None:
    follow(seed)


@pytest.mark.nightly
def test_decisions_in_turn_equal_those_of_an_engine_without_a_cache_in_many_histories() -> None:
    for seed in tonight(range(5, 3000)):
        follow(seed)
