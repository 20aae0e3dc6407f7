"""Custom resources whose versions a webhook converts: reads, writes and watches of every version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from api_caller import Caller
from custom_objects import DEFINITIONS, NAME, definition, training
from webhook_server import MUTATING, WebhookServer, configuration, hook, patch, rule

Obj = dict[str, Any]

GROUP = "ml.example.com"
OLD = f"/apis/{GROUP}/v1/namespaces/default/trainings"
NEW = f"/apis/{GROUP}/v2/namespaces/default/trainings"
MERGE = "application/merge-patch+json"


def schema(count: str) -> Obj:
    spec = {"type": "object", "properties": {"model": {"type": "string"}, count: {"type": "integer"}}}
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}


def described(client: Obj, **changes: Any) -> Obj:
    """A definition whose v1 counts `replicas` and whose v2 counts `size`; v1 is stored."""
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": schema("replicas"), "subresources": {"status": {}}},
        {
            "name": "v2",
            "served": True,
            "storage": False,
            "schema": schema("size"),
            "subresources": {"status": {}, "scale": scale},
        },
    ]
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"], **changes}
    return definition(*versions, conversion={"strategy": "Webhook", "webhook": webhook})


def convert(request: Obj) -> Obj:
    """The webhook: renames the count, and leaves a note in an annotation."""
    found = []
    for obj in request["objects"]:
        spec = dict(obj.get("spec") or {})
        old, new = ("replicas", "size") if request["desiredAPIVersion"].endswith("v2") else ("size", "replicas")
        if old in spec:
            spec[new] = spec.pop(old)
        annotations = {**(obj["metadata"].get("annotations") or {}), "came-from": obj["apiVersion"]}
        metadata = {**obj["metadata"], "annotations": annotations, "finalizers": ["ignored.example.com/x"]}
        found.append(
            {**obj, "apiVersion": request["desiredAPIVersion"], "spec": {**spec, "extra": 1}, "metadata": metadata}
        )
    return {"result": {"status": "Success"}, "convertedObjects": found}


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    server = WebhookServer(tmp_path)
    server.answers["/c"] = convert
    await server.start()
    yield server
    await server.stop()


def newer(name: str, **spec: Any) -> Obj:
    return {**training(name, **spec), "apiVersion": f"{GROUP}/v2"}


async def test_every_version_is_readable_and_writable(api: Caller, hooks: WebhookServer) -> None:
    await api.create(DEFINITIONS, described(hooks.client("/c")))
    made = await api.create(NEW, newer("a", size=3))
    assert (made["apiVersion"], made["spec"]) == (f"{GROUP}/v2", {"model": "llm", "size": 3})
    asked = hooks.asked["/c"][0]
    assert (asked["apiVersion"], asked["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert asked["request"]["desiredAPIVersion"] == f"{GROUP}/v1"
    old = await api.get(f"{OLD}/a")
    assert (old["apiVersion"], old["spec"]) == (f"{GROUP}/v1", {"model": "llm", "replicas": 3})
    assert old["metadata"]["annotations"]["came-from"] == f"{GROUP}/v2"
    assert "finalizers" not in old["metadata"]
    changed = await api("PATCH", f"{NEW}/a", {"spec": {"size": 5}}, type=MERGE)
    assert (changed.status, changed.json["spec"]) == (200, {"model": "llm", "size": 5})
    assert (await api.get(f"{OLD}/a"))["spec"]["replicas"] == 5
    scaled = await api("PATCH", f"{NEW}/a/scale", {"spec": {"replicas": 7}}, type=MERGE)
    assert (scaled.status, scaled.json["spec"]) == (200, {"replicas": 7})
    status = await api("PATCH", f"{NEW}/a/status", {"status": {"phase": "On"}}, type=MERGE)
    assert (status.status, status.json["status"], status.json["spec"]["size"]) == (200, {"phase": "On"}, 7)
    assert (await api.get(f"{NEW}/a/scale"))["spec"]["replicas"] == 7
    applied = await api("PATCH", f"{NEW}/b?fieldManager=me", newer("b", size=1), type="application/apply-patch+yaml")
    assert (applied.status, applied.json["spec"]["size"]) == (201, 1)
    gone = await api("DELETE", f"{NEW}/b")
    assert gone.status == 200


async def test_list_is_converted_in_one_webhook_call_and_cached(api: Caller, hooks: WebhookServer) -> None:
    await api.create(DEFINITIONS, described(hooks.client("/c")))
    for name in ("a", "b", "c"):
        await api.create(OLD, training(name, replicas=2))
    assert "/c" not in hooks.asked
    for _ in range(2):
        listed = (await api.get(NEW))["items"]
        assert [(item["metadata"]["name"], item["spec"]["size"]) for item in listed] == [("a", 2), ("b", 2), ("c", 2)]
        assert listed[0]["metadata"]["resourceVersion"] == (await api.get(f"{OLD}/a"))["metadata"]["resourceVersion"]
    assert len(hooks.asked["/c"]) == 1
    table = await api("GET", NEW, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert [row["cells"][0] for row in table.json["rows"]] == ["a", "b", "c"]
    assert len(hooks.asked["/c"]) == 1
    assert (await api("DELETE", NEW)).status == 200
    assert (await api.get(OLD))["items"] == []


async def test_each_version_is_selected_by_its_own_fields(api: Caller, hooks: WebhookServer) -> None:
    made = described(hooks.client("/c"))
    for version, path in zip(made["spec"]["versions"], (".spec.replicas", ".spec.size"), strict=True):
        version["selectableFields"] = [{"jsonPath": path}]
    await api.create(DEFINITIONS, made)
    for name, size in (("a", 2), ("b", 3), ("c", 2)):
        await api.create(OLD, training(name, replicas=size))
    for url, field in ((OLD, "spec.replicas"), (NEW, "spec.size")):
        listed = await api.get(f"{url}?fieldSelector={field}%3D2")
        assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "c"]
    refused = await api("GET", f"{NEW}?fieldSelector=spec.replicas%3D2")
    assert (refused.status, refused.json["message"]) == (400, "field label not supported: spec.replicas")
    stream = await api.stream(f"{NEW}?watch=1&resourceVersion=0&fieldSelector=spec.size%3D3")
    await api("PATCH", f"{OLD}/a", {"spec": {"replicas": 3}}, type=MERGE)
    await api("PATCH", f"{OLD}/b", {"spec": {"replicas": 4}}, type=MERGE)
    events = [await stream.next(30) for _ in range(3)]
    assert [(each["type"], each["object"]["metadata"]["name"], each["object"]["spec"]["size"]) for each in events] == [
        ("ADDED", "b", 3),
        ("ADDED", "a", 3),
        ("DELETED", "b", 3),
    ]
    assert (await api("DELETE", f"{NEW}?fieldSelector=spec.size%3D3")).status == 200
    assert [item["metadata"]["name"] for item in (await api.get(OLD))["items"]] == ["b", "c"]


async def test_watch_delivers_objects_in_its_version(api: Caller, hooks: WebhookServer) -> None:
    await api.create(DEFINITIONS, described(hooks.client("/c")))
    await api.create(OLD, training("a", replicas=2))
    stream = await api.stream(f"{NEW}?watch=1&resourceVersion=0")
    first = await stream.next(30)
    assert (first["type"], first["object"]["spec"]["size"]) == ("ADDED", 2)
    await api("PATCH", f"{OLD}/a", {"spec": {"replicas": 3}}, type=MERGE)
    second = await stream.next(30)
    assert (second["type"], second["object"]["apiVersion"]) == ("MODIFIED", f"{GROUP}/v2")
    assert second["object"]["spec"]["size"] == 3
    deleted = await api("DELETE", f"{OLD}/a")
    assert deleted.status == 200
    third = await stream.next(30)
    assert (third["type"], third["object"]["spec"]["size"]) == ("DELETED", 3)
    hooks.answers["/c"] = lambda request: {"result": {"status": "Failure", "message": "broken"}}
    await api.create(OLD, training("b", replicas=1))
    failed = await stream.next(30)
    assert failed["type"] == "ERROR"
    assert failed["object"]["message"] == f"conversion webhook for {GROUP}/v1, Kind=Training failed: broken"
    assert await stream.next(30) is None
    await stream.close()


async def test_changed_storage_version_keeps_old_objects_readable(api: Caller, hooks: WebhookServer) -> None:
    await api.create(DEFINITIONS, described(hooks.client("/c")))
    await api.create(OLD, training("a", replicas=2))
    live = await api.get(f"{DEFINITIONS}/{NAME}")
    for version in live["spec"]["versions"]:
        version["storage"] = not version["storage"]
    assert (await api("PUT", f"{DEFINITIONS}/{NAME}", live)).status == 200
    await api.create(OLD, training("b", replicas=4))
    assert [item["spec"]["size"] for item in (await api.get(NEW))["items"]] == [2, 4]
    assert [item["spec"]["replicas"] for item in (await api.get(OLD))["items"]] == [2, 4]
    await api("PATCH", f"{OLD}/a", {"spec": {"replicas": 3}}, type=MERGE)
    assert (await api.get(f"{NEW}/a"))["spec"]["size"] == 3


def answering(**changes: Any) -> Any:
    """A webhook that answers well but for something in each object."""

    def answer(request: Obj) -> Obj:
        response = convert(request)
        return {**response, "convertedObjects": [{**obj, **changes} for obj in response["convertedObjects"]]}

    return answer


WRONG: list[tuple[Any, str]] = [
    (lambda request: {"result": {"status": "Failed"}}, " failed: response.result.status was 'Failed', not 'Success'"),
    (lambda request: {**convert(request), "convertedObjects": []}, " returned 0 objects, expected 1"),
    (lambda request: {**convert(request), "uid": "x"}, ' failed: expected response.uid="'),
    (answering(apiVersion=f"{GROUP}/v9"), f"index 0: invalid groupVersion (expected {GROUP}/v2, received {GROUP}/v9)"),
    (answering(kind="Other"), "index 0: invalid kind (expected Training, received Other)"),
    (answering(metadata={"name": "x"}), "returned invalid object: must have the same name: a != x"),
    (answering(metadata=None), "returned invalid object: must have the same name: a != "),
]


@pytest.mark.parametrize(("answer", "message"), WRONG)
async def test_invalid_conversion_response_is_refused(
    api: Caller, hooks: WebhookServer, answer: Any, message: str
) -> None:
    await api.create(DEFINITIONS, described(hooks.client("/c")))
    await api.create(OLD, training("a", replicas=2))
    hooks.answers["/c"] = answer
    got = await api("GET", f"{NEW}/a")
    assert got.status == 500
    assert got.json["message"].startswith(f"conversion webhook for {GROUP}/v1, Kind=Training")
    assert message in got.json["message"]
    hooks.answers["/c"] = convert
    assert (await api.get(f"{NEW}/a"))["spec"]["size"] == 2
    assert (await api("GET", f"{OLD}/a")).status == 200


async def test_unreachable_conversion_webhook_fails_only_other_versions(api: Caller) -> None:
    await api.create(DEFINITIONS, described({"url": "https://127.0.0.1:1/c"}))
    await api.create(OLD, training("a", replicas=2))
    got = await api("GET", NEW)
    assert got.json["message"] == (
        f"conversion webhook for {GROUP}/v1, Kind=Training failed: "
        'Post "https://127.0.0.1:1/c?timeout=30s": dial tcp 127.0.0.1:1: connect: connection refused'
    )
    assert (await api("POST", NEW, newer("b", size=1))).status == 500
    assert len((await api.get(OLD))["items"]) == 1


async def test_admission_webhook_receives_object_in_its_version(api: Caller, hooks: WebhookServer) -> None:
    await api.create(DEFINITIONS, described(hooks.client("/c")))
    hooks.answers["/m"] = patch({"op": "replace", "path": "/spec/size", "value": 9})
    made = hook(hooks.client("/m"), rule("trainings", apiGroups=[GROUP], apiVersions=["v2"]))
    await api.create(MUTATING, configuration("Mutating", "m", made))
    created = await api.create(OLD, training("a", replicas=2))
    assert created["spec"] == {"model": "llm", "replicas": 9}
    assert hooks.asked["/m"][0]["request"]["object"]["spec"]["size"] == 2
