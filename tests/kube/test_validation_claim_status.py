"""Status writes to ResourceClaims: allocation, reservations, device status."""

from __future__ import annotations

from typing import Any

import pytest
from kube_cases import NOW, Obj, claim, put, status_problems

OPAQUE = {"opaque": {"driver": "gpu.example.com", "parameters": {"mode": "shared"}}}
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "worker-1", "device": "gpu-0"}
ALLOCATION = {"devices": {"results": [RESULT]}}
USER = {"resource": "pods", "name": "p", "uid": "1"}
STATUS = {"driver": "gpu.example.com", "pool": "worker-1", "device": "gpu-0"}
CONDITION = {"type": "Ready", "status": "True", "reason": "Up", "lastTransitionTime": NOW}
UID = "11111111-2222-3333-4444-555555555555"


def with_status(**status: Any) -> Obj:
    return {**claim(), "status": status}


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"allocation": ALLOCATION, "reservedFor": [USER]},
        {"allocation": ALLOCATION, "devices": [{**STATUS, "conditions": [CONDITION], "data": {"a": 1}}]},
        {"allocation": {"devices": {"results": [{**RESULT, "shareID": UID}]}}, "devices": [{**STATUS, "shareID": UID}]},
    ],
)
def test_valid_claim_status_is_accepted(status: Obj) -> None:
    assert status_problems(with_status(**status), with_status()) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"reservedFor": [USER]}, "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"),
        (
            {"allocation": ALLOCATION, "reservedFor": [USER, {**USER, "name": "q"}]},
            'status.reservedFor[1]: Duplicate value: "1"',
        ),
        (
            {"allocation": ALLOCATION, "reservedFor": [{**USER, "uid": str(i)} for i in range(257)]},
            "status.reservedFor: Too many: 257",
        ),
        ({"allocation": ALLOCATION, "reservedFor": [{}]}, "status.reservedFor[0].uid: Required value"),
        ({"allocation": {"devices": {"results": [RESULT] * 33}}}, "status.allocation.devices.results: Too many: 33"),
        (
            {"allocation": {"devices": {"results": [{**RESULT, "request": "x"}]}}},
            "must be the name of a request in the claim",
        ),
        (
            {"allocation": {"devices": {"config": [{"source": "X", **OPAQUE}]}}},
            'source: Unsupported value: "X": supported values: "FromClaim", "FromClass"',
        ),
        (
            {"allocation": {"devices": {"results": [{**RESULT, "shareID": "A"}]}}},
            "error validating uid: invalid UUID length: 1",
        ),
        (
            {"devices": [STATUS]},
            'status.devices[0]: Invalid value: {"Driver":"gpu.example.com","Pool":"worker-1","Device":"gpu-0",'
            '"ShareID":""}: must be an allocated device in the claim',
        ),
        (
            {"allocation": ALLOCATION, "devices": [{**STATUS, "conditions": [{"type": "Ready"}]}]},
            "conditions[0].status: Unsupported value",
        ),
        (
            {
                "allocation": ALLOCATION,
                "devices": [{**STATUS, "conditions": [{**CONDITION, "type": f"c{i}"} for i in range(9)]}],
            },
            "conditions: Too many: 9",
        ),
        (
            {"allocation": ALLOCATION, "devices": [{**STATUS, "networkData": {"ips": ["1.2.3.4"]}}]},
            'networkData.ips[0]: Invalid value: "1.2.3.4": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or ',
        ),
        (
            {"allocation": ALLOCATION, "devices": [{**STATUS, "data": "x"}]},
            'data: Invalid value: "<value omitted>": must be a valid JSON object',
        ),
    ],
)
def test_invalid_claim_status_is_refused(status: Obj, expected: str) -> None:
    assert any(expected in text for text in status_problems(with_status(**status), with_status()))


def test_allocation_is_immutable_until_cleared() -> None:
    old = with_status(allocation=ALLOCATION)
    other = {"devices": {"results": [{**RESULT, "device": "gpu-1"}]}}
    assert status_problems(with_status(), old) == []
    assert status_problems(with_status(allocation=ALLOCATION, reservedFor=[USER]), old) == []
    found = status_problems(with_status(allocation=other), old)
    assert [text.split(":")[0] for text in found] == ["status.allocation"]
    assert found[0].endswith("field is immutable")


def test_deleted_claim_refuses_new_and_allows_removed_reservations() -> None:
    two = [USER, {**USER, "uid": "2"}]
    old = put(with_status(allocation=ALLOCATION, reservedFor=two[:1]), "metadata.deletionTimestamp", NOW)
    more = put(with_status(allocation=ALLOCATION, reservedFor=two), "metadata.deletionTimestamp", NOW)
    less = put(with_status(allocation=ALLOCATION, reservedFor=[]), "metadata.deletionTimestamp", NOW)
    assert status_problems(less, old) == []
    assert [text.split(":")[0] for text in status_problems(more, old)] == ["status.reservedFor"]
