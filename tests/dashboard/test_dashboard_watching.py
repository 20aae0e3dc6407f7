"""The cluster is watched while somebody looks, and only then; what may not be read is left out and named."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

import foreign_objects as made_of
import orjson
import pytest
from dashboard_pages import browser_of
from engine_objects import Obj, node, pod, pod_group, resource_slice
from fake_api import FakeApi
from foreign_definitions import definition

from haru.client.api import ApiClient
from haru.cluster_view import ChangeCounter, ClusterWatch, WatchedObjects, without_unread_fields
from haru.gangs import KINDS
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from virtual_server import started_server
from virtual_time import run
from waiting import until

NODE, POD, EVENT = known_kind("v1", "Node"), known_kind("v1", "Pod"), known_kind("v1", "Event")


async def made(client: ApiClient, *objects: Obj) -> None:
    for obj in objects:
        await client.create(known_kind(obj["apiVersion"], obj["kind"]), obj)


async def test_watches_run_only_while_a_viewer_is_connected() -> None:
    api = FakeApi()
    watch = ClusterWatch(ApiClient.in_process(api), linger=0.05)
    assert not watch.running and api.log == []
    async with watch.viewing(), watch.viewing():
        assert watch.running and watch.view().snapshot.node_names == ()
        await until(lambda: api.open_watches)
    await until(lambda: not watch.running)
    await until(lambda: not api.open_watches)
    asked = len(api.log)
    await made(ApiClient.in_process(api), node("a"))
    assert len(api.log) == asked + 1
    async with watch.viewing():
        assert watch.view().snapshot.node_names == ("a",)
    await watch.stop()
    assert not watch.running
    assert {method for method, _, _, _ in api.log[:asked]} == {"GET"}


async def test_dashboard_keeps_nothing_of_the_cluster_when_nobody_looks() -> None:
    client = ApiClient.in_process(FakeApi())
    await made(client, node("a"), resource_slice("a", 2), pod("p"))
    watch = ClusterWatch(client, linger=0.05)
    async with browser_of(watch) as browser:
        async with watch.viewing():
            for path in ("/", "/map", "/queue", "/timeline", "/workload/default/pod/p", "/node/a"):
                assert (await browser.get(path)).status_code == 200
            seen = ref(watch.view().snapshot)
        await until(lambda: not watch.running)
        await until(lambda: gc.collect() >= 0 and seen() is None)


async def test_changes_increment_version_but_heartbeats_do_not() -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    beating = node("a")
    beating["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]
    await made(client, beating)
    watch = ClusterWatch(client)
    async with watch.viewing():
        version = watch.view().version
        beating["status"]["conditions"][0]["lastHeartbeatTime"] = "2"
        await client.patch(NODE, "a", {"status": beating["status"]})
        await made(client, pod("p"))
        assert await watch.changes.newer_than(version) == version + 1
        assert "default/p" in watch.view().snapshot.pods
        version += 1
        beating["status"]["conditions"][0]["status"] = "False"
        await client.patch(NODE, "a", {"status": beating["status"]})
        assert await watch.changes.newer_than(version) == version + 1
        await client.delete(NODE, "a")
        await watch.changes.newer_than(version + 1)
        assert watch.view().snapshot.node_names == ()
    await watch.stop()


async def test_new_holder_of_a_lease_is_a_change_but_its_renewal_is_not() -> None:
    client = ApiClient.in_process(FakeApi())
    kind = ("coordination.k8s.io/v1", "Lease")
    metadata = {"name": "scheduler", "namespace": "kube-system"}
    lease = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, "spec": {"holderIdentity": "a"}}
    await made(client, lease)
    watch = ClusterWatch(client, kinds=(kind,))
    async with watch.viewing():
        version = watch.view().version
        await client.patch(known_kind(*kind), "scheduler", {"spec": {"renewTime": "now"}}, "kube-system")
        await client.patch(known_kind(*kind), "scheduler", {"spec": {"holderIdentity": "b"}}, "kube-system")
        assert await watch.changes.newer_than(version) == version + 1
        [seen] = watch.view().snapshot.objects("Lease").values()
        assert seen["spec"]["holderIdentity"] == "b"
    await watch.stop()


async def test_events_are_watched_and_removed() -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}}
    await client.create(EVENT, {**event, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Told"})
    watch = ClusterWatch(client)
    async with watch.viewing():
        view = watch.view()
        assert [e["reason"] for e in view.events] == ["Told"]
        await client.delete(EVENT, "e", "default")
        await watch.changes.newer_than(view.version)
        assert watch.view().events == () and len(view.events) == 1
    await watch.stop()


def test_of_events_is_kept_what_a_page_or_an_explanation_reads() -> None:
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p", "uid": "uid-p", "fieldPath": "x"}
    metadata = {"name": "p.1", "namespace": "default", "uid": "e", "resourceVersion": "7", "creationTimestamp": "t"}
    told = {"reason": "Scheduled", "message": "words", "type": "Normal", "eventTime": "t", "reportingComponent": "s"}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {**metadata, "labels": {}}, "involvedObject": about}
    unread = {"source": {"component": "s"}, "reportingInstance": "s-1", "action": "Binding", "firstTimestamp": None}
    kept = without_unread_fields({**event, **told, **unread})
    del about["apiVersion"], about["fieldPath"]
    assert kept == {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, **told}
    assert without_unread_fields(kept) == kept
    older = without_unread_fields({**event, "source": {"component": "s", "host": "a"}, "count": 3})
    assert older["source"] == {"component": "s", "host": "a"} and older["count"] == 3
    first, second = (without_unread_fields(orjson.loads(orjson.dumps(event))) for _ in range(2))
    assert first["involvedObject"]["uid"] is second["involvedObject"]["uid"]


async def test_slices_are_stored_once_and_removed() -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    await made(client, resource_slice("a", 3))
    watch = ClusterWatch(client)
    async with watch.viewing():
        [pool] = watch.view().snapshot.devices.pools.values()
        assert len(pool.slices[0].devices) == 3
        await client.delete(known_kind("resource.k8s.io/v1", "ResourceSlice"), "slice-a")
        await watch.changes.newer_than(watch.view().version)
        assert not watch.view().snapshot.devices.pools
    await watch.stop()


async def test_succeeded_members_reduce_min_count_consistently() -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    group = pod_group("g", 4)
    group["metadata"]["annotations"] = {"haru.dev/count-succeeded": "true"}
    done = pod("done", group="g", node="a")
    done["status"]["phase"] = "Succeeded"
    await made(client, group, done)
    watch = ClusterWatch(client)
    async with watch.viewing():
        for name in ("one", "two", "three"):
            seen = watch.view().snapshot.pod_groups["default/g"]
            assert seen["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3
            version = watch.view().version
            await made(client, pod(name, group="g"))
            await watch.changes.newer_than(version)
    await watch.stop()


async def test_forbidden_kinds_are_listed_and_unserved_kinds_are_not() -> None:
    api = FakeApi()
    api.fail("GET /apis/batch/v1/jobs", 403, body=b"{}")
    api.fail("GET /apis/scheduling.k8s.io/v1alpha2/podgroups", 404, body=b"{}")
    watch = ClusterWatch(ApiClient.in_process(api))
    async with watch.viewing():
        assert watch.view().refused == ("Job",)
    await watch.stop()


async def test_unreachable_api_raises_error_and_next_viewer_retries() -> None:
    api = FakeApi()
    for _ in range(3):  # reads are tried three times
        api.fail("GET /api/v1/nodes", 0)
    watch = ClusterWatch(ApiClient.in_process(api))
    with pytest.raises(OSError, match="the server broke down"):
        async with watch.viewing():
            raise AssertionError("unreachable")
    await until(lambda: not watch.running)
    async with watch.viewing():
        assert watch.running
    await watch.stop()


@pytest.mark.parametrize("turns", range(12))
async def test_viewer_who_comes_while_the_watches_end_sees_the_cluster(turns: int) -> None:
    client = ApiClient.in_process(FakeApi())
    await made(client, node("a"))
    watch = ClusterWatch(client, linger=0.0)
    async with watch.viewing():
        pass
    for _ in range(turns):
        await asyncio.sleep(0)
    async with watch.viewing():
        for _ in range(20):  # the first watches have ended by then
            await asyncio.sleep(0)
        view = watch.view()
        assert view.snapshot.node_names == ("a",)
        await made(client, node("b"))
        await asyncio.wait_for(watch.changes.newer_than(view.version), 10)
        assert watch.view().snapshot.node_names == ("a", "b")
    await watch.stop()


async def test_waiting_viewer_gets_error_when_stopped() -> None:
    api = FakeApi()
    watch = ClusterWatch(ApiClient.in_process(api))

    async def look() -> None:
        async with watch.viewing():
            pass

    waiting = asyncio.create_task(look())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await watch.stop()
    with pytest.raises(OSError, match="being stopped"):
        await waiting


def test_kinds_of_other_projects_are_watched_once_they_are_served() -> None:
    async def work() -> None:
        server = await started_server(FeatureGates.accelerator_defaults())
        client = ApiClient.in_process(server, "admin")
        watch = ClusterWatch(client)
        job_set = next(kind for kind in KINDS if kind.kind == "JobSet")
        async with watch.viewing():
            await client.create(known_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition"), definition(job_set))
            seen = [watch.view()]
            written = made_of.job_set("t", made_of.replicated_job("workers", 1, 2))
            written["metadata"].pop("uid", None)
            for obj in (node("a"), pod("plain")):
                await client.create(known_kind(obj["apiVersion"], obj["kind"]), obj)
            await asyncio.sleep(5)
            await client.create(job_set.as_kind("v1alpha2"), written, "default")
            member = made_of.job_set_pod("p0", "t", "workers")
            member["metadata"].pop("uid", None)
            member["spec"] |= pod("p0")["spec"]
            await client.create(POD, member, "default")
            await asyncio.sleep(5)
            seen.append(watch.view())
        assert not seen[0].snapshot.pods and {"default/plain", "default/p0"} <= set(seen[1].snapshot.pods)
        assert seen[1].snapshot.node_names == ("a",)
        assert seen[1].snapshot.pods["default/p0"].group is not None
        await watch.stop()
        await server.stop()

    run(work())


def test_pod_that_changes_often_is_decoded_once_for_each_look() -> None:
    objects = WatchedObjects(ChangeCounter())
    informer = objects.informer(ApiClient.in_process(FakeApi()), POD)
    informer._synced.set()
    decoded = []
    taken = objects._cache.apply
    objects._cache.apply = lambda obj: (decoded.append(obj), taken(obj))[1]  # type: ignore[method-assign, func-returns-value]

    def write(revision: int, **spec: object) -> None:
        written = pod("p")
        written["metadata"]["resourceVersion"] = str(revision)
        informer.observe({**written, "spec": {**written["spec"], **spec}})

    for revision in range(1, 4):
        write(revision)
    write(4, nodeName="a")
    assert objects.view().snapshot.pods["default/p"].node == "a"
    assert len(decoded) == 1
    write(5, nodeName="a")
    informer.observe_deleted(informer.store["default/p"])
    assert "default/p" not in objects.view().snapshot.pods
