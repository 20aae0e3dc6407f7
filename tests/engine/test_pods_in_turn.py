"""Single pods decided in turn on one snapshot: the same as one by one, each on the cluster that the last one left."""

from __future__ import annotations

import random
from typing import Any

import pytest
from benchmarks.decision_objects import cluster_of, fill, member, take

from haru.engine import Decision, Options, SchedulerCache, decide, decide_in_turn
from haru.engine.framework import MetricsRecorder
from haru.engine.state import MemberDecision, Nomination, PodKey

Obj = dict[str, Any]


def _cluster(pods: list[list[Obj]], nodes: int = 6) -> SchedulerCache:
    cluster = cluster_of(nodes, 2)
    fill(cluster, 0.6, seed=3)
    for objects in pods:
        for obj in objects:
            cluster.apply(obj)
    return cluster


def _places(decisions: list[Decision]) -> list[tuple[str, str | None, int]]:
    return [(one.pod.path, one.node, len(_devices(one))) for decision in decisions for one in decision.members]


def _devices(member: MemberDecision) -> list[tuple[str, str]]:
    results = [result for given in member.allocations for result in given.allocation["devices"]["results"]]
    return [(result["pool"], result["device"]) for result in results]


def _one_by_one(cluster: SchedulerCache, pods: list[list[Obj]], options: Options) -> list[Decision]:
    decisions = []
    for objects in pods:
        decision = decide(cluster.snapshot(), objects[:1], group=None, options=options)
        if decision.status != "scheduled":
            break
        take(cluster, decision)
        decisions.append(decision)
    return decisions


@pytest.mark.parametrize("seed", range(12))
def test_pods_in_turn_get_what_they_get_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    pods = [
        member(f"p{number}", "", rng.choice((0, 1, 1, 2)), cpu=rng.choice(("1", "1", "8")))
        for number in range(rng.randrange(2, 14))
    ]
    options = Options(seed=seed)
    cluster = _cluster(pods)
    together = decide_in_turn(cluster.snapshot(), [objects[0] for objects in pods], options=options)
    # Which of a node's equal devices it is may differ, but none is given out twice.
    assert _places(together) == _places(_one_by_one(_cluster(pods), pods, options))
    assert all(decision.group is None and decision.status == "scheduled" for decision in together)
    assert together
    for decision in together:
        take(cluster, decision)
    given = [device for decision in together for one in decision.members for device in _devices(one)]
    assert len(given) == len(set(given))
    assert all(len(cluster.allocated.holders(device)) == 1 for device in cluster.allocated.held_devices())


def test_list_ends_before_the_first_pod_without_a_place() -> None:
    pods = [member("a", "", 1), member("big", "", 1, cpu="1000"), member("b", "", 1)]
    decisions = decide_in_turn(_cluster(pods).snapshot(), [objects[0] for objects in pods], options=Options())
    assert [decision.members[0].pod.name for decision in decisions] == ["a"]


@pytest.mark.parametrize("last", ["1000", "1"])
def test_recorder_keeps_what_belongs_to_pods_that_are_decided(last: str) -> None:
    """The second pod shares the first one's claim, or has no place."""
    pods = [member("a", "", 1), member("b", "", 1, cpu=last), member("c", "", 1)]
    if last == "1":
        pods[1][0]["spec"]["resourceClaims"] = [{"name": "cards", "resourceClaimName": "a-cards"}]
        pods[0][0]["spec"]["resourceClaims"] = [{"name": "cards", "resourceClaimName": "a-cards"}]
    recorder = MetricsRecorder(lambda: 0.0, timed=True)
    options = Options(recorder=recorder)
    decisions = decide_in_turn(_cluster(pods).snapshot(), [objects[0] for objects in pods], options=options)
    alone = MetricsRecorder(lambda: 0.0, timed=True)
    decide(_cluster(pods).snapshot(), pods[0][:1], group=None, options=Options(recorder=alone))
    assert len(decisions) == 1
    assert (recorder.points, recorder.runs) == (alone.points, alone.runs)
    assert (recorder.batch_attempts, recorder.batch_flushes) == (alone.batch_attempts, alone.batch_flushes)
    assert alone.points
    assert alone.batch_attempts


def test_pod_that_shares_the_claim_of_one_before_is_left_to_be_decided_alone() -> None:
    pods = [member("a", "", 1), member("b", "", 1)]
    for objects in pods:
        objects[0]["spec"]["resourceClaims"] = [{"name": "cards", "resourceClaimName": "a-cards"}]
    decisions = decide_in_turn(_cluster(pods).snapshot(), [objects[0] for objects in pods], options=Options())
    assert [decision.members[0].pod.name for decision in decisions] == ["a"]


def test_nothing_is_decided_in_turn_while_a_place_is_kept_for_somebody() -> None:
    pods = [member("a", "", 0), member("b", "", 0), member("waits", "", 0)]
    cluster = _cluster(pods)
    first = [objects[0] for objects in pods[:2]]
    assert len(decide_in_turn(cluster.snapshot(), first, options=Options())) == 2
    cluster.nominate([Nomination(PodKey("default", "waits", "uid-waits"), "node-00000", 0)])
    assert decide_in_turn(cluster.snapshot(), first, options=Options()) == []


def test_pods_of_two_profiles_are_not_decided_in_turn() -> None:
    pods = [member("a", "", 0), member("b", "", 0)]
    pods[1][0]["spec"]["schedulerName"] = "other"
    cluster = _cluster(pods)
    assert decide_in_turn(cluster.snapshot(), [objects[0] for objects in pods], options=Options()) == []
