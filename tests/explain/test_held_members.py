"""A gang of which some members are held: whose hold it is, and what keeps the others back besides."""

from __future__ import annotations

import pytest
from explain_world import cluster, gang, pod, template, told


@pytest.mark.parametrize("about", ("pod/g-0", "pod/g-2", "podgroup/g"))
def test_hold_of_one_member_is_said_of_that_member(about: str) -> None:
    group, *members = gang("g", 3, template="gpu")
    members[1]["spec"]["schedulerName"] = "volcano"
    members[2] = pod("g-2", "nowhere", group="g")
    found = told(cluster(dgx_h100=1), template(), group, *members, about=about)
    assert found.summary.startswith("member g-2: its claim gpu has not been made")
    assert {reason.type for reason in found.reasons} == {"ClaimNotCreated", "SchedulerNameMismatch"}


def test_holds_of_other_kinds_are_told_of_their_members() -> None:
    group, *members = gang("g", 3, template="gpu")
    members[0]["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    members[2] = pod("g-2", "nowhere", group="g")
    found = told(cluster(dgx_h100=1), template(), group, *members, about="podgroup/g")
    assert found.summary == "member g-0: held by scheduling gates: example.com/quota"
    text = "member g-2: its claim gpu has not been made from ResourceClaimTemplate nowhere yet"
    assert text in [reason.message for reason in found.reasons] and text in str(found)


def test_hold_of_all_members_names_none_of_them() -> None:
    members = gang("g", 3, schedulingGates=[{"name": "example.com/quota"}])
    found = told(cluster(dgx_h100=1), *members, about="podgroup/g")
    assert found.summary == "held by scheduling gates: example.com/quota"
