"""Objects that were stored under another schema are shown as today's would have them."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from api_caller import Caller, make_config
from custom_objects import DEFINITIONS, NAME, TRAININGS, define, definition, training, with_schema

from haru.apiserver.apiextensions import reader
from haru.apiserver.apiextensions.reader import Reader, reader_of
from haru.apiserver.server import ApiServer
from haru.storage import Put

Obj = dict[str, Any]

MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
BETA = TRAININGS.replace("/v1/", "/v1beta1/")
TEXT: Obj = {"type": "string"}
QUEUE: Obj = {"type": "string", "default": "night"}
COLUMNS = [{"name": "Queue", "type": "string", "jsonPath": ".spec.queue"}]


def schema(**members: Obj) -> Obj:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": members}}}


def plain(**members: Obj) -> Obj:
    """A definition whose objects have these members in `spec`, with a scale, a column and a field to select by."""
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return with_schema(
        schema(replicas={"type": "integer"}, **members),
        subresources={"scale": scale},
        additionalPrinterColumns=COLUMNS,
        selectableFields=[{"jsonPath": ".spec.queue"}] if "queue" in members else [],
    )


async def change_to(api: Caller, obj: Obj) -> None:
    answer = await api("PATCH", f"{DEFINITIONS}/{NAME}", {"spec": {"versions": obj["spec"]["versions"]}}, type=MERGE)
    assert answer.status == 200, answer.json


async def stored(api: Caller, name: str = "t") -> Obj:
    """The `spec` that lies in the store."""
    record = await api.app.objects.store.get(f"trainings.ml.example.com/default/{name}")
    assert record is not None
    found: Obj = orjson.loads(record.value)["spec"]
    return found


async def with_an_older_object(api: Caller, **members: Obj) -> None:
    """An object `t`, and a schema that has had these members since."""
    await define(api, plain(model=TEXT))
    await api.create(TRAININGS, training())
    await change_to(api, plain(model=TEXT, **members))


async def test_new_default_appears_in_stored_objects_on_read(api: Caller) -> None:
    await with_an_older_object(api, queue=QUEUE)
    whole = {"model": "llm", "queue": "night"}
    assert (await api.get(f"{TRAININGS}/t"))["spec"] == whole
    assert [item["spec"] for item in (await api.get(TRAININGS))["items"]] == [whole]
    assert [item["spec"] for item in (await api.get(f"{TRAININGS}?limit=1"))["items"]] == [whole]
    table = (await api("GET", TRAININGS, accept=TABLE)).json
    assert table["rows"][0]["cells"] == ["t", "night"]
    for queue, count in (("night", 1), ("day", 0)):
        assert len((await api.get(f"{TRAININGS}?fieldSelector=spec.queue={queue}"))["items"]) == count
    assert (await stored(api)) == {"model": "llm"}


async def test_watch_events_have_new_default(api: Caller) -> None:
    await with_an_older_object(api, queue=QUEUE)
    watch = await api.stream(f"{TRAININGS}?watch=1")
    chosen = await api.stream(f"{TRAININGS}?watch=1&fieldSelector=spec.queue=night")
    tables = await api.stream(f"{TRAININGS}?watch=1", accept=TABLE)
    for stream in (watch, chosen):
        added = await stream.next()
        assert (added["type"], added["object"]["spec"]["queue"]) == ("ADDED", "night")
    assert (await tables.next())["object"]["rows"][0]["cells"] == ["t", "night"]
    await api("PATCH", f"{TRAININGS}/t", {"spec": {"queue": "day"}}, type=MERGE)
    assert (await watch.next())["object"]["spec"]["queue"] == "day"
    assert (await chosen.next())["type"] == "DELETED"
    await api("DELETE", f"{TRAININGS}/t")
    assert (await watch.next())["object"]["spec"]["queue"] == "day"
    for stream in (watch, chosen, tables):
        await stream.close()


async def test_historical_events_have_new_default(api: Caller) -> None:
    await with_an_older_object(api)
    before = (await api.get(TRAININGS))["metadata"]["resourceVersion"]
    await api("PATCH", f"{TRAININGS}/t", {"spec": {"model": "other"}}, type=MERGE)
    await change_to(api, plain(model=TEXT, queue=QUEUE))
    exact = f"{TRAININGS}?resourceVersion={before}&resourceVersionMatch=Exact"
    assert (await api.get(exact))["items"][0]["spec"] == {"model": "llm", "queue": "night"}
    watch = await api.stream(f"{TRAININGS}?watch=1&resourceVersion={before}")
    assert (await watch.next())["object"]["spec"] == {"model": "other", "queue": "night"}
    await watch.close()


async def test_patch_writes_new_default(api: Caller) -> None:
    await with_an_older_object(api, queue=QUEUE, steps={"type": "integer", "default": 3})
    test = {"op": "test", "path": "/spec/queue", "value": "night"}
    patch = [test, {"op": "replace", "path": "/spec/steps", "value": 4}]
    answer = await api("PATCH", f"{TRAININGS}/t", patch, type="application/json-patch+json")
    assert answer.json["spec"] == {"model": "llm", "queue": "night", "steps": 4}
    assert await stored(api) == answer.json["spec"]


async def test_update_without_change_stores_new_default(api: Caller) -> None:
    """As with encryption and versions: this is how stored objects are brought up to date."""
    await with_an_older_object(api, queue=QUEUE)
    read = await api.get(f"{TRAININGS}/t")
    answer = await api("PUT", f"{TRAININGS}/t", read)
    assert (answer.status, answer.json["spec"]) == (200, read["spec"])
    assert int(answer.json["metadata"]["resourceVersion"]) > int(read["metadata"]["resourceVersion"])
    assert answer.json["metadata"]["generation"] == read["metadata"]["generation"]
    assert (await stored(api))["queue"] == "night"
    again = await api("PUT", f"{TRAININGS}/t", answer.json)
    assert again.json["metadata"]["resourceVersion"] == answer.json["metadata"]["resourceVersion"]


async def test_validation_rules_see_defaulted_object(api: Caller) -> None:
    await define(api, plain(model=TEXT))
    await api.create(TRAININGS, training())
    ruled = plain(model=TEXT, queue=QUEUE)
    spec = ruled["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [{"rule": "self.queue == oldSelf.queue", "message": "the queue stays"}]
    await change_to(api, ruled)
    moved = await api("PATCH", f"{TRAININGS}/t", {"spec": {"queue": "day"}}, type=MERGE)
    assert "the queue stays" in moved.json["message"]
    assert (await api("PATCH", f"{TRAININGS}/t", {"spec": {"model": "other"}}, type=MERGE)).status == 200


async def test_subresources_and_deletion_see_defaulted_object(api: Caller) -> None:
    await define(api, plain(model=TEXT))
    held = training()
    held["metadata"]["finalizers"] = ["example.com/wait"]
    await api.create(TRAININGS, held)
    changed = plain(model=TEXT, queue=QUEUE)
    properties = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["replicas"]["default"] = 5
    await change_to(api, changed)
    assert (await api.get(f"{TRAININGS}/t/scale"))["spec"] == {"replicas": 5}
    gone = await api("DELETE", f"{TRAININGS}/t")
    assert gone.json["spec"] == {"model": "llm", "queue": "night", "replicas": 5}
    # What is marked was written: nothing is missing in it.
    assert await stored(api) == gone.json["spec"]


async def test_field_removed_from_schema_is_pruned_on_read(api: Caller) -> None:
    await define(api, plain(model=TEXT, queue=QUEUE))
    await api.create(TRAININGS, training(queue="day"))
    await change_to(api, plain(model=TEXT))
    assert (await api.get(f"{TRAININGS}/t"))["spec"] == {"model": "llm"}
    await change_to(api, plain(model=TEXT, queue=QUEUE))
    assert (await api.get(f"{TRAININGS}/t"))["spec"] == {"model": "llm", "queue": "day"}


async def test_second_server_on_store_reads_defaults(api: Caller) -> None:
    await with_an_older_object(api, queue=QUEUE)
    app = ApiServer(make_config(api.app.objects.store, api.clock))  # type: ignore[arg-type] - the fixture's is one of SQLite
    await app.start()
    other = Caller(app, api.clock)
    assert (await other.get(f"{TRAININGS}/t"))["spec"] == {"model": "llm", "queue": "night"}
    await app.stop()


def two_versions(**changes: Obj) -> Obj:
    """`v1beta1` as it was, and `v1`, which is stored and has more."""
    shared: Obj = {"served": True, "subresources": {}}
    older = {"name": "v1beta1", "storage": False, "schema": {"openAPIV3Schema": schema(model=TEXT, old=TEXT)}, **shared}
    newer = {"name": "v1", "storage": True, "schema": {"openAPIV3Schema": schema(model=TEXT, **changes)}, **shared}
    return definition(older, newer)


async def test_defaults_of_the_stored_version_apply(api: Caller) -> None:
    await define(api, two_versions(queue=QUEUE))
    made = await api.create(BETA, {**training(old="x"), "apiVersion": "ml.example.com/v1beta1"})
    assert made["spec"] == {"model": "llm"}  # what the stored version does not know is lost, as in 1.36
    assert (await api.get(f"{TRAININGS}/t"))["spec"] == {"model": "llm", "queue": "night"}
    assert (await api.get(f"{BETA}/t"))["spec"] == {"model": "llm"}
    assert [item["spec"] for item in (await api.get(BETA))["items"]] == [{"model": "llm"}]
    await change_to(api, two_versions(queue=QUEUE, steps={"type": "integer", "default": 3}))
    assert (await api.get(f"{TRAININGS}/t"))["spec"] == {"model": "llm", "queue": "night", "steps": 3}
    assert (await api.get(f"{BETA}/t"))["spec"] == {"model": "llm"}


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects whose schema was asked what they lack."""
    found: list[str] = []
    completed = Reader.completed

    def counting(self: Reader, obj: Obj) -> Obj:
        found.append(obj["metadata"]["name"])
        return completed(self, obj)

    monkeypatch.setattr(Reader, "completed", counting)
    return found


async def read_all(api: Caller) -> None:
    await api.get(TRAININGS)
    await api.get(f"{TRAININGS}/a")
    await api.get(f"{TRAININGS}?fieldSelector=metadata.name=a")
    await api("PATCH", f"{TRAININGS}/a", {"metadata": {"labels": {"x": "y"}}}, type=MERGE)


async def test_unchanged_definition_needs_no_reread(api: Caller, looked_at: Sequence[str]) -> None:
    await define(api, plain(model=TEXT, queue=QUEUE))
    await api.create(TRAININGS, training("a"))
    await read_all(api)
    resource = api.app.objects.served.preferred("ml.example.com", "trainings")
    page = await api.app.objects.store.range(resource.prefix(""))
    assert await reader.in_version(page.records, resource) is page.records
    assert looked_at == []


async def test_complete_objects_are_examined_once(api: Caller, looked_at: list[str]) -> None:
    await define(api, plain(model=TEXT))
    await api.create(TRAININGS, training("a"))
    await api.create(TRAININGS, training("b", model="other"))
    await change_to(api, plain(model=TEXT, other=TEXT))
    await api.get(TRAININGS)
    assert sorted(looked_at) == ["a", "b"]
    await api.get(TRAININGS)
    await api.get(f"{TRAININGS}/a")
    assert len(looked_at) == 2


async def test_object_with_missing_default_is_converted_once(api: Caller, looked_at: list[str]) -> None:
    await with_an_older_object(api, queue=QUEUE)
    for _ in range(3):
        await api.get(TRAININGS)
        await api.get(f"{TRAININGS}/t")
    assert looked_at == ["t"]


async def test_objects_written_after_the_change_are_not_examined(
    api: Caller, monkeypatch: pytest.MonkeyPatch, looked_at: list[str]
) -> None:
    monkeypatch.setattr(reader, "SETTLING_SECONDS", 0.0)
    await with_an_older_object(api, queue=QUEUE)
    assert (await api.get(f"{TRAININGS}/t"))["spec"]["queue"] == "night"
    looked_at.clear()
    await api.create(TRAININGS, training("a"))
    await read_all(api)
    assert "a" not in looked_at


async def test_late_write_under_old_schema_gets_new_default(api: Caller) -> None:
    """A request that began under the old schema writes late: it does not count as new until no such one can be left."""
    await with_an_older_object(api, queue=QUEUE)
    await api.get(TRAININGS)
    store = api.app.objects.store
    record = await store.get("trainings.ml.example.com/default/t")
    assert record is not None
    late = record.value.replace(b'"name":"t"', b'"name":"late"')
    await store.transact(Put("trainings.ml.example.com/default/late", late, 0))
    assert (await api.get(f"{TRAININGS}/late"))["spec"] == {"model": "llm", "queue": "night"}


async def test_other_definition_changes_keep_examined_objects(api: Caller, looked_at: list[str]) -> None:
    await define(api, plain(model=TEXT))
    await api.create(TRAININGS, training("a"))
    names = {"names": {"shortNames": ["trn"]}}
    assert (await api("PATCH", f"{DEFINITIONS}/{NAME}", {"spec": names}, type=MERGE)).status == 200
    await read_all(api)
    assert looked_at == []
    resource = api.app.objects.served.preferred("ml.example.com", "trainings")
    assert reader_of(resource.kind) is reader_of(resource.stored)


async def test_readers_of_old_schemas_are_freed(api: Caller) -> None:
    """Found by random requests: a cache of kinds kept readers, and what they keep, with the whole store."""
    await with_an_older_object(api, queue=QUEUE)
    for number in range(5):
        await change_to(api, plain(model=TEXT, queue={**QUEUE, "default": f"night-{number}"}))
        assert (await api.get(f"{TRAININGS}/t"))["spec"]["queue"] == f"night-{number}"
        await api.get(TRAININGS)
        await api("POST", f"{TRAININGS}?dryRun=All", training("other"))
    gc.collect()
    assert sum(isinstance(obj, Reader) for obj in gc.get_objects()) == 1
