"""Discovery, OpenAPI, version, health and metrics: what clients ask before they ask for anything else."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from api_caller import PODS, Caller, pod
from custom_objects import DEFINITIONS, define, definition, version

from haru.kube import openapi
from haru.kube.kinds import Kind
from protobuf_wire import fields

Obj = dict[str, Any]
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


async def test_custom_groups_come_in_the_order_of_each_form_and_their_versions_by_preference(api: Caller) -> None:
    for group, plural, name in (
        ("z.io", "as", "v1beta1"),
        ("z.io", "bs", "v1"),
        ("b.io", "as", "v1"),
        ("a.io", "as", "v2"),
    ):
        made = definition(version(name, additionalPrinterColumns=[], selectableFields=[]))
        made["metadata"]["name"] = f"{plural}.{group}"
        made["spec"] |= {"group": group, "names": {"plural": plural, "kind": f"K{plural}"}}
        await define(api, made)
    groups = {g["name"]: g for g in (await api.get("/apis"))["groups"]}
    assert list(groups)[-3:] == ["b.io", "z.io", "a.io"], "by the names of their APIServices"
    assert [v["version"] for v in groups["z.io"]["versions"]] == ["v1", "v1beta1"]
    aggregated = (await api("GET", "/apis", accept=AGGREGATED)).json["items"]
    assert [item["metadata"]["name"] for item in aggregated][-3:] == ["a.io", "b.io", "z.io"]


async def test_legacy_discovery_lists_groups_and_versions(api: Caller) -> None:
    assert (await api.get("/api"))["versions"] == ["v1"]
    groups = {g["name"]: g for g in (await api.get("/apis"))["groups"]}
    assert groups["apps"]["preferredVersion"] in groups["apps"]["versions"]
    assert [v["version"] for v in groups["resource.k8s.io"]["versions"]] == ["v1", "v1beta2", "v1beta1", "v1alpha3"]
    assert (await api.get("/apis/apps"))["kind"] == "APIGroup"
    assert (await api.get("/apis/apps/"))["kind"] == "APIGroup"


async def test_resource_list_has_verbs_short_names_and_kinds(api: Caller) -> None:
    listed = await api.get("/api/v1")
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "v1")
    resources: dict[str, Any] = {r["name"]: r for r in listed["resources"]}
    assert resources["pods"]["singularName"] == "pod" and resources["pods"]["shortNames"] == ["po"]
    assert (resources["pods/eviction"]["group"], resources["pods/eviction"]["kind"]) == ("policy", "Eviction")
    assert {"list", "watch"} <= set(resources["nodes"]["verbs"]) and not resources["nodes"]["namespaced"]


@pytest.mark.parametrize("root", ["/api", "/apis"])
async def test_aggregated_discovery_has_an_etag(api: Caller, root: str) -> None:
    answer = await api("GET", root, accept=AGGREGATED)
    assert answer.json["kind"] == "APIGroupDiscoveryList"
    kind = answer.headers["content-type"]
    assert all(part in kind for part in ("g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"))
    assert answer.headers["vary"] == "Accept"
    again = await api("GET", root, accept=AGGREGATED, if_none_match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    headers = {"accept": AGGREGATED, "if_none_match": answer.headers["etag"], "user_agent": "curl/8"}
    assert (await api("GET", root, **headers)).status == 304
    plain = await api("GET", root, accept="application/json")
    assert plain.json["kind"] in ("APIVersions", "APIGroupList")
    assert not {"etag", "vary"} & plain.headers.keys()


@pytest.mark.parametrize(
    "path", ["/apis/nope", "/apis/apps/v9", "/api/v2", "/nope", "/openapi/v4", "/apis/apps/v1/nope", "/readyz/nope"]
)
async def test_unknown_path_is_not_found(api: Caller, path: str) -> None:
    """Below a group that exists, as a Status; elsewhere in plain words."""
    answer = await api("GET", path)
    assert answer.status == 404
    if path.startswith(("/apis/apps/", "/api/", "/openapi/")):
        assert answer.json["reason"] == "NotFound"
        assert answer.json["message"] == "the server could not find the requested resource"
    else:
        assert (answer.headers["content-type"], answer.body) == ("text/plain; charset=utf-8", b"404 page not found\n")


async def test_openapi_v2_is_served_as_json_and_protobuf(api: Caller) -> None:
    answer = await api("GET", "/openapi/v2")
    assert (answer.headers["content-type"], answer.json["swagger"]) == ("application/json", "2.0")
    patch = answer.json["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert {"fieldValidation", "dryRun"} <= {parameter["name"] for parameter in patch["parameters"]}
    assert (await api("GET", "/openapi/v2", if_none_match=answer.headers["etag"])).status == 304
    asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    binary = await api("GET", "/openapi/v2", accept=asked)
    assert binary.headers["content-type"] == asked.replace("@", ".")
    assert dict(fields(binary.body))[1] == b"2.0"


async def test_version_reports_kubernetes_1_36(api: Caller) -> None:
    version = await api.get("/version")
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")


@pytest.mark.parametrize("name", ["healthz", "livez", "readyz"])
async def test_health_endpoints_need_no_authentication(api: Caller, name: str) -> None:
    anonymous = api.as_("")
    assert (await anonymous("GET", f"/{name}")).body == b"ok"
    assert b"[+]ping ok" in (await anonymous("GET", f"/{name}?verbose")).body
    assert (await anonymous("GET", f"/{name}/ping")).status == 403
    assert (await api("GET", f"/{name}/ping")).status == 200


async def test_health_checks_can_be_excluded(api: Caller) -> None:
    api.app.objects.store.failing = True  # type: ignore[misc]
    whole = await api("GET", "/readyz")
    assert whole.status == 500
    assert whole.body.decode().splitlines() == [
        "[+]ping ok",
        "[-]etcd failed: the last change could not be made durable",
        "[+]rbac ok",
        "[+]shutdown ok",
        "readyz check failed",
    ]
    less = await api("GET", "/readyz?verbose&exclude=etcd&exclude=moon")
    assert less.status == 200
    assert less.body.decode().splitlines()[1:] == [
        "[+]etcd excluded: ok",
        "[+]rbac ok",
        "[+]shutdown ok",
        'warn: some health checks cannot be excluded: no matches for "moon"',
        "readyz check passed",
    ]
    assert (await api("GET", "/readyz/moon")).status == 404


async def test_stopping_server_is_alive_but_not_ready(api: Caller) -> None:
    api.app.streams.stop()
    assert (await api("GET", "/readyz")).status == 500
    assert (await api("GET", "/livez")).status == 200


async def test_openapi_v3_documents_field_validation_of_patch(api: Caller) -> None:
    index = await api.get("/openapi/v3")
    url = index["paths"]["api/v1"]["serverRelativeURL"]
    assert url.startswith("/openapi/v3/api/v1?hash=")
    document = await api.get(url)
    operation = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert operation["x-kubernetes-action"] == "patch"
    assert "fieldValidation" in {p["name"] for p in operation["parameters"]}


async def test_openapi_v3_is_made_anew_for_the_group_version_alone_that_changes(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, hashed = Counter[str](), Counter[str]()

    def counting(counts: Counter[str], work: Callable[..., Any]) -> Callable[..., Any]:
        def counted(group: str, version: str, kinds: Sequence[Kind]) -> Any:
            counts[group] += 1
            return work(group, version, kinds)

        return counted

    monkeypatch.setattr(openapi, "openapi_v3_document", counting(made, openapi.openapi_v3_document))
    monkeypatch.setattr(openapi, "openapi_hash", counting(hashed, openapi.openapi_hash))

    async def seen() -> tuple[list[bytes], Obj]:
        documents = [(await api("GET", f"/openapi/v3/apis/{of}/v1")).body for of in ("apps", "ml.example.com")]
        return documents, (await api.get("/openapi/v3"))["paths"]

    await define(api)
    before, index = await seen()
    assert await seen() == (before, index)
    changed = definition()["spec"]["versions"]
    changed[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["more"] = {"type": "string"}
    path = f"{DEFINITIONS}/trainings.ml.example.com"
    assert (
        await api("PATCH", path, {"spec": {"versions": changed}}, type="application/merge-patch+json")
    ).status == 200
    after, later = await seen()
    assert before[0] == after[0] and before[1] != after[1] and b'"more"' in after[1]
    assert [name for name in index if index[name] != later[name]] == ["apis/ml.example.com/v1"]
    assert made == {"apps": 1, "ml.example.com": 2}
    assert hashed["ml.example.com"] == 2 and hashed["policy"] == 1


async def test_metrics_have_kubernetes_names(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    await api("GET", f"{PODS}/none")
    text = (await api("GET", "/metrics")).body.decode()
    assert 'apiserver_request_total{code="201",resource="pods",verb="POST"} 1' in text
    assert 'apiserver_request_total{code="404",resource="pods",verb="GET"} 1' in text
    assert 'apiserver_storage_objects{resource="pods"} 1' in text
    assert 'apiserver_request_duration_seconds_count{resource="pods",verb="POST"} 1' in text


async def test_responses_have_no_cache_header_and_audit_id(api: Caller) -> None:
    answer = await api("GET", PODS)
    assert answer.headers["cache-control"] == "no-cache, private"
    assert uuid.UUID(answer.headers["audit-id"]).version == 4


async def test_failing_disk_makes_server_unready(api: Caller) -> None:
    api.app.objects.store.failing = True  # type: ignore[misc]
    for path, status in (
        ("/readyz", 500),
        ("/healthz", 500),
        ("/readyz/etcd", 500),
        ("/readyz/ping", 200),
        ("/livez", 200),
    ):
        answer = await api("GET", path)
        assert answer.status == status, path
        assert (b"could not be made durable" in answer.body) == (status == 500)
