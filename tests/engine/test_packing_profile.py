"""Device scoring in decisions: the profile HaruPacking, or any that packs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_objects import Obj, claim, decide_all, device_class, member_with_claim, node, pod, pod_group, resource_slice
from test_groups_cycle import CASES, Case, run_case

from haru.engine.framework.profile import DEFAULT_PROFILE, PACKING_PROFILE
from haru.engine.state.decision import Decision

DEVICES = [{"name": f"gpu-{size}", "capacity": {"memory": {"value": f"{size}Gi"}}} for size in (80, 24, 40)]
PACKING = replace(DEFAULT_PROFILE, packing=True)
CARDS: list[Obj] = [device_class(), node("n0"), resource_slice("n0", DEVICES)]


def devices(decision: Decision) -> list[str]:
    given = [entry.allocation for member in decision.placed for entry in member.allocations]
    return [result["device"] for allocation in given for result in allocation["devices"]["results"]]


def test_packing_profile_chooses_smallest_sufficient_device() -> None:
    objects = [*CARDS, claim("c"), pod("p", claims=["c"])]
    assert devices(decide_all(objects)) == ["gpu-80"]
    assert devices(decide_all(objects, profile=PACKING_PROFILE)) == ["gpu-24"]


def test_packing_profile_gives_each_member_another_device() -> None:
    gang = [o for i in range(3) for o in member_with_claim(f"g-{i}", "g")]
    decision = decide_all([*CARDS, pod_group("g", 3), *gang], group="g", profile=PACKING_PROFILE)
    assert (decision.status, devices(decision)) == ("scheduled", ["gpu-24", "gpu-40", "gpu-80"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_packing_profile_does_not_change_feasibility(case: Case) -> None:
    plain, packed = (run_case(case, profile=profile) for profile in (DEFAULT_PROFILE, PACKING))
    assert (packed.status, packed.message) == (plain.status, plain.message)
    assert [m.status for m in packed.members] == [m.status for m in plain.members]
