"""The cluster is watched while somebody looks, and only then; what may not be read is left out and named."""

from __future__ import annotations

import asyncio

import pytest
from engine_objects import Obj, node, pod, pod_group, resource_slice
from fake_api import FakeApi

from haru.client.api import ApiClient
from haru.cluster_view import Watching
from haru.kube.kinds import known_kind
from waiting import until

NODE, POD, EVENT = known_kind("v1", "Node"), known_kind("v1", "Pod"), known_kind("v1", "Event")


async def made(client: ApiClient, *objects: Obj) -> None:
    for obj in objects:
        await client.create(known_kind(obj["apiVersion"], obj["kind"]), obj)


async def test_watches_run_only_while_a_viewer_is_connected() -> None:
    api = FakeApi()
    watching = Watching(ApiClient.in_process(api), linger=0.05)
    assert not watching.running and api.log == []
    async with watching.looking(), watching.looking():
        assert watching.running and watching.sight().snapshot.node_names == ()
        await until(lambda: api.open_watches)
    await until(lambda: not watching.running)
    await until(lambda: not api.open_watches)
    asked = len(api.log)
    await made(ApiClient.in_process(api), node("a"))
    assert len(api.log) == asked + 1
    async with watching.looking():
        assert watching.sight().snapshot.node_names == ("a",)
    await watching.stop()
    assert not watching.running
    assert {method for method, _, _, _ in api.log[:asked]} == {"GET"}


async def test_changes_increment_version_but_heartbeats_do_not() -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    beating = node("a")
    beating["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]
    await made(client, beating)
    watching = Watching(client)
    async with watching.looking():
        version = watching.sight().version
        beating["status"]["conditions"][0]["lastHeartbeatTime"] = "2"
        await client.patch(NODE, "a", {"status": beating["status"]})
        await made(client, pod("p"))
        assert await watching.newer_than(version) == version + 1
        assert "default/p" in watching.sight().snapshot.pods
        version += 1
        beating["status"]["conditions"][0]["status"] = "False"
        await client.patch(NODE, "a", {"status": beating["status"]})
        assert await watching.newer_than(version) == version + 1
        await client.delete(NODE, "a")
        await watching.newer_than(version + 1)
        assert watching.sight().snapshot.node_names == ()
    await watching.stop()


async def test_events_are_watched_and_removed() -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}}
    await client.create(EVENT, {**event, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Told"})
    watching = Watching(client)
    async with watching.looking():
        sight = watching.sight()
        assert [e["reason"] for e in sight.events] == ["Told"]
        await client.delete(EVENT, "e", "default")
        await watching.newer_than(sight.version)
        assert watching.sight().events == () and len(sight.events) == 1
    await watching.stop()


async def test_slices_are_stored_once_and_removed() -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    await made(client, resource_slice("a", 3))
    watching = Watching(client)
    async with watching.looking():
        [pool] = watching.sight().snapshot.devices.pools.values()
        assert len(pool.slices[0].devices) == 3
        await client.delete(known_kind("resource.k8s.io/v1", "ResourceSlice"), "slice-a")
        await watching.newer_than(watching.sight().version)
        assert not watching.sight().snapshot.devices.pools
    await watching.stop()


async def test_succeeded_members_reduce_min_count_consistently() -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    group = pod_group("g", 4)
    group["metadata"]["annotations"] = {"haru.dev/count-succeeded": "true"}
    done = pod("done", group="g", node="a")
    done["status"]["phase"] = "Succeeded"
    await made(client, group, done)
    watching = Watching(client)
    async with watching.looking():
        for name in ("one", "two", "three"):
            seen = watching.sight().snapshot.pod_groups["default/g"]
            assert seen["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3
            version = watching.sight().version
            await made(client, pod(name, group="g"))
            await watching.newer_than(version)
    await watching.stop()


async def test_forbidden_kinds_are_listed_and_unserved_kinds_are_not() -> None:
    api = FakeApi()
    api.fail("GET /apis/batch/v1/jobs", 403, body=b"{}")
    api.fail("GET /apis/scheduling.k8s.io/v1alpha2/podgroups", 404, body=b"{}")
    watching = Watching(ApiClient.in_process(api))
    async with watching.looking():
        assert watching.sight().refused == ("Job",)
    await watching.stop()


async def test_unreachable_api_raises_error_and_next_viewer_retries() -> None:
    api = FakeApi()
    for _ in range(3):  # reads are tried three times
        api.fail("GET /api/v1/nodes", 0)
    watching = Watching(ApiClient.in_process(api))
    with pytest.raises(OSError, match="the server broke down"):
        async with watching.looking():
            raise AssertionError("unreachable")
    await until(lambda: not watching.running)
    async with watching.looking():
        assert watching.running
    await watching.stop()


async def test_waiting_viewer_gets_error_when_stopped() -> None:
    api = FakeApi()
    watching = Watching(ApiClient.in_process(api))

    async def look() -> None:
        async with watching.looking():
            pass

    waiting = asyncio.create_task(look())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await watching.stop()
    with pytest.raises(OSError, match="being stopped"):
        await waiting
