"""Decoded objects are made once and shared: by the next writer, by watches in the process, by selectors."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing

import orjson
import pytest
from api_caller import ADMIN, MAPS, PODS, Caller, config_map, pod

from haru.apiserver.encoding import objects
from haru.apiserver.encoding.objects import recent
from haru.client.api import ApiClient
from haru.client.transforms import SharedObjects
from haru.kube import kinds
from haru.kube.meta import Obj
from haru.storage import Record

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
POD, MAP = kinds.known_kind("v1", "Pod"), kinds.known_kind("v1", "ConfigMap")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of records that are decoded from now on."""
    keys: list[str] = []
    decode = objects.decode

    def counted(record: Record) -> Obj:
        keys.append(record.key)
        return decode(record)

    monkeypatch.setattr(objects, "decode", counted)
    return keys


async def test_a_watched_pod_that_changes_is_never_decoded(api: Caller, decoded: list[str]) -> None:
    client = ApiClient.in_process(api.app, token=ADMIN)
    opened, seen = asyncio.Event(), []

    async def follow() -> None:
        async with aclosing(client.watch(POD, "default", "1", opened=opened.set, shared=True)) as events:
            async for type_, obj in events:
                seen.append((type_, obj["metadata"]["labels"]["n"]))
                if len(seen) == 6:
                    return

    following = asyncio.create_task(follow())
    await opened.wait()
    await api.create(PODS, pod("a") | {"metadata": {"name": "a", "labels": {"n": "new"}}})
    for number in range(4):
        assert (await api("PATCH", f"{PODS}/a", {"metadata": {"labels": {"n": str(number)}}}, type=MERGE)).status == 200
    status = {"status": {"phase": "Running"}}
    assert (await api("PATCH", f"{PODS}/a/status", status, type=STRATEGIC)).status == 200
    await following
    assert seen == [("ADDED", "new"), *(("MODIFIED", str(number)) for number in (0, 1, 2, 3, 3))]
    assert [key for key in decoded if key.startswith("pods/")] == []


def _changes(rng: random.Random) -> tuple[str, str, object]:
    """A (subresource, type, patch)."""
    label = {"metadata": {"labels": {rng.choice("abc"): rng.choice(["x", "y", None])}}}
    condition = {"type": rng.choice("PQ"), "status": rng.choice(["True", "False"])}
    return rng.choice(
        [
            ("", MERGE, label),
            ("", STRATEGIC, label),
            ("", JSON, [{"op": "add", "path": "/metadata/annotations", "value": {"k": rng.choice("12")}}]),
            ("", STRATEGIC, {"spec": {"containers": [{"name": "main", "image": rng.choice(["i:1", "i:2"])}]}}),
            ("", STRATEGIC, {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
            ("/status", STRATEGIC, {"status": {"conditions": [condition]}}),
            ("/status", MERGE, {"status": {"phase": rng.choice(["Pending", "Running"]), "conditions": None}}),
        ]
    )


@pytest.mark.parametrize("seed", range(6))
async def test_noted_objects_are_what_is_stored(api: Caller, seed: int) -> None:
    """Each version's object stays as its bytes are, whatever is made of it later."""
    rng = random.Random(seed)
    store = api.app.objects.store
    await api.create(PODS, pod("a"))
    records = []
    for _ in range(25):
        subresource, kind, patch = _changes(rng)
        answer = await api("PATCH", f"{PODS}/a{subresource}", patch, type=kind)
        assert answer.status in (200, 422), answer.body
        record = await store.get("pods/default/a")
        assert record is not None
        records.append((record, recent(record)))
    assert len({record.revision for record, _ in records}) > 5
    for record, obj in records:
        assert obj == orjson.loads(record.value)


async def test_watches_in_the_process_share_an_object_that_ordinary_ones_do_not(api: Caller) -> None:
    await api.create(PODS, pod("a"))

    async def first(*, shared: bool) -> Obj:
        client = ApiClient.in_process(api.app, token=ADMIN)
        async with aclosing(client.watch(POD, "default", "0", shared=shared)) as events:
            async for _, obj in events:
                return obj
        raise AssertionError("the watch ended")

    one, other, own = await asyncio.gather(first(shared=True), first(shared=True), first(shared=False))
    assert one is other
    assert own is not one
    assert own == one


async def test_shared_watch_tells_deletions_with_their_revision_and_what_leaves_its_selection(api: Caller) -> None:
    client = ApiClient.in_process(api.app, token=ADMIN)
    seen = []
    await api.create(PODS, pod("a") | {"metadata": {"name": "a", "labels": {"k": "v"}}})
    async with aclosing(client.watch(POD, "default", "0", label_selector="k=v", shared=True)) as events:
        seen.append(await anext(events))
        assert (await anext(events))[0] == "BOOKMARK"  # where the first events end
        await api("PATCH", f"{PODS}/a", {"metadata": {"labels": {"k": "w"}}}, type=MERGE)
        seen.append(await anext(events))
        await api("PATCH", f"{PODS}/a", {"metadata": {"labels": {"k": "v"}}}, type=MERGE)
        seen.append(await anext(events))
        await api("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        seen += [await anext(events), await anext(events)]
    assert [type_ for type_, _ in seen] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    revisions = [int(obj["metadata"]["resourceVersion"]) for _, obj in seen]
    assert revisions == sorted(set(revisions))


async def test_decoded_objects_are_bounded(api: Caller, monkeypatch: pytest.MonkeyPatch, decoded: list[str]) -> None:
    monkeypatch.setattr(objects, "RECENT_BYTES", 20_000)
    for number in range(8):
        await api.create(MAPS, config_map(f"m-{number}", k="x" * 8_000))
    records = (await api.app.objects.store.range("configmaps/default/")).records
    kept = [record.key for record in records if record.note is not None and record.note.recent is not None]
    assert [key.rpartition("/")[2] for key in kept if "/m-" in key] in (["m-6", "m-7"], ["m-7"])


async def test_of_decoded_objects_those_that_were_replaced_go_first(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "RECENT_BYTES", 100_000)
    client = ApiClient.in_process(api.app, token=ADMIN, shared=SharedObjects())
    await api.create(MAPS, config_map("waits", k="x"))
    await api.create(MAPS, config_map("changes", k="0"))
    waits = await api.app.objects.store.get("configmaps/default/waits")
    assert waits is not None
    for number in range(25):
        change = {"data": {"k": f"{number}" + "x" * 20_000}}
        await client.patch(MAP, "changes", change, "default")
    assert waits.note.recent is not None


async def test_client_in_the_process_that_changes_nothing_gets_the_object_that_is_stored(api: Caller) -> None:
    sharing, owning = (ApiClient.in_process(api.app, token=ADMIN, shared=shared) for shared in (SharedObjects(), None))
    written = await sharing.create(POD, pod("a"), "default")
    read = await sharing.get(POD, "a", "default")
    own = await owning.get(POD, "a", "default")
    assert read is written
    assert own is not written
    assert own == written
    record = await api.app.objects.store.get("pods/default/a")
    assert record is not None
    assert written == objects.decode(record)


async def test_pages_of_a_list_are_the_objects_that_are_stored_for_a_client_that_changes_none(api: Caller) -> None:
    sharing, owning = (ApiClient.in_process(api.app, token=ADMIN, shared=shared) for shared in (SharedObjects(), None))
    written = [await sharing.create(POD, pod(name), "default") for name in ("a", "b", "c")]

    async def pages(client: ApiClient) -> tuple[list[Obj], Obj]:
        items: list[Obj] = []
        listed: Obj = {}
        async for listed, _ in client.pages(POD, "default", limit=2, shared=True):
            items += listed["items"]
        return items, listed

    (shared, last), (own, same) = await pages(sharing), await pages(owning)
    assert [one is other for one, other in zip(shared, written, strict=True)] == [True] * 3
    assert own == [{key: value for key, value in obj.items() if key not in ("apiVersion", "kind")} for obj in written]
    assert {**last, "items": []} == {**same, "items": []}
    listed = await sharing.list(POD, "default")
    assert listed["items"] == own
