"""One object, several versions; events in two groups; events that grow old."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from api_caller import PODS, Caller, pod

from haru.apiserver import background
from haru.apiserver.background import EventExpiry
from haru.apiserver.registry.resources import Served
from haru.event_loop import TimeSlice
from haru.kube.gates import FeatureGates

SLICES = "/apis/resource.k8s.io/{}/resourceslices"
CORE_EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def spec(devices: list[Any]) -> Any:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    return {"driver": "d.example", "nodeName": "n", "pool": pool, "devices": devices}


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
async def test_object_written_in_any_version_is_readable_in_every_version(api: Caller, version: str) -> None:
    inner = {"attributes": {"model": {"string": "H100"}}}
    device = {"name": "d0", "basic": inner} if version == "v1beta1" else {"name": "d0", **inner}
    obj = {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceSlice", "metadata": {"name": "s"}}
    created = await api.create(SLICES.format(version), {**obj, "spec": spec([device])})
    assert created["apiVersion"] == f"resource.k8s.io/{version}"
    for other in ("v1", "v1beta1", "v1beta2"):
        got = await api.get(SLICES.format(other) + "/s")
        assert got["apiVersion"] == f"resource.k8s.io/{other}"
        found = got["spec"]["devices"][0]
        assert (found["basic"] if other == "v1beta1" else found)["attributes"] == inner["attributes"]
        listed = (await api.get(SLICES.format(other)))["items"]
        found = listed[0]["spec"]["devices"][0]
        assert (found["basic"] if other == "v1beta1" else found)["attributes"] == inner["attributes"]
        same = await api("PUT", SLICES.format(other) + "/s", got)
        assert same.json["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    patched = await api(
        "PATCH",
        SLICES.format("v1beta2") + "/s",
        {"metadata": {"labels": {"a": "b"}}},
        type="application/merge-patch+json",
    )
    assert patched.json["apiVersion"] == "resource.k8s.io/v1beta2"
    assert (await api("DELETE", SLICES.format("v1beta1") + "/s")).status == 200


async def test_slices_are_selected_by_node_and_driver(api: Caller) -> None:
    await api.create(SLICES.format("v1"), {"metadata": {"name": "s"}, "spec": spec([])})
    for selector, count in (("spec.nodeName%3Dn", 1), ("spec.driver%3Dother", 0)):
        listed = await api.get(f"{SLICES.format('v1beta1')}?fieldSelector={selector}")
        assert len(listed["items"]) == count


def event(name: str) -> Any:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a", "apiVersion": "v1"},
        "reason": "Scheduled",
        "message": "placed",
        "type": "Normal",
        "source": {"component": "tests"},
        "firstTimestamp": "2026-03-04T05:06:07Z",
        "lastTimestamp": "2026-03-04T05:06:07Z",
        "count": 1,
    }


async def test_events_of_both_groups_share_storage(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    await api.create(CORE_EVENTS, event("e1"))
    seen = await api.get(f"{NEW_EVENTS}/e1")
    assert (seen["apiVersion"], seen["note"], seen["regarding"]["name"]) == ("events.k8s.io/v1", "placed", "a")
    new = {
        "metadata": {"name": "e2"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "b"},
        "eventTime": "2026-03-04T05:06:07.000000Z",
        "reportingController": "tests",
        "reportingInstance": "tests-0",
        "action": "Binding",
        "reason": "Failed",
        "type": "Warning",
        "note": "no",
    }
    await api.create(NEW_EVENTS, new)
    assert (await api.get(f"{CORE_EVENTS}/e2"))["message"] == "no"
    for path, selector, names in (
        (CORE_EVENTS, "involvedObject.name%3Da", ["e1"]),
        (NEW_EVENTS, "regarding.name%3Db", ["e2"]),
        (NEW_EVENTS, "reportingController%3Dtests", ["e2"]),
        (CORE_EVENTS, "type%3DWarning", ["e2"]),
    ):
        listed = await api.get(f"{path}?fieldSelector={selector}")
        assert [i["metadata"]["name"] for i in listed["items"]] == names, selector


async def test_others_have_their_turn_while_old_events_are_looked_for(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await api.create(CORE_EVENTS, event(f"e{number}"))
    monkeypatch.setattr(background, "TimeSlice", lambda: TimeSlice(0.0))
    turns: list[None] = []

    async def others() -> None:
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await EventExpiry(api.app.objects, lambda: 0.0).remove_old()
    task.cancel()
    assert len(turns) >= 5


async def test_events_expire_after_an_hour(api: Caller) -> None:
    passed = [0.0]
    expiry = EventExpiry(api.app.objects, lambda: passed[0])
    await api.create(CORE_EVENTS, event("old"))
    api.clock.advance(minutes=59)
    young = event("young")
    young["lastTimestamp"] = "2026-03-04T06:00:00Z"
    await api.create(CORE_EVENTS, young)
    assert await expiry.remove_old() == 0
    passed[0] += 120
    assert await expiry.remove_old() == 1
    assert [i["metadata"]["name"] for i in (await api.get(CORE_EVENTS))["items"]] == ["young"]


@pytest.mark.parametrize("hours", [1, -1])
async def test_events_stay_an_hour_when_the_clock_jumps(api: Caller, hours: int) -> None:
    passed = [0.0]
    expiry = EventExpiry(api.app.objects, lambda: passed[0])
    await api.create(CORE_EVENTS, event("e"))
    assert await expiry.remove_old() == 0
    api.clock.now += timedelta(hours=hours)
    passed[0] += 3590
    assert await expiry.remove_old() == 0
    passed[0] += 20
    assert await expiry.remove_old() == 1


def test_group_version_without_kinds_that_are_on_is_not_served() -> None:
    for gates, versions in (("", ["v1"]), ("ClusterTrustBundle=true", ["v1", "v1beta1"])):
        served = Served(FeatureGates.parse(gates), {"api/all": True})
        found = [version for group, version in served.group_versions if group == "certificates.k8s.io"]
        assert found[: len(versions)] == versions and ("v1beta1" in found) is bool(gates)
