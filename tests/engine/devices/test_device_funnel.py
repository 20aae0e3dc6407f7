"""Why devices are refused: the counts of the funnel and the cause that it names."""

from __future__ import annotations

from typing import Any

import pytest
from device_objects import DRIVER, NODE, Obj, claim, class_, device, exact, first_of, request, slice_, taken

from haru.engine.dra import AllocatedState, DeviceSnapshot, Features, NodeFunnel, explain_requests
from haru.engine.plugins import prioritized_score

MODEL = f"device.attributes['{DRIVER}'].model == 'x'"
BAD = [{"key": "bad", "value": "1", "effect": "NoSchedule"}]
DEVICES = [
    device("a", {"model": "y", "root": "r0"}),
    device("b", {"model": "x", "root": "r0"}, taints=BAD),
    device("c", {"model": "x", "root": "r1"}),
    device("d", {"model": "x", "root": "r2"}),
]


def explain(claims: list[Obj], slices: list[Obj] | None = None, state: AllocatedState | None = None) -> NodeFunnel:
    snapshot = DeviceSnapshot.of(
        slices or [slice_("s", DEVICES)], [class_(), class_("gpu", f"device.driver == '{DRIVER}'")]
    )
    return explain_requests(snapshot, state or AllocatedState(), NODE, claims, Features())


def holding(claim_key: str, *devices: str) -> AllocatedState:
    results = [{"request": "r", "driver": DRIVER, "pool": "pool", "device": d} for d in devices]
    return AllocatedState().with_allocation(claim_key, {"devices": {"results": results}})


def test_funnel_stages_are_in_order_with_counts() -> None:
    funnel = explain([claim("c", request("r", 2, MODEL, cls="gpu"), match="root")], state=holding("ns/x", "d"))
    (found,) = funnel.requests
    assert [(s.name, s.left) for s in found.stages] == [
        ("devices", 4),
        ("class", 4),
        ("selector", 3),
        ("taints", 2),
        ("free", 1),
        ("constraints", 1),
    ]
    by_name = {s.name: s.data for s in found.stages}
    assert (by_name["selector"]["failed"], by_name["selector"]["errors"]) == (1, 0)
    assert by_name["selector"]["sample"] == {
        "device": f"{DRIVER}/pool/a",
        "driver": DRIVER,
        f"{DRIVER}/model": "y",
    }
    assert by_name["taints"] == {"taints": {"bad=1:NoSchedule": 1}}
    assert by_name["free"] == {"holders": {"ns/x": 1}}
    assert found.refusal is not None
    assert (found.refusal.type, found.refusal.data["left"]) == ("DevicesTaken", 1)
    assert found.refusal.message == "request r needs 2 devices: 1 of 2 devices are free; held by ns/x (1)"
    assert funnel.refusals == (found.refusal,)
    assert found.left == 1


CARD = [
    slice_(
        "d", [device("whole", consumes={"card": {"mem": 4}}), device("half", consumes={"card": {"mem": 2}})], count=2
    ),
    slice_("n", count=2, counters={"card": {"mem": 4}}),
]
SHARED = [slice_("s", [device("a", capacity={"mem": "4"}, allowMultipleAllocations=True)])]

CAUSES: list[tuple[str, list[Obj] | None, Any, Obj, str, str]] = [
    ("no devices", [slice_("s")], taken(), request("r"), "NoDevices", "the node offers none"),
    ("class", None, taken(), request("r", cls="gone"), "DeviceClassMissing", "could not retrieve device class gone"),
    ("selector", None, taken(), request("r", 4, MODEL), "SelectorMismatch", "3 of 4 devices match the selector"),
    ("taint", None, taken("c", "d"), request("r", 3, MODEL), "DeviceTainted", "tainted bad=1:NoSchedule (1)"),
    ("taken", None, taken("c", "d"), request("r", 2), "DevicesTaken", "held by a claim (2)"),
    ("counters", CARD, holding("ns/x", "half"), request("r", 1), "CountersExhausted",
     "short of mem (1); held by ns/x (1)"),
    ("capacity", SHARED, taken(), request("r", capacity={"requests": {"mem": "5"}}), "CapacityExceeded",
     "0 of 1 device"),
    ("error", None, taken(), request("r", 1, f"device.attributes['{DRIVER}'].no == 1"), "SelectorError",
     "no such key: no"),
    ("too many", None, taken(), request("r", 40), "TooManyDevices", "a claim can have 32"),
    ("all, one taken", None, taken("c"), request("r", None, MODEL), "DeviceTainted", "needs 3 devices: 2 of 3"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("slices", "state", "wanted", "kind", "text"), [c[1:] for c in CAUSES], ids=[c[0] for c in CAUSES]
)
def test_refusal_has_expected_type_and_message(
    slices: list[Obj] | None, state: AllocatedState, wanted: Obj, kind: str, text: str
) -> None:
    (refusal,) = explain([claim("c", wanted)], slices, state).refusals
    assert refusal.type == kind
    assert text in refusal.message


def test_match_and_distinct_constraints_are_counted_by_value() -> None:
    funnel = explain([claim("c", request("r", 2, tolerations=[{"operator": "Exists"}]), match="root")])
    assert funnel.requests[0].refusal is None
    assert funnel.requests[0].stages[-1].data["groups"] == {"r0": 2, "r1": 1, "r2": 1}
    (refusal,) = explain([claim("c", request("r", 2), match="root")]).refusals
    assert refusal.type == "ConstraintUnsatisfied"
    (refusal,) = explain([claim("c", request("r", 4, tolerations=[{"operator": "Exists"}]), distinct="root")]).refusals
    assert (refusal.type, refusal.data["left"]) == ("ConstraintUnsatisfied", 3)


def test_exhausted_alternatives_give_one_refusal() -> None:
    (refusal,) = explain([claim("c", first_of("f", exact(9), exact(1, cls="gone")))]).refusals
    assert refusal.type == "AlternativesExhausted"
    assert [a["type"] for a in refusal.data["alternatives"]] == ["NoDevices", "DeviceClassMissing"]
    assert explain([claim("c", first_of("f", exact(9), exact(1)))]).refusals == ()


def test_incomplete_and_invalid_pools_are_named() -> None:
    slices = [slice_("s", [device("a"), device("a")]), slice_("t", [device("b")], pool="half", count=2)]
    funnel = explain([claim("c", request("r"))], slices)
    assert [r.type for r in funnel.refusals] == ["NoDevices", "PoolIncomplete", "PoolInvalid"]
    assert funnel.incomplete_pools == (f"{DRIVER}/half",)
    assert funnel.invalid_pools == {f"{DRIVER}/pool": "device a is published twice"}


def test_requests_competing_for_devices_have_no_single_refusal() -> None:
    assert explain([claim("c", request("r", 2), request("q", 2))]).refusals == ()


def test_score_of_prioritized_alternatives() -> None:
    wanted = [claim("c", first_of("f", exact(), exact(), exact()), request("r")), claim("d", first_of("g", exact()))]

    def result(*names: str) -> Obj:
        return {"devices": {"results": [{"request": name} for name in names]}}

    assert prioritized_score([result("f/sub-0", "f/sub-0", "r"), result("g/sub-0")], wanted) == 16
    assert prioritized_score([result("f/sub-2", "r"), result("g/sub-0")], wanted) == 14
    assert prioritized_score([], []) == 0
