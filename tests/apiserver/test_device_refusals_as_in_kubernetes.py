"""Refusals of devices, groups and workloads that were read off kube-apiserver 1.36.2, side by side."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import Caller

MERGE = "application/merge-patch+json"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
CLAIM = {"name": "r", "resourceClaimName": "x"}


def causes(answer: Any) -> list[tuple[str, str]]:
    return [(cause["field"], cause["message"]) for cause in answer.json["details"]["causes"]]


async def test_claim_of_a_group_is_told_whole_when_it_comes_twice(api: Caller) -> None:
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [CLAIM, CLAIM]}
    answer = await api("POST", GROUPS, {"metadata": {"name": "g"}, "spec": spec})
    told = 'Duplicate value: {"name":"r","resourceClaimName":"x"}'
    assert causes(answer) == [("spec.resourceClaims[1]", told)]


async def test_claim_of_a_group_without_a_name_lacks_a_source_first(api: Caller) -> None:
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [{}]}
    answer = await api("POST", GROUPS, {"metadata": {"name": "g"}, "spec": spec})
    assert [field for field, _ in causes(answer)] == ["spec.resourceClaims[0]", "spec.resourceClaims[0].name"]


async def test_members_of_a_group_that_may_not_change_are_told_in_their_order(api: Caller) -> None:
    await api.create(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}}})
    changed = {"spec": {"schedulingPolicy": {"basic": None, "gang": {"minCount": 2}}, "priority": 5}}
    answer = await api("PATCH", f"{GROUPS}/g", changed, type=MERGE)
    assert [field for field, _ in causes(answer)] == ["spec.schedulingPolicy", "spec.priority"]


@pytest.mark.parametrize(
    ("spec", "field", "told"),
    [
        ({"driver": "d/e"}, "spec.driver", 'Invalid value: "d/e": an RFC 1123 subdomain must consist of alphanumeric '),
        (
            {"driver": "D", "poolName": "a/A"},
            "spec.poolName",
            'Invalid value: "A": segment 1: a lowercase RFC 1123 subdomain ',
        ),
    ],
)
async def test_request_for_the_state_of_a_pool_names_the_part_that_is_wrong(
    api: Caller, spec: Any, field: str, told: str
) -> None:
    path = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests"
    found = causes(await api("POST", path, {"metadata": {"name": "r"}, "spec": spec}))
    assert [place for place, _ in found] == [field] and found[0][1].startswith(told)


@pytest.mark.parametrize(
    ("expression", "place", "what"), [("a b", 3, "extraneous"), ("a b c", 3, "mismatched"), ("1 2", 3, "extraneous")]
)
async def test_word_too_much_at_the_end_of_a_selector_is_extraneous(
    api: Caller, expression: str, place: int, what: str
) -> None:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    path = "/apis/resource.k8s.io/v1/deviceclasses"
    answer = await api("POST", path, {"metadata": {"name": "c"}, "spec": spec})
    word = expression.split()[1]
    told = f"<input>:1:{place}: Syntax error: {what} input '{word}' expecting <EOF>"
    assert told in answer.json["message"]


async def test_repeated_template_is_told_before_what_is_wrong_with_another(api: Caller) -> None:
    basic = {"name": "a", "schedulingPolicy": {"basic": {}}}
    spec = {"podGroupTemplates": [basic, {"name": "b", "schedulingPolicy": {}}, basic]}
    path = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads"
    answer = await api("POST", path, {"metadata": {"name": "w"}, "spec": spec})
    places = [f"spec.podGroupTemplates{rest}" for rest in ("[2]", "[1].schedulingPolicy")]
    assert [field for field, _ in causes(answer)] == places


async def test_too_many_valid_amounts_are_still_to_be_sorted(api: Caller) -> None:
    amounts = ["2", "1", *(str(amount) for amount in range(3, 12))]
    capacity = {"c": {"value": "40", "requestPolicy": {"default": "2", "validValues": amounts}}}
    devices = [{"name": "g", "allowMultipleAllocations": True, "capacity": capacity}]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": devices}
    answer = await api("POST", "/apis/resource.k8s.io/v1/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    place = "spec.devices[0].capacity[c].requestPolicy.validValues"
    assert causes(answer) == [
        (f"{place}[1]", 'Invalid value: "1": values must be sorted in ascending order'),
        (place, "Too many: 11: must have at most 10 items"),
        (place, 'Invalid value: "2": default value is not valid according to the requestPolicy'),
    ]
