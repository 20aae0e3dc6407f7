"""GET and LIST: selectors, pages, revisions, representations."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod

from haru.kube import yaml

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def fill(api: Caller) -> None:
    for index, labels in enumerate([{"a": "x"}, {"a": "y"}, {"b": "x"}, None, {"a": "x", "b": "z"}]):
        await api.create(MAPS, config_map(f"m{index}", labels))


async def test_empty_list_has_items_and_resource_version(api: Caller) -> None:
    listed = await api.get(PODS)
    assert listed == {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(api.app.objects.store.revision)},
        "items": [],
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("labelSelector=a%3Dx", ["m0", "m4"]),
        ("labelSelector=a%3D%3Dx,b", ["m4"]),
        ("labelSelector=a!%3Dx", ["m1", "m2", "m3"]),
        ("labelSelector=a+in+(x,y)", ["m0", "m1", "m4"]),
        ("labelSelector=a+notin+(x)", ["m1", "m2", "m3"]),
        ("labelSelector=!a", ["m2", "m3"]),
        ("fieldSelector=metadata.name%3Dm2", ["m2"]),
        ("fieldSelector=metadata.name%3Dm", []),
        ("fieldSelector=metadata.name%3Dm%F4%8F%BF%BF", []),
        ("fieldSelector=metadata.name%3Dm2,metadata.name!%3Dm2", []),
        ("fieldSelector=metadata.name!%3Dm2,metadata.namespace%3Ddefault", ["m0", "m1", "m3", "m4"]),
        ("labelSelector=a&fieldSelector=metadata.name%3Dm2", []),
    ],
)
async def test_label_and_field_selectors_select_objects(api: Caller, query: str, expected: list[str]) -> None:
    await fill(api)
    assert names(await api.get(f"{MAPS}?{query}")) == expected


@pytest.mark.parametrize(
    ("url", "code", "text"),
    [
        (f"{PODS}?fieldSelector=spec.nope%3Dx", 400, "field label not supported: spec.nope"),
        (f"{PODS}?labelSelector=a+b+c", 400, ""),
        (f"{PODS}?limit=x", 400, ""),
        (f"{PODS}?continue=abc", 400, ""),
        (f"{PODS}?resourceVersion=x", 400, ""),
        (f"{PODS}?resourceVersionMatch=Exact", 422, "forbidden unless resourceVersion is provided"),
        (f"{PODS}?resourceVersionMatch=Exact&resourceVersion=0", 422, ""),
        (f"{PODS}?resourceVersionMatch=Other&resourceVersion=1", 422, ""),
        (f"{PODS}?sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
    ],
)
async def test_invalid_list_options_are_refused(api: Caller, url: str, code: int, text: str) -> None:
    answer = await api("GET", url)
    assert answer.status == code and answer.json["code"] == code
    assert text in answer.json["message"]


async def test_pods_are_selected_by_node_and_phase(api: Caller) -> None:
    await api.create(PODS, pod("a", nodeName="n1"))
    await api.create(PODS, pod("b"))
    assert names(await api.get(f"{PODS}?fieldSelector=spec.nodeName%3Dn1")) == ["a"]
    assert names(await api.get(f"{PODS}?fieldSelector=spec.nodeName%3D,status.phase%3DPending")) == ["b"]
    assert names(await api.get("/api/v1/pods?fieldSelector=spec.nodeName!%3Dn1")) == ["b"]


async def test_pages_are_consistent_at_one_revision(api: Caller) -> None:
    await fill(api)
    first = await api.get(f"{MAPS}?limit=2")
    assert names(first) == ["m0", "m1"] and first["metadata"]["remainingItemCount"] == 3
    await api("DELETE", f"{MAPS}/m3")
    await api.create(MAPS, config_map("m2a"))
    second = await api.get(f"{MAPS}?limit=2&continue={first['metadata']['continue']}")
    assert names(second) == ["m2", "m3"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = await api.get(f"{MAPS}?limit=2&continue={second['metadata']['continue']}")
    assert names(third) == ["m4"] and "continue" not in third["metadata"]


async def test_pages_with_selector_have_no_remaining_item_count(api: Caller) -> None:
    await fill(api)
    first = await api.get(f"{MAPS}?limit=1&labelSelector=a")
    assert names(first) == ["m0"] and "remainingItemCount" not in first["metadata"]
    second = await api.get(f"{MAPS}?limit=5&labelSelector=a&continue={first['metadata']['continue']}")
    assert names(second) == ["m1", "m4"]


async def test_expired_continue_token_gives_410_with_new_token(api: Caller) -> None:
    await fill(api)
    first = await api.get(f"{MAPS}?limit=2")
    await api.create(MAPS, config_map("m9"))
    await api.app.objects.store.compact(api.app.objects.store.revision)
    answer = await api("GET", f"{MAPS}?limit=2&continue={first['metadata']['continue']}")
    assert (answer.status, answer.json["reason"]) == (410, "Expired")
    third = await api.get(f"{MAPS}?limit=3&continue={answer.json['metadata']['continue']}")
    last = await api.get(f"{MAPS}?limit=3&continue={third['metadata']['continue']}")
    assert (names(third), names(last)) == (["m2", "m3", "m4"], ["m9"]) and "continue" not in last["metadata"]


async def test_lists_at_given_resource_version(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    created = await api.create(MAPS, config_map("m0"))
    revision = created["metadata"]["resourceVersion"]
    await api.create(MAPS, config_map("m1"))
    assert names(await api.get(f"{MAPS}?resourceVersion=0")) == ["m0", "m1"]
    assert names(await api.get(f"{MAPS}?resourceVersion={revision}")) == ["m0", "m1"]
    exact = await api.get(f"{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact")
    assert names(exact) == ["m0"] and exact["metadata"]["resourceVersion"] == revision
    assert names(await api.get(f"{MAPS}?resourceVersion={revision}&limit=5")) == ["m0"]
    one = "fieldSelector=metadata.name=m1"
    assert names(await api.get(f"{MAPS}?resourceVersion={revision}&limit=5&{one}")) == ["m1"]
    assert names(await api.get(f"/api/v1/configmaps?resourceVersion={revision}&limit=5&{one}")) == []
    assert names(await api.get(f"{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact&{one}")) == []
    assert names(await api.get(f"{MAPS}?resourceVersion={revision}&resourceVersionMatch=NotOlderThan")) == ["m0", "m1"]
    monkeypatch.setattr("haru.apiserver.registry.list.WAIT_FOR_REVISION", 0.05)
    answer = await api("GET", f"{MAPS}?resourceVersion=99999")
    assert (answer.status, answer.json["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
    assert answer.headers["retry-after"] == "1"
    await api.app.objects.store.compact(api.app.objects.store.revision)
    answer = await api("GET", f"{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact")
    assert (answer.status, answer.json["reason"]) == (410, "Expired")


async def test_table_has_rows_and_columns(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    table = (await api("GET", PODS, accept=TABLE)).json
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"]["resourceVersion"] == str(api.app.objects.store.revision)
    assert [c["name"] for c in table["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
    (row,) = table["rows"]
    assert row["cells"][:3] == ["a", "0/1", "Pending"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    one = (await api("GET", f"{PODS}/a?includeObject=Object", accept=TABLE)).json
    assert one["rows"][0]["object"]["kind"] == "Pod"
    none = (await api("GET", f"{PODS}?includeObject=None", accept=TABLE)).json
    assert none["rows"][0]["object"] is None


async def test_partial_object_metadata_has_no_spec(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    one = (await api("GET", f"{PODS}/a", accept=PARTIAL)).json
    assert one["kind"] == "PartialObjectMetadata" and "spec" not in one
    listed = (await api("GET", PODS, accept=PARTIAL_LIST)).json
    assert listed["kind"] == "PartialObjectMetadataList" and listed["apiVersion"] == "meta.k8s.io/v1"
    assert "spec" not in listed["items"][0]


@pytest.mark.parametrize(
    ("accept", "status", "content_type"),
    [
        ("application/vnd.kubernetes.protobuf,application/json", 200, "application/json"),
        ("application/vnd.kubernetes.protobuf", 200, "application/vnd.kubernetes.protobuf"),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", 406, "application/json"),
        ("text/html", 406, "application/json"),
        ("text/html,*/*;q=0.1", 200, "application/json"),
        ("application/yaml", 200, "application/yaml"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", 200, "application/json"),
    ],
)
async def test_accept_header_determines_content_type(api: Caller, accept: str, status: int, content_type: str) -> None:
    await api.create(PODS, pod("a"))
    answer = await api("GET", f"{PODS}/a", accept=accept)
    assert (answer.status, answer.headers["content-type"]) == (status, content_type)
    if content_type == "application/yaml":
        assert yaml.load(answer.body.decode())["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    ("path", "message", "details"),
    [
        (f"{PODS}/x", 'pods "x" not found', {"name": "x", "kind": "pods"}),
        (
            "/apis/apps/v1/namespaces/default/deployments/x",
            'deployments.apps "x" not found',
            {"name": "x", "group": "apps", "kind": "deployments"},
        ),
    ],
)
async def test_missing_object_gives_not_found_status(
    api: Caller, path: str, message: str, details: dict[str, str]
) -> None:
    answer = await api("GET", path)
    assert answer.status == 404
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "NotFound",
        "details": details,
        "code": 404,
    }


async def test_large_responses_are_compressed_on_request(api: Caller) -> None:
    import gzip

    for index in range(3):
        await api.create(MAPS, config_map(f"big{index}", None, text="x" * 100_000))
    answer = await api("GET", MAPS, accept_encoding="gzip")
    assert answer.headers["content-encoding"] == "gzip" and len(answer.body) < 10_000
    assert b"big2" in gzip.decompress(answer.body)
    assert "content-encoding" not in (await api("GET", f"{MAPS}/big0", accept_encoding="gzip")).headers
    for other in ("gzip;q=0", "deflate, br"):
        assert "content-encoding" not in (await api("GET", MAPS, accept_encoding=other)).headers
