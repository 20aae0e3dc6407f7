"""The profile HaruExpected: nodes are chosen by what they can still take of an expected mix of work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    decide_all,
    device_class,
    node,
    options,
    pod,
    resource_slice,
)
from test_groups_cycle import CASES, Case, run_case

from haru.engine.equivalence.decision_cache import DecisionCache, NoCache
from haru.engine.framework.profile import DEFAULT_PROFILE, EXPECTED_PROFILE
from haru.engine.journal.values import plain, profile_from
from haru.engine.packing_value import CARD, ExpectedRequest
from haru.engine.scheduling_round import run_round
from haru.engine.state.cache import SchedulerCache

MIX = {ExpectedRequest(2_000, 1, CARD): 50, ExpectedRequest(16_000, 1, CARD): 50}
EXPECTED = replace(EXPECTED_PROFILE, expected=tuple(MIX.items()))
SHARED: Obj = {"capacity": {"memory": {"value": "100Gi"}}, "allowMultipleAllocations": True}


def cluster(cores: Sequence[str], cards: Sequence[int | list[Obj]]) -> list[Obj]:
    """Nodes n0, n1, … with so much cpu and so many cards."""
    found: list[Obj] = [device_class()]
    for index, (cpu, has) in enumerate(zip(cores, cards, strict=True)):
        found.append(node(f"n{index}", cpu=cpu))
        if has:
            found.append(resource_slice(f"n{index}", has))
    return found


def chosen(objects: list[Obj], cpu: str, *claims: Obj) -> str:
    work = pod("p", cpu=cpu, claims=[entry["metadata"]["name"] for entry in claims])
    decision = decide_all([*objects, *claims, work], profile=EXPECTED)
    return decision.placed[0].node or ""


@pytest.mark.parametrize(("cpu", "expected"), [("2", "n0"), ("16", "n1")])
def test_pod_is_placed_on_node_with_matching_cpu_per_card(cpu: str, expected: str) -> None:
    assert chosen(cluster(["16", "64"], [4, 4]), cpu, claim("c")) == expected


def test_pod_without_cards_avoids_nodes_with_cards() -> None:
    assert chosen(cluster(["16", "64", "8"], [4, 4, 0]), "8") == "n2"
    assert chosen(cluster(["16", "64"], [4, 1]), "8") == "n1"


def test_shared_card_in_use_is_filled_first() -> None:
    objects = cluster(["16", "16"], [[{"name": "a", **SHARED}], [{"name": "b", **SHARED}]])
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    half = [{"name": "gpu", "exactly": {**exactly, "capacity": {"requests": {"memory": "50Gi"}}}}]
    there = allocated(claim("held", requests=half), share("n1", "b", "50Gi"))
    wanted = claim("c", requests=half)
    mix = ((ExpectedRequest(2_000, 1, 500), 50), (ExpectedRequest(2_000, 1, CARD), 50))
    work = pod("p", cpu="2", claims=["c"])
    decision = decide_all([*objects, there, wanted, work], profile=replace(EXPECTED, expected=mix))
    assert decision.placed[0].node == "n1"


def share(on: str, device: str, memory: str) -> Obj:
    found = allocation(on, device)
    found["devices"]["results"][0] |= {"shareID": "s-1", "consumedCapacity": {"memory": memory}}
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_expected_profile_does_not_change_feasibility(case: Case) -> None:
    plain, expected = (run_case(case, profile=profile) for profile in (DEFAULT_PROFILE, EXPECTED_PROFILE))
    assert expected.status == plain.status


def test_expected_profile_survives_journal_round_trip() -> None:
    again = profile_from(json.loads(json.dumps(plain(EXPECTED_PROFILE))))
    assert again.expected == EXPECTED_PROFILE.expected
    assert profile_from(plain(DEFAULT_PROFILE)).remaining is None


def test_decision_cache_does_not_change_placements() -> None:
    """Devices that are given back without a change of their node are seen by work without cards too."""

    def nodes(*, remember: bool) -> list[str]:
        deciding = options(profile=EXPECTED)
        world = SchedulerCache(DecisionCache() if remember else NoCache())
        for obj in cluster(["16", "16"], [2, 2]):
            world.apply(obj)
        found = []
        for number in range(6):
            world.apply(claim(f"c{number}"))
            world.apply(pod(f"p{number}", cpu="1", claims=[f"c{number}"] if number % 2 else []))
            if number == 4:
                held = world.snapshot().claims["default/c1"]
                world.apply({"kind": "ResourceClaim", **held, "status": {}})
            result = run_round(world, deciding)
            assert not result.errors
            found += result.bindings.values()
        return found

    assert nodes(remember=True) == nodes(remember=False)
