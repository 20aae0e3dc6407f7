"""Answers in protobuf: whole objects for clients that take nothing else, metadata for those that name it first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from api_caller import ADMIN, MAPS, PODS, Caller, config_map, pod
from custom_objects import DEFINITIONS, NAME, TRAININGS, define, training
from kubectl_runner import Kubectl, require_kubectl

from haru.apiserver.encoding import negotiation, rendering
from haru.apiserver.serving import HttpServer
from haru.kube.wire import decode_protobuf
from haru.kube.wire_out import encode_protobuf
from protobuf_wire import chunk, fields

Obj = dict[str, Any]
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PARTIAL = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_JSON = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def inside(body: bytes) -> tuple[str, dict[int, Any]]:
    """The kind, and the fields of what is in an envelope."""
    assert body[:4] == b"k8s\0"
    outer: dict[int, Any] = dict(fields(body[4:]))
    return dict(fields(outer[1]))[2].decode(), dict(fields(outer[2]))  # type: ignore[union-attr]


async def test_objects_are_written_and_read_in_protobuf(api: Caller) -> None:
    made = await api("POST", PODS, pod("a"), accept=PROTOBUF)
    assert (made.status, made.headers["content-type"]) == (201, PROTOBUF)
    assert int(made.headers["content-length"]) == len(made.body)
    asked = await api("GET", f"{PODS}/a", accept=PROTOBUF)
    stored = await api.get(f"{PODS}/a")
    assert decode_protobuf(asked.body) == decode_protobuf(made.body)
    assert decode_protobuf(asked.body)["metadata"] == stored["metadata"]
    assert decode_protobuf(asked.body)["spec"] == stored["spec"]
    patched = await api("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}, type="application/merge-patch+json",
                        accept=PROTOBUF)  # fmt: skip
    assert decode_protobuf(patched.body)["metadata"]["labels"]["x"] == "y"
    kind, told = inside((await api("DELETE", f"{PODS}/a?gracePeriodSeconds=0", accept=PROTOBUF)).body)
    assert kind == "Pod" or (kind, told[2]) == ("Status", b"Success")


async def test_lists_are_served_in_protobuf(api: Caller) -> None:
    for n in range(40):
        await api.create(MAPS, config_map(f"m{n:02}", key="v"))
    listed = await api("GET", f"{MAPS}?labelSelector=!x&limit=35", accept=PROTOBUF)
    assert listed.headers["content-type"] == PROTOBUF
    kind, told = inside(listed.body)
    assert kind == "ConfigMapList" and dict(fields(told[1]))[3], "more is to come"
    whole = await api("GET", MAPS, accept=PROTOBUF)
    assert whole.body.count(b"\x0a\x03m") == 40
    kind, told = inside((await api("GET", MAPS, accept=PARTIAL_LIST)).body)
    assert kind == "PartialObjectMetadataList" and list(dict(fields(told[2]))) == [1]


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"),
    [
        ("GET", f"{PODS}/none", 404, b"NotFound"),
        ("POST", PODS, 400, b"BadRequest"),
        ("GET", f"{PODS}?limit=x", 400, b"BadRequest"),
        ("GET", "/api/v1/namespaces/default/nothings", 404, b"NotFound"),
    ],
)
async def test_errors_are_served_in_protobuf(api: Caller, method: str, path: str, code: int, reason: bytes) -> None:
    answer = await api(method, path, b"nonsense" if method != "GET" else None, accept=PROTOBUF)
    kind, told = inside(answer.body)
    assert (answer.status, answer.headers["content-type"], kind) == (code, PROTOBUF, "Status")
    assert (told[2], told[4], told[6]) == (b"Failure", reason, code)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (PROTOBUF, PROTOBUF),
        (f"{PROTOBUF},text/html", PROTOBUF),
        (f"text/html, {PROTOBUF};q=0.1", PROTOBUF),
        (f"{PROTOBUF},application/json", "application/json"),
        (f"{PROTOBUF},application/json;q=0.1", "application/json"),
        (f"{PROTOBUF},*/*", "application/json"),
        (f"{PROTOBUF},application/yaml", "application/yaml"),
        (f"{PROTOBUF},application/json;q=0", PROTOBUF),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,{PROTOBUF}", PROTOBUF),
        (f"{PROTOBUF};q=0,text/html", None),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1", None),
        (f"{PARTIAL},application/json", PROTOBUF),
        (f"{PARTIAL},{PARTIAL_JSON},application/json", PROTOBUF),
        (f"{PARTIAL_JSON},{PARTIAL}", "application/json"),
        (f"{PARTIAL};q=0.5,application/json", "application/json"),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,{PARTIAL},application/json", PROTOBUF),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1", "application/json"),
        (f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v2,application/json", "application/json"),
        (f"{PROTOBUF};as=PartialObjectMetadata,application/json", "application/json"),
        ("application/json;v=v1,application/yaml", "application/yaml"),
    ],
)
async def test_json_is_used_when_acceptable(api: Caller, accept: str, content_type: str | None) -> None:
    await api.create(MAPS, config_map("a", key="v"))
    answer = await api("GET", f"{MAPS}/a", accept=accept)
    if content_type is None:
        assert (answer.status, answer.json["reason"]) == (406, "NotAcceptable")
    else:
        assert (answer.status, answer.headers["content-type"]) == (200, content_type)


@pytest.mark.parametrize(
    "accept",
    [f"{PROTOBUF},application/json", f"{PROTOBUF}, */*", "application/json, */*", "application/json;q=0.9", ""],
)
async def test_typed_client_is_answered_by_what_lies_ready(
    api: Caller, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of client-go name protobuf first, and JSON after it: no object is decoded for their JSON."""
    await api.create(MAPS, config_map("a", key="v"))
    stream = await api.stream(f"{MAPS}?watch=1&resourceVersion={api.app.objects.store.revision}", accept=accept)

    def versioned(*_: object) -> None:
        raise AssertionError("an object is decoded")

    for module in ("encoding.rendering", "registry.list", "registry.watch"):
        monkeypatch.setattr(f"haru.apiserver.{module}.versioned", versioned)
    assert (await api("GET", f"{MAPS}/a", accept=accept)).json["data"] == {"key": "v"}
    assert len((await api("GET", MAPS, accept=accept)).json["items"]) >= 1
    await api.create(MAPS, config_map("b"))
    assert await stream.take(1) == [("ADDED", "b")]
    await stream.close()


def metadata_in(message: bytes) -> Obj:
    """The metadata that such a message has, read as those of a ConfigMap: both have them first."""
    envelope = b"k8s\0" + chunk(1, chunk(1, b"v1") + chunk(2, b"ConfigMap")) + chunk(2, message)
    found: Obj = decode_protobuf(envelope)["metadata"]
    return found


def partial_list(version: str) -> str:
    """What client-go's metadata client says of a list."""
    as_list = f"as=PartialObjectMetadataList;g=meta.k8s.io;v={version}"
    return f"{PROTOBUF};{as_list},application/json;{as_list},application/json"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("count", [0, 40])
async def test_metadata_client_lists_in_protobuf_what_it_would_in_json(api: Caller, version: str, count: int) -> None:
    for number in range(count):
        await api.create(
            PODS, {**pod(f"p{number:02}"), "metadata": {"name": f"p{number:02}", "labels": {"n": f"{number}"}}}
        )
    path = f"{PODS}?limit=30"
    listed = await api("GET", path, accept=partial_list(version))
    assert (listed.status, listed.headers["content-type"]) == (200, PROTOBUF)
    as_json = (await api("GET", path, accept=partial_list(version).split(",")[1])).json
    outer: dict[int, Any] = dict(fields(listed.body[4:]))
    named = [text.decode() for _, text in fields(outer[1]) if isinstance(text, bytes)]
    assert named == [f"meta.k8s.io/{version}", "PartialObjectMetadataList"] == [as_json["apiVersion"], as_json["kind"]]
    told = list(fields(outer[2]))
    of_list: dict[int, Any] = dict(fields(told[0][1]))  # type: ignore[arg-type]
    assert of_list[2].decode() == as_json["metadata"]["resourceVersion"]
    assert of_list.get(3, b"").decode() == as_json["metadata"].get("continue", "")
    assert [metadata_in(item) for _, item in told[1:] if isinstance(item, bytes)] == [
        item["metadata"] for item in as_json["items"]
    ]
    assert len(told) - 1 == min(count, 30)


async def test_custom_resources_have_no_protobuf_form(api: Caller) -> None:
    await define(api)
    assert (await api("POST", TRAININGS, training("a"), accept=PROTOBUF)).status == 406
    assert (await api("GET", f"{TRAININGS}/a")).status == 404, "nothing was made"
    for kind, expected in ((STRATEGIC, 415), (MERGE, 406)):  # what is sent is looked at before what is wanted
        assert (await api("PATCH", f"{TRAININGS}/a", {}, type=kind, accept=PROTOBUF)).status == expected, kind
    assert (await api("PATCH", f"{MAPS}/a", {}, type="text/html", accept="text/html")).status == 415
    await api.create(TRAININGS, training("a"))
    for path in (f"{TRAININGS}/a", TRAININGS, f"{TRAININGS}?watch=1"):
        refused = await api("GET", path, accept=PROTOBUF)
        kind, told = inside(refused.body)
        assert (refused.status, kind, told[4]) == (406, "Status", b"NotAcceptable"), path
    kind, told = inside((await api("GET", f"{TRAININGS}/a", accept=PARTIAL)).body)
    assert kind == "PartialObjectMetadata" and dict(fields(told[1]))[1] == b"a"


async def test_definitions_are_written_and_read_in_protobuf(api: Caller) -> None:
    await define(api)
    stored = await api.get(f"{DEFINITIONS}/{NAME}")
    asked = await api("GET", f"{DEFINITIONS}/{NAME}", accept=PROTOBUF)
    assert (asked.status, asked.headers["content-type"]) == (200, PROTOBUF)
    assert decode_protobuf(asked.body)["spec"] == stored["spec"]
    assert (await api("DELETE", f"{DEFINITIONS}/{NAME}")).status == 200
    other = {**stored, "metadata": {"name": NAME.replace("trainings", "others")}}
    other["spec"] = {**stored["spec"], "names": {"plural": "others", "kind": "Other"}}
    body = encode_protobuf({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", **other})
    made = await api("POST", DEFINITIONS, body, type=PROTOBUF)
    assert made.status == 201 and made.json["spec"]["versions"] == stored["spec"]["versions"]


async def test_discovery_is_served_in_protobuf(api: Caller) -> None:
    """Groups by name (1); resources with their name (1), kind (3) and verbs (4), a message around texts."""
    answer = await api("GET", "/apis", accept=PROTOBUF)
    kind, _ = inside(answer.body)
    assert (answer.headers["content-type"], kind) == (PROTOBUF, "APIGroupList")
    outer = dict(fields(answer.body[4:]))
    groups = [dict(fields(group))[1] for number, group in fields(outer[2]) if number == 1]  # type: ignore[arg-type]
    assert b"apps" in groups and b"resource.k8s.io" in groups
    listed = await api("GET", "/apis/apps/v1", accept=PROTOBUF)
    kind, told = inside(listed.body)
    assert (kind, told[1]) == ("APIResourceList", b"apps/v1")
    first = dict(fields(told[2]))
    assert first[3] and [verb for number, verb in fields(first[4]) if number == 1]  # type: ignore[arg-type]


def events_of(data: bytes) -> list[tuple[str, str, dict[int, Any]]]:
    """Type, kind and fields of each whole event."""
    found = []
    while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
        size = 4 + int.from_bytes(data[:4], "big")
        told: dict[int, Any] = dict(fields(data[4:size]))
        raw = dict(fields(told[2]))[1]
        assert isinstance(raw, bytes)
        found.append((told[1].decode(), *inside(raw)))
        data = data[size:]
    return found


async def test_watches_are_served_in_protobuf(api: Caller) -> None:
    """As a client without JSON watches: over a socket, frame by frame."""
    server = HttpServer(api.app)
    await server.start()
    await api.create(MAPS, config_map("a", key="v"))
    url = f"{server.url}{MAPS}?watch=1&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"
    headers = {"Authorization": f"Bearer {ADMIN}", "Accept": f"{PROTOBUF};stream=watch"}
    data = b""
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
        assert answer.headers["Content-Type"] == f"{PROTOBUF};stream=watch"

        async def until(count: int) -> list[tuple[str, str, dict[int, Any]]]:
            nonlocal data
            while len(events_of(data)) < count:
                data += await asyncio.wait_for(answer.content.readany(), 20)
            return events_of(data)

        await until(1)
        await api("PATCH", f"{MAPS}/a", {"data": {"key": "w"}}, type="application/merge-patch+json")
        await api("DELETE", f"{MAPS}/a")
        found = await until(4)
    names = [(type_, kind, dict(fields(told[1])).get(1)) for type_, kind, told in found if type_ != "BOOKMARK"]
    assert names == [(type_, "ConfigMap", b"a") for type_ in ("ADDED", "MODIFIED", "DELETED")]
    assert found[1][0] == "BOOKMARK" and b"k8s.io/initial-events-end" in dict(fields(found[1][2][1]))[12]
    await server.stop()


async def test_metadata_client_watches_in_protobuf(api: Caller) -> None:
    """Two of them, and one in JSON beside them: each has its own form."""
    server = HttpServer(api.app)
    await server.start()
    url = f"{server.url}{MAPS}?watch=1&resourceVersion={api.app.objects.store.revision}"
    both = f"{PARTIAL},{PARTIAL_JSON},application/json"
    seen = []
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {ADMIN}"}) as session:
        watches = [await session.get(url, headers={"Accept": accept}) for accept in (both, both, PARTIAL_JSON)]
        await api.create(MAPS, config_map("a", {"x": "y"}, key="v"))
        await api("DELETE", f"{MAPS}/a")
        for answer in watches:
            data = b""
            while (len(events_of(data)) if answer in watches[:2] else data.count(b"\n")) < 2:
                data += await asyncio.wait_for(answer.content.readany(), 20)
            seen.append(data)
            answer.close()
    assert watches[0].headers["Content-Type"] == f"{PROTOBUF};stream=watch"
    in_json = [orjson.loads(line) for line in seen[2].splitlines()]
    assert [(event["type"], event["object"]["kind"]) for event in in_json] == [
        (type_, "PartialObjectMetadata") for type_ in ("ADDED", "DELETED")
    ]
    for data in seen[:2]:
        found = [(type_, kind, metadata_in(chunk(1, told[1]))) for type_, kind, told in events_of(data)]
        assert found == [(event["type"], event["object"]["kind"], event["object"]["metadata"]) for event in in_json]
    await server.stop()


CREATED = (
    "deployment d --image=nginx --replicas=2",
    "configmap c --from-literal=a=b",
    "quota q --hard=pods=3",
    "secret generic s --from-literal=a=b",
    "role r --verb=get --resource=pods",
)


async def test_kubectl_works_when_protobuf_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl's typed commands put protobuf first: here they are given it, and have to make sense of it."""
    require_kubectl()
    answered = []

    def first(accept: str) -> negotiation.Representation:
        if accept.startswith(PROTOBUF):
            answered.append(accept)
            return negotiation.Representation(protobuf=True)
        return negotiation.negotiate(accept)

    monkeypatch.setattr(rendering, "negotiate", first)
    monkeypatch.setattr(
        "haru.apiserver.encoding.response_writer.wants_protobuf", lambda accept: accept.startswith(PROTOBUF)
    )
    kubectl = Kubectl(tmp_path)
    await kubectl.start()
    try:
        for what in CREATED:
            assert "created" in await kubectl.ok("create", *what.split())
        assert answered, "kubectl asks for protobuf"
        taken = await kubectl.run("create", "configmap", "c")
        assert taken.err.strip() == 'error: failed to create configmap: configmaps "c" already exists'
        described = await kubectl.ok("describe", "deployment", "d")
        assert "nginx" in described and "2 desired" in described
        assert "limits" not in (await kubectl.ok("create", "deployment", "e", "--image=x", "-o", "yaml"))
    finally:
        await kubectl.stop()
