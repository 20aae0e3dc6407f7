"""Plans and faults come from the seed alone, within their limits."""

from __future__ import annotations

import pytest

from haru.stress.local.faults import FAULTS, FaultError, parse_faults, plan_faults
from haru.stress.plan import Limits, PlanError, parse_kinds
from haru.stress.seeded_plan import seeded_plan


def test_same_seed_gives_same_plan_and_another_seed_another() -> None:
    limits = Limits(units=40)
    assert seeded_plan(7, limits) == seeded_plan(7, limits)
    assert seeded_plan(7, limits) != seeded_plan(8, limits)


def test_text_of_a_plan_counts_one_as_one() -> None:
    head, *lines = seeded_plan(3, Limits(units=4)).text().splitlines()
    assert head == "seed 3: 4 works, 13 pods, within 60 s"
    assert "claim-0: 1 pod, 1000m cpu and 256Mi, 2 devices for its claim, " in lines[0]
    assert "claim-3: 3 pods, 100m cpu and 128Mi each, 1 device for each of 3 claims, " in lines[3]


@pytest.mark.parametrize("seed", range(20))
def test_plan_stays_within_its_limits(seed: int) -> None:
    limits = Limits(
        units=50, seconds=30, gang_size=4, devices=2, kinds=("gangs", "claims", "pods", "churn", "preemption")
    )
    plan = seeded_plan(seed, limits)
    assert len(plan.units) == 50 and len({unit.name for unit in plan.units}) == 50
    assert list(plan.units) == sorted(plan.units, key=lambda unit: (unit.at, unit.name))
    for unit in plan.units:
        assert 0 <= unit.at <= 30
        assert 1 <= unit.min_count <= unit.pods <= 4
        assert unit.devices <= 2


def test_kinds_left_out_do_not_come() -> None:
    plan = seeded_plan(1, Limits(units=50, kinds=("pods",)))
    assert {unit.kind for unit in plan.units} == {"pod"}
    assert not any(unit.devices or unit.important or unit.deleted_after is not None for unit in plan.units)


@pytest.mark.parametrize("text", ["", "churn", "gangs,weather"])
def test_kinds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="--kinds"):
        parse_kinds(text)


@pytest.mark.parametrize(
    ("field", "flag"), [("units", "--units"), ("gang_size", "--gang-size"), ("seconds", "--duration")]
)
def test_limit_below_its_least_is_refused(field: str, flag: str) -> None:
    with pytest.raises(PlanError, match=flag):
        seeded_plan(1, Limits(**{field: 0}))  # type: ignore[arg-type]


def test_each_fault_comes_before_one_comes_again() -> None:
    faults = plan_faults(3, tuple(FAULTS), seconds=84, every=6)
    assert faults == plan_faults(3, tuple(FAULTS), seconds=84, every=6)
    assert len(faults) == 14
    assert {fault.kind for fault in faults[:7]} == {fault.kind for fault in faults[7:]} == set(FAULTS)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)


def test_fault_names() -> None:
    assert parse_faults("all") == tuple(FAULTS)
    assert parse_faults("etcd,leader") == ("leader", "etcd")
    with pytest.raises(FaultError, match="name some of leader"):
        parse_faults("earthquake")
