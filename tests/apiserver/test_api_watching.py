"""WATCH: where it starts, what it shows, how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod

from haru.apiserver.registry import watch

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def revision(api: Caller) -> str:
    return str((await api.get(MAPS))["metadata"]["resourceVersion"])


async def test_watch_delivers_events_of_one_object(api: Caller) -> None:
    stream = await api.stream(f"{MAPS}?watch=true&resourceVersion={await revision(api)}")
    assert (stream.status, stream.headers["content-type"]) == (200, "application/json")
    created = await api.create(MAPS, config_map("a"))
    await api("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}, type="application/merge-patch+json")
    await api("DELETE", f"{MAPS}/a")
    first, second, third = [await stream.next() for _ in range(3)]
    assert (first["type"], first["object"]) == ("ADDED", created)
    assert (second["type"], second["object"]["data"]) == ("MODIFIED", {"k": "v"})
    assert (third["type"], third["object"]["data"]) == ("DELETED", {"k": "v"})
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in (first, second, third)]
    assert versions == sorted(set(versions))
    assert versions[-1] == api.app.objects.store.revision
    await stream.close()


@pytest.mark.parametrize("flag", ["watch=true", "watch=1", "watch", "watch=True"])
async def test_watch_without_resource_version_starts_with_existing_objects(api: Caller, flag: str) -> None:
    await api.create(MAPS, config_map("a"))
    for query in (flag, f"{flag}&resourceVersion=0"):
        stream = await api.stream(f"{MAPS}?{query}")
        assert await stream.take(1) == [("ADDED", "a")]
        await api("DELETE", f"{MAPS}/b")
        await api.create(MAPS, config_map("b"))
        assert await stream.take(1) == [("ADDED", "b")]
        await stream.close()


async def test_watch_list_ends_initial_events_with_bookmark(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    stream = await api.stream(f"{MAPS}?{query}")
    assert await stream.take(1) == [("ADDED", "a")]
    bookmark = await stream.next()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["object"]["metadata"]["resourceVersion"] == await revision(api)
    await api.create(MAPS, config_map("b"))
    assert await stream.take(1) == [("ADDED", "b")]
    await stream.close()


@pytest.mark.parametrize(
    "query",
    [
        "watch=true&sendInitialEvents=true",
        "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
        "watch=true&continue=abc",
    ],
)
async def test_invalid_watch_options_are_refused(api: Caller, query: str) -> None:
    assert (await api("GET", f"{MAPS}?{query}")).status == 422


async def test_object_entering_and_leaving_selection_is_added_and_deleted(api: Caller) -> None:
    start = await revision(api)
    stream = await api.stream(f"{MAPS}?watch=1&resourceVersion={start}&labelSelector=a%3Dx")
    steps: list[Any] = [{"a": "y"}, {"a": "x"}, {"a": "x", "b": "1"}, {"a": "y", "b": None}, {"a": "x"}]
    for labels in steps:
        body = {"metadata": {"labels": labels}}
        if labels == {"a": "y"}:
            await api.create(MAPS, config_map("m", labels))
        else:
            await api("PATCH", f"{MAPS}/m", body, type="application/merge-patch+json")
    await api("DELETE", f"{MAPS}/m")
    assert [type_ for type_, _ in await stream.take(5)] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    assert await stream.silent()
    await stream.close()


async def test_deleted_event_of_left_selection_shows_last_selected_state_at_new_resource_version(api: Caller) -> None:
    await api.create(PODS, pod("a", nodeName="n1"))
    stream = await api.stream(f"{PODS}?watch=1&fieldSelector=status.phase%3DPending")
    await stream.take(1)
    body = {"status": {"phase": "Running"}}
    changed = (await api("PATCH", f"{PODS}/a/status", body, type="application/merge-patch+json")).json
    event = await stream.next()
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
    assert event["object"]["status"]["phase"] == "Pending"
    await stream.close()


async def test_watch_of_one_namespace_ignores_others(api: Caller) -> None:
    stream = await api.stream(f"{MAPS}?watch=1")
    everywhere = await api.stream("/api/v1/configmaps?watch=1")
    assert await everywhere.take(1) == [("ADDED", "kube-apiserver-legacy-service-account-token-tracking")]
    await api.create("/api/v1/namespaces/kube-system/configmaps", config_map("other"))
    await api.create(PODS, pod("p"))
    assert await everywhere.take(1) == [("ADDED", "other")]
    assert await stream.silent()
    await stream.close()
    await everywhere.close()


async def test_watch_at_compacted_revision_begins_and_ends_with_an_error_event(api: Caller) -> None:
    start = await revision(api)
    await api.create(MAPS, config_map("a"))
    await api.app.objects.store.compact(api.app.objects.store.revision)
    stream = await api.stream(f"{MAPS}?watch=1&resourceVersion={start}")
    event = await stream.next()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {start} (")
    assert await stream.next() is None
    await stream.close()


async def test_initial_events_of_a_revision_yet_to_come_end_with_an_error_event(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haru.apiserver.registry.list.WAIT_FOR_REVISION", 0.0)
    options = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    stream = await api.stream(f"{MAPS}?watch=1&resourceVersion=99999999&{options}")
    event = await stream.next()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 504)
    assert event["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert await stream.next() is None
    await stream.close()


async def test_lagging_watch_ends_with_410(api: Caller) -> None:
    stream = await api.stream(f"{MAPS}?watch=1&resourceVersion={await revision(api)}")
    store = api.app.objects.store
    # Both happen before the stream gets to run: its cursor is behind the history's start by then.
    await api.create(MAPS, config_map("a"))
    await store.compact(store.revision)
    event = await stream.next()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert await stream.next() is None
    await stream.close()


async def test_timeout_ends_watch_with_bookmark(api: Caller) -> None:
    since = await revision(api)
    stream = await api.stream(f"{MAPS}?watch=1&resourceVersion={since}&timeoutSeconds=1&allowWatchBookmarks=true")
    event = await stream.next(3)
    assert event["type"] == "BOOKMARK"
    assert event["object"]["kind"] == "ConfigMap" and event["object"]["metadata"]["resourceVersion"]
    assert await stream.next() is None
    await stream.close()


async def test_bookmarks_are_sent_periodically(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_SECONDS", 0.02)
    stream = await api.stream(f"{MAPS}?watch=1&allowWatchBookmarks=true")
    await api.create(PODS, pod("elsewhere"))
    await asyncio.sleep(0.05)
    events = [await stream.next() for _ in range(2)]
    assert [e["type"] for e in events] == ["BOOKMARK", "BOOKMARK"]
    assert events[-1]["object"]["metadata"]["resourceVersion"] == str(api.app.objects.store.revision)
    await stream.close()


async def test_stopping_server_ends_all_watches(api: Caller) -> None:
    streams = [await api.stream(f"{MAPS}?watch=1") for _ in range(5)]
    api.app.streams.stop()
    assert [await s.next() for s in streams] == [None] * 5
    late = await api.stream(f"{MAPS}?watch=1")
    assert await late.next() is None
    for stream in [*streams, late]:
        await stream.close()


async def test_closed_watch_is_released(api: Caller) -> None:
    stream = await api.stream(f"{MAPS}?watch=1")
    assert len(api.app.streams.watches) == 1
    await stream.close()
    assert not api.app.streams.watches


async def test_table_watch_sends_column_definitions_once(api: Caller) -> None:
    stream = await api.stream(f"{PODS}?watch=1", accept=TABLE)
    await api.create(PODS, pod("a"))
    await api.create(PODS, pod("b"))
    first, second = await stream.next(), await stream.next()
    assert first["object"]["kind"] == "Table" and first["object"]["columnDefinitions"]
    assert [r["cells"][0] for r in first["object"]["rows"]] == ["a"]
    assert not second["object"]["columnDefinitions"]
    assert [r["cells"][0] for r in second["object"]["rows"]] == ["b"]
    await stream.close()


async def test_watch_in_another_version_delivers_that_version(api: Caller) -> None:
    slices = "/apis/resource.k8s.io/{}/resourceslices"
    stream = await api.stream(slices.format("v1beta1") + "?watch=1")
    device = {"name": "d0", "attributes": {"a": {"int": 1}}}
    spec = {"driver": "d.example", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}
    obj = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}}
    await api.create(slices.format("v1"), {**obj, "spec": {**spec, "devices": [device]}})
    event = await stream.next()
    assert event["object"]["apiVersion"] == "resource.k8s.io/v1beta1"
    assert event["object"]["spec"]["devices"][0]["basic"]["attributes"] == {"a": {"int": 1}}
    await api("DELETE", slices.format("v1") + "/s")
    event = await stream.next()
    assert (event["type"], event["object"]["apiVersion"]) == ("DELETED", "resource.k8s.io/v1beta1")
    await stream.close()
