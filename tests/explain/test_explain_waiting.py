"""Explanations of which running pods must end first, and when, and of nodes reserved for other pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    member_with_claim,
    node,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine import SchedulerCache
from haru.engine.backfill import BackfillReservation
from haru.engine.state import Nomination
from haru.explain import Explanation, explain, to_json, to_text
from haru.kube.names import parse_time

NOW, START = "2026-01-01T00:01:00Z", "2026-01-01T00:00:00Z"


def running(name: str, where: str, cpu: str, ends: int | None) -> Obj:
    limit: dict[str, Any] = {} if ends is None else {"activeDeadlineSeconds": ends, "terminationGracePeriodSeconds": 0}
    made = pod(name, cpu=cpu, node=where, restartPolicy="Never", **limit)
    made["status"]["startTime"] = START
    return made


def told(*objects: Obj, name: str = "p") -> Explanation:
    snapshot = SchedulerCache.of(objects).snapshot()
    return explain(snapshot, "pod", snapshot.pods[f"default/{name}"].obj, now=NOW)


def test_starts_after_names_pods_and_latest_time() -> None:
    objects = [node("a"), node("b"), running("long", "a", "8", 7200), running("short", "b", "8", 3600)]
    answer = told(*objects, pod("p", cpu="6"))
    assert answer.verdict == "FitsLater"
    assert to_json(answer)["startsAfter"] == {"pods": ["default/short"], "until": "2026-01-01T01:00:00Z"}
    assert "later    it starts by 2026-01-01T01:00:00Z at the latest, when default/short has ended" in to_text(answer)


def test_running_pod_without_limit_gives_no_time() -> None:
    answer = told(node("a"), running("open", "a", "8", None), pod("p", cpu="6"))
    assert to_json(answer)["startsAfter"] == {"pods": ["default/open"]}
    assert "later" not in to_text(answer)


def test_backfill_reservation_for_other_work_is_explained() -> None:
    group = pod_group("g", 2)
    group["status"] = {"conditions": [{"type": "haru.dev/Reserved", "status": "True"}]}
    objects = [node("a"), node("b"), running("now", "a", "8", 600), group]
    objects += [pod("g0", cpu="6", group="g"), pod("g1", cpu="6", group="g")]
    answer = told(*objects, pod("p", cpu="6"))
    assert (answer.verdict, [reason.type for reason in answer.reasons]) == ("FitsLater", ["Reserved"])
    assert answer.reasons[0].data == {"for": "podgroup default/g", "until": "2026-01-01T00:10:00Z"}
    quick = pod("p", cpu="6", activeDeadlineSeconds=60)
    assert told(*objects, quick).verdict == "Starting"
    assert told(*objects, pod("p", cpu="2")).verdict == "Starting"


@pytest.mark.parametrize("size", [1, 2])
def test_nodes_refuse_work_that_ends_after_the_backfill_reservation_as_the_decision_does(size: int) -> None:
    """One pod is explained by the diagnosis of its decision; of a group the nodes are asked again."""
    group = "g" if size > 1 else ""
    members = [pod(f"p{number}", cpu="3", group=group, activeDeadlineSeconds=3600) for number in range(size)]
    cache = SchedulerCache.of([node("a"), node("b", cpu="3"), pod("head", cpu="6"), *members, pod_group("g", 2)])
    if size == 1:
        cache.apply(pod("now", cpu="3", node="b"))
    head = cache.snapshot().pods["default/head"].key
    kept = BackfillReservation(None, 0, (Nomination(head, "a", 0),), frozenset(), parse_time(NOW).timestamp() + 540)
    snapshot = replace(cache.snapshot(), reservation=kept)
    obj = snapshot.pod_groups["default/g"] if group else snapshot.pods["default/p0"].obj
    answer = explain(snapshot, "podgroup" if group else "pod", obj, now=NOW)
    assert answer.verdict == "FitsLater"
    assert {name: found.room for found in answer.nodes for name in found.examples} == {
        "a": None,
        "b": 1 if group else None,
    }


def test_pending_claim_waits_for_pod_that_holds_devices() -> None:
    user = running("user", "a", "1", 600)
    user["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "held"}]
    [waits, claim] = member_with_claim("p", "")
    held: Obj = {**claim, "metadata": {"name": "held", "namespace": "default", "uid": "uid-held"}}
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    held["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "user", "uid": "uid-user"}],
    }
    answer = told(device_class(), node("a"), resource_slice("a", 1), user, held, waits, claim)
    assert to_json(answer)["startsAfter"] == {"pods": ["default/user"], "until": "2026-01-01T00:10:00Z"}


@pytest.mark.parametrize("ready", [False, True])
def test_pod_whose_devices_are_not_ready_waits_for_their_driver(ready: bool) -> None:
    waits = pod("p", claims=["c"])
    held = allocated(claim("c"), allocation("n1", "d0"), waits)
    (result,) = held["status"]["allocation"]["devices"]["results"]
    result["bindingConditions"] = ["attached", "cooled"]
    device = {name: result[name] for name in ("driver", "pool", "device")}
    conditions = [{"type": "attached", "status": str(ready)}, {"type": "cooled", "status": "True"}]
    held["status"]["devices"] = [{**device, "conditions": conditions}]
    answer = told(node("n1"), device_class(), resource_slice("n1", 1), held, waits)
    assert (answer.verdict, [reason.type for reason in answer.reasons]) == (
        "Starting",
        ["Waiting" if ready else "DevicesNotReady"],
    )
    if not ready:
        says = f"driver {device['driver']} has said that attached is true of device {device['pool']}/d0"
        assert answer.summary == f"its devices are allocated; it is bound once {says}"
        assert to_json(answer)["reasons"][0]["devices"] == [
            {"claim": "default/c", "node": "n1", **device, "missing": ["attached"]}
        ]
