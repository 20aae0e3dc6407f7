"""The state of every device: its holder and whether it is idle, or why it is free while matching pods are pending."""

from __future__ import annotations

import random
from typing import Any

import pytest
from engine_objects import (
    DRIVER,
    allocated,
    allocation,
    claim,
    device_class,
    member_with_claim,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)
from preemption_situations import situation

from haru.accounting.device_states import WHOLE, CardState, HoldingPod, Part, amounts, card_states
from haru.accounting.report import Filter, usage_now
from haru.drivers.simulated.objects import PROFILE_LABEL
from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.slices import resource_slices
from haru.engine import SchedulerCache
from haru.explain.card_counts import fitted
from haru.explain.utilization import percentage

Obj = dict[str, Any]
FPGA = {"name": "r", "exactly": {"deviceClassName": "fpga"}}
TAINT = {"key": "maintenance", "effect": "NoSchedule"}


def cards(*objects: Obj, **chosen: Any) -> list[CardState]:
    return card_states(SchedulerCache.of(objects).snapshot(), options(**chosen))


def states(*objects: Obj) -> dict[str, str]:
    """Each card as `state owner share, …`."""
    return {
        f"{card.node}/{card.card}": ", ".join(
            f"{p.state} {p.owner}".strip() + (f" {p.share}" if p.share < WHOLE else "") for p in card.parts
        )
        for card in cards(*objects)
    }


def user(name: str, where: str, *devices: str, **annotations: str) -> list[Obj]:
    made = pod(name, node=where, claims=[name])
    made["metadata"]["annotations"] = {"simulated.haru.dev/" + key: value for key, value in annotations.items()}
    return [made, allocated(claim(name), allocation(where, *devices), made)]


def waiting(name: str, count: int = 1, **more: Any) -> list[Obj]:
    return [pod(name, claims=[name], **more), claim(name, count)]


def refused(objects: list[Obj]) -> list[Obj]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    objects[0]["status"] = {"phase": "Pending", "conditions": [condition]}
    return objects


def nominated(objects: list[Obj]) -> list[Obj]:
    """What it waits for is being made free for it."""
    objects[0]["status"]["nominatedNodeName"] = "a"
    return objects


def reported(objects: list[Obj], percent: object, device: str = "gpu-0", where: str = "a") -> list[Obj]:
    """What a driver or a node agent writes into the claim's status."""
    entry = {"driver": DRIVER, "pool": where, "device": device, "data": {"haru.dev/utilization-percent": percent}}
    objects[1]["status"]["devices"] = [entry]
    return objects


SIMULATED = {"labels": {PROFILE_LABEL: "x"}}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (user("p", "a", "gpu-0"), "Held pod/p"),
        (reported(user("p", "a", "gpu-0"), 80), "Busy pod/p"),
        (reported(user("p", "a", "gpu-0"), 4.9), "Idle pod/p"),
        (reported(user("p", "a", "gpu-0"), "5"), "Busy pod/p"),
        (reported(user("p", "a", "gpu-0"), 101), "Held pod/p"),
        (reported(user("p", "a", "gpu-0"), 3, device="gpu-1"), "Held pod/p"),
        (user("p", "a", "gpu-0", utilization="1"), "Held pod/p"),  # no simulated node: nothing is made up
        ([allocated(claim("left"), allocation("a", "gpu-0"))], "Unused resourceclaim/left"),
        ([], "Free"),
        (waiting("w"), "Starting pod/w"),
        (waiting("w", schedulingGates=[{"name": "example.com/quota"}]), "Gated pod/w"),
        (waiting("w", cpu="9"), "NodeUnusable pod/w"),
        (waiting("w", 2), "Fragmented pod/w"),
        (refused(waiting("w")), "Fragmented pod/w"),
        (nominated(refused(waiting("w"))), "Starting pod/w"),
        (
            [pod("w", claims=["w"]), claim("w", requests=[{"name": "r", "exactly": {"deviceClassName": "fpga"}}])],
            "Free",
        ),
        ([pod("w")], "Free"),
        ([pod_group("g", 2), *member_with_claim("m", "g")], "GangWaiting podgroup/g"),
        (member_with_claim("m", "g"), "GangWaiting podgroup/g"),
        (
            [pod_group("g", 2), *member_with_claim("m", "g"), *member_with_claim("n", "g")],
            "GangWaiting podgroup/g",
        ),
        ([pod_group("g", 1), *member_with_claim("m", "g")], "Starting podgroup/g"),
        ([*waiting("late"), *waiting("urgent", priority=5)], "Starting pod/urgent"),
    ],
)
def test_card_state_follows_its_claims_and_pods(objects: list[Obj], expected: str) -> None:
    classes = [device_class(), device_class("fpga", ["device.driver == 'other'"])]
    assert states(node("a"), *classes, resource_slice("a", 1), *objects) == {"a/gpu-0": expected}


@pytest.mark.parametrize(("said", "expected"), [("3", "Idle"), ("93.5", "Busy"), ("much", "Held"), ("-1", "Held")])
def test_simulated_card_utilization_comes_from_pod_annotation(said: str, expected: str) -> None:
    objects = [node("a", **SIMULATED), device_class(), resource_slice("a", 1)]
    assert states(*objects, *user("p", "a", "gpu-0", utilization=said)) == {"a/gpu-0": f"{expected} pod/p"}


def test_utilization_in_claim_status_overrides_annotation() -> None:
    holder = reported(user("p", "a", "gpu-0", utilization="3"), 70)
    [card] = cards(node("a", **SIMULATED), device_class(), resource_slice("a", 1), *holder)
    who = HoldingPod("default", "p", "uid-p", "a")
    assert card.parts == (Part("Busy", WHOLE, "default", "pod/p", "gpu-0", 70.0, (who,), "inUse"),)


def test_tainted_card_is_unavailable_and_missed_only_while_a_pod_waits() -> None:
    devices = [{"name": "gpu-0", "taints": [TAINT]}, {"name": "gpu-1"}]
    objects = [node("a"), device_class(), resource_slice("a", devices)]
    assert states(*objects) == {"a/gpu-0": "Free", "a/gpu-1": "Free"}, "nobody waits"
    found = states(*objects, *waiting("w", 2))
    assert found == {"a/gpu-0": "Tainted pod/w", "a/gpu-1": "Fragmented pod/w"}


def test_equal_waiting_pods_count_once_and_next_request_takes_other_cards() -> None:
    objects = [
        node("a"),
        device_class(),
        device_class("old", ["device.attributes['gpu.example.com'].old"]),
        resource_slice("a", [{"name": "new", "attributes": {"old": {"bool": False}}}]),
    ]
    older = claim("o", requests=[{"name": "r", "exactly": {"deviceClassName": "old", "count": 1}}])
    assert states(*objects, pod("o", claims=["o"], priority=9), older, *waiting("w"), *waiting("x")) == {
        "a/new": "Starting pod/w"
    }


def mig_slices() -> list[Obj]:
    return resource_slices(load_profile("dgx-a100-80gb-mig"), "a", "uid-a", {}, 1)


def mig_cluster(*objects: Obj) -> list[Obj]:
    return [node("a", cpu="64"), device_class("mig", ["device.driver == 'gpu.nvidia.com'"]), *mig_slices(), *objects]


def test_partition_counts_as_its_fraction_of_the_card() -> None:
    def holder(name: str, device: str) -> list[Obj]:
        made = pod(name, node="a", claims=[name])
        results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": device}]
        return [made, allocated(claim(name), {"devices": {"results": results}}, made)]

    names = {d["name"] for s in mig_slices() for d in s["spec"].get("devices", ())}
    part = next(name for name in sorted(names) if name.startswith("gpu-0-mig-3g"))
    whole = claim("w", requests=[{"name": "r", "exactly": {"deviceClassName": "mig", "count": 8, "selectors": [
        {"cel": {"expression": "device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]}}])  # fmt: skip
    found = states(*mig_cluster(*holder("p", part)))
    assert found["a/gpu-0"] == "Held pod/p 500, Free 500" and found["a/gpu-1"] == "Free"
    found = states(*mig_cluster(*holder("p", part), pod("w", claims=["w"]), whole))
    assert found["a/gpu-0"] == "Held pod/p 500, Stranded pod/w 500"
    assert found["a/gpu-1"] == "Fragmented pod/w"


def test_consumed_capacity_share_counts_as_fraction_of_the_device() -> None:
    devices = [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}]
    made = pod("p", node="a", claims=["p"])
    results = [
        {
            "request": "gpu",
            "driver": DRIVER,
            "pool": "a",
            "device": "gpu-0",
            "shareID": f"00000000-0000-0000-0000-00000000000{number}",
            "consumedCapacity": {"memory": memory},
        }
        for number, memory in enumerate(("20Gi", "10Gi"))
    ]
    held = allocated(claim("p"), {"devices": {"results": results}}, made)
    found = states(node("a"), device_class(), resource_slice("a", devices), made, held)
    assert found == {"a/gpu-0": "Held pod/p 250, Held pod/p 125, Free 625"}


def test_admin_access_claim_leaves_device_free() -> None:
    made = pod("agent", node="a", claims=["agent"])
    given = allocation("a", "gpu-0")
    given["devices"]["results"][0]["adminAccess"] = True
    found = states(node("a"), device_class(), resource_slice("a", 1), made, allocated(claim("agent"), given, made))
    assert found == {"a/gpu-0": "Free"}


def test_card_of_claim_shared_by_two_pods_names_both() -> None:
    first, second = pod("p", node="a", claims=["c"]), pod("q", node="a", claims=["c"])
    shared = allocated(claim("c"), allocation("a", "gpu-0"), first, second)
    assert states(node("a"), device_class(), resource_slice("a", 1), first, second, shared) == {
        "a/gpu-0": "Held pod/p, pod/q"
    }


def test_shares_above_one_card_are_scaled_down_to_one() -> None:
    assert fitted([400, 300]) == [400, 300]
    assert fitted([800, 800, 800]) == [334, 333, 333]
    assert fitted([3000]) == [1000]
    for seed in range(200):
        rng = random.Random(seed)
        shares = [rng.randrange(1, 1500) for _ in range(rng.randrange(1, 9))]
        found = fitted(shares)
        assert sum(found) == min(sum(shares), WHOLE) and all(x <= y for x, y in zip(found, shares, strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_each_card_add_up_to_one_card(seed: int) -> None:
    objects = list(situation(seed).objects())
    found = cards(*objects)
    assert all(sum(part.share for part in card.parts) == WHOLE for card in found)
    assert sum(amounts(found).values()) == WHOLE * len(found)
    published = sum(len(o["spec"].get("devices", ())) for o in objects if o["kind"] == "ResourceSlice")
    assert (len(found) > 0) == (published > 0)


@pytest.mark.parametrize(("value", "expected"), [(7, 7.0), ("7.5", 7.5), (True, None), (None, None), ("x", None)])
def test_percentage_accepts_only_numbers_between_0_and_100(value: object, expected: float | None) -> None:
    assert percentage(value) == expected


def test_usage_table_and_json_agree_and_respect_filters() -> None:
    objects = [node("a"), device_class(), resource_slice("a", 4)]
    objects += [*reported(user("p", "a", "gpu-0"), 2), *user("q", "a", "gpu-1"), *waiting("w", 3)]
    usage = usage_now(cards(*objects))
    assert str(usage).splitlines() == [
        "4 devices: 2 free, 0 reserved, 2 held (1 idle, 0 in use, 1 unmeasured), 0 unavailable",
        "not used while compatible work waits: 2 Fragmented",
        "NAMESPACE  OWNER  HELD  IN USE  IDLE  UNMEASURED  MEMORY PRESSURE  I/O PRESSURE  FREE WHILE IT WAITED  WHY",
        "default    pod/p  1     0       1     0           -                -             0",
        "default    pod/q  1     0       0     1           -                -             0",
        "default    pod/w  0     0       0     0           -                -             2                     Fragmented 2",  # noqa: E501
    ]
    told = usage.as_dict()
    assert (told["kind"], told["unit"], told["total"]) == ("DeviceUsage", "devices", 4)
    assert told["states"] == {"Idle": 1, "Held": 1, "Fragmented": 2}
    assert [card["parts"][0]["state"] for card in told["devices"]] == ["Idle", "Held", "Fragmented", "Fragmented"]
    assert [card["parts"][0].get("utilizationPercent", "-") for card in told["devices"]] == [2.0, None, "-", "-"]
    assert "<table" in usage._repr_html_()
    assert [(row["namespace"], row["held"], row["missed"]) for row in told["namespaces"]] == [("default", 2, 2)]
    assert str(usage.by_namespace()).splitlines()[3].split()[:5] == ["default", "2", "0", "1", "1"]
    assert str(usage.by_namespace()).splitlines()[3].split()[5:] == ["-", "-", "2", "Fragmented", "2"]
    chosen = usage_now(cards(*objects), Filter(owner="q"))
    assert [row.owner for row in chosen.rows] == ["pod/q"] and chosen.devices == 4
    assert [card["card"] for card in chosen.as_dict()["devices"]] == ["gpu-1"]
    assert usage_now(cards(*objects), Filter(namespace="other*")).rows == ()
