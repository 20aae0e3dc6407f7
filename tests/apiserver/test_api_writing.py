"""POST, PUT and DELETE: what the server owns, what it refuses, what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod
from hypothesis import given
from hypothesis import strategies as st

from haru.apiserver.request.http import uuid4_of

NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"


@given(st.binary(min_size=16, max_size=16))
def test_random_bytes_make_a_uuid_of_version_four(random: bytes) -> None:
    assert uuid4_of(random) == str(uuid.UUID(bytes=random, version=4))


async def test_server_sets_metadata_fields(api: Caller) -> None:
    obj = pod("a")
    obj["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "generation": 17,
        "selfLink": "/x",
    }
    obj["status"] = {"phase": "Running"}
    created = await api.create(PODS, obj)
    metadata = created["metadata"]
    assert uuid.UUID(metadata["uid"]).version == 4
    assert metadata["creationTimestamp"] == "2026-03-04T05:06:07Z"
    assert metadata["generation"] == 1 and metadata["namespace"] == "default"
    assert "deletionTimestamp" not in metadata and "selfLink" not in metadata
    assert created["status"]["phase"] == "Pending"
    assert await api.get(f"{PODS}/a") == created


@pytest.mark.parametrize(
    ("path", "obj", "code", "text"),
    [
        (MAPS, config_map("a") | {"kind": "Secret"}, 400, "Secret"),
        (MAPS, config_map("a") | {"apiVersion": "v2"}, 400, "does not match the expected API version"),
        (MAPS, {"metadata": {"name": "x", "namespace": "other"}}, 400, "the namespace of the provided object does not"),
        (MAPS, {"metadata": {"name": "x", "resourceVersion": "1"}}, 400, "resourceVersion should not be set"),
        (
            "/apis/networking.k8s.io/v1/ipaddresses",
            {"metadata": {"name": "2001:DB8::1"}, "spec": {"parentRef": {"resource": "services", "name": "a"}}},
            422,
            'must be in canonical form ("2001:db8::1")',
        ),
        (
            "/apis/networking.k8s.io/v1/ipaddresses",
            {"metadata": {"name": "abc"}, "spec": {"parentRef": {"resource": "services", "name": "a"}}},
            422,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (MAPS, {"metadata": {}}, 422, "name or generateName is required"),
        (MAPS, {"metadata": {"name": "No Good"}}, 422, 'ConfigMap "No Good" is invalid: metadata.name: Invalid value'),
        ("/api/v1/namespaces/none/configmaps", config_map("a"), 404, 'namespaces "none" not found'),
        (MAPS, b"{", 400, "error decoding JSON"),
        (MAPS, b"[]", 400, ""),
        (MAPS, b"", 400, ""),
        (MAPS, {"metadata": {"name": "x"}, "data": {"a": 1}}, 400, "cannot unmarshal number into Go struct field"),
        (f"{MAPS}/a", config_map("a"), 405, ""),
    ],
)
async def test_invalid_create_is_refused(api: Caller, path: str, obj: Any, code: int, text: str) -> None:
    answer = await api("POST", path, obj)
    assert (answer.status, answer.json["code"]) == (code, code), answer.body
    assert text in answer.json["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", MAPS),
        ("PATCH", MAPS),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
        ("POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews"),
        ("PUT", NODES),
    ],
)
async def test_unsupported_methods_on_collections_give_405(api: Caller, method: str, path: str) -> None:
    """What all namespaces have is listed and watched; what is changed is named."""
    answer = await api(method, path, config_map("a"))
    assert (answer.status, answer.json["reason"]) == (405, "MethodNotAllowed")
    assert answer.json["message"] == "the server does not allow this method on the requested resource"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "GET", "POST"])
async def test_resource_that_is_not_served_is_not_found_whatever_the_method(api: Caller, method: str) -> None:
    assert (await api(method, "/api/v1/nothings")).status == 404


async def test_body_without_kind_is_accepted(api: Caller) -> None:
    created = await api.create(MAPS, {"metadata": {"name": "a"}})
    assert (created["apiVersion"], created["kind"]) == ("v1", "ConfigMap")


async def test_limit_range_without_name_gets_a_uuid(api: Caller) -> None:
    path = "/api/v1/namespaces/default/limitranges"
    name = (await api.create(path, {"metadata": {}, "spec": {"limits": []}}))["metadata"]["name"]
    assert uuid.UUID(name).version == 4
    based = await api.create(path, {"metadata": {"generateName": "x-"}, "spec": {"limits": []}})
    assert based["metadata"]["name"].startswith("x-")


async def test_duplicate_name_is_a_conflict(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("POST", MAPS, config_map("a"))
    assert (answer.status, answer.json["reason"]) == (409, "AlreadyExists")
    assert answer.json["message"] == 'configmaps "a" already exists'


async def test_generated_name_is_unique_or_refused(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    created = await api.create(MAPS, {"metadata": {"generateName": "x" * 70}})
    assert re.fullmatch("x{58}[bcdfghjklmnpqrstvwxz2456789]{5}", created["metadata"]["name"])
    monkeypatch.setattr("haru.apiserver.registry.object_metadata.secrets.randbelow", lambda n: 7)
    await api.create(MAPS, {"metadata": {"generateName": "a-"}})
    answer = await api("POST", MAPS, {"metadata": {"generateName": "a-"}})
    assert (answer.status, answer.json["reason"]) == (409, "AlreadyExists")
    assert "was not able to generate a unique name for the object" in answer.json["message"]
    assert answer.json["details"]["retryAfterSeconds"] == 1


async def test_update_with_old_resource_version_is_a_conflict(api: Caller) -> None:
    created = await api.create(MAPS, config_map("a", k="1"))
    created["data"] = {"k": "2"}
    updated = (await api("PUT", f"{MAPS}/a", created)).json
    assert updated["data"] == {"k": "2"}
    answer = await api("PUT", f"{MAPS}/a", created)
    assert answer.status == 409
    assert answer.json["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    del created["metadata"]["resourceVersion"]
    assert (await api("PUT", f"{MAPS}/a", created)).status == 200
    created["metadata"]["uid"] = str(uuid.uuid4())
    answer = await api("PUT", f"{MAPS}/a", created)
    assert answer.status == 409 and "Precondition failed: UID in precondition" in answer.json["message"]
    assert (await api("PUT", f"{MAPS}/none", config_map("none"))).status == 404
    assert (await api("PUT", f"{MAPS}/a", config_map("b"))).status == 400


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
        ({}, "the name of the object (a based on URL) was undeterminable: name must be provided"),
        ({"name": "a", "namespace": "other"}, "the namespace of the provided object does not match"),
    ],
)
async def test_body_must_match_name_in_url(api: Caller, exists: bool, metadata: Any, text: str) -> None:
    if exists:
        await api.create(MAPS, config_map("a"))
    answer = await api("PUT", f"{MAPS}/a", {"metadata": metadata})
    assert (answer.status, answer.json["code"]) == (400, 400)
    assert text in answer.json["message"]
    assert (await api("PUT", f"{MAPS}/c", config_map("c"))).status == 404


async def test_update_without_change_keeps_resource_version(api: Caller) -> None:
    created = await api.create(PODS, pod("a"))
    for _ in range(2):
        same = await api("PUT", f"{PODS}/a", created)
        assert (same.status, same.json) == (200, created)
        same = await api("PATCH", f"{PODS}/a", {"metadata": {"labels": {}}}, type=MERGE)
        assert (same.status, same.json["metadata"]["resourceVersion"]) == (200, created["metadata"]["resourceVersion"])


async def test_server_metadata_is_kept_on_update(api: Caller) -> None:
    created = await api.create(MAPS, config_map("a"))
    bare = config_map("a", {"l": "1"})
    updated = (await api("PUT", f"{MAPS}/a", bare)).json
    for name in ("uid", "creationTimestamp"):
        assert updated["metadata"][name] == created["metadata"][name]


async def test_generation_counts_spec_changes(api: Caller) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    obj = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    created = await api.create(path, obj)
    assert created["metadata"]["generation"] == 1

    async def patch(body: Any, where: str = "") -> int:
        return int((await api("PATCH", f"{path}/d{where}", body, type=MERGE)).json["metadata"]["generation"])

    assert await patch({"metadata": {"labels": {"x": "y"}}}) == 1
    assert await patch({"status": {"replicas": 3}}, "/status") == 1
    assert await patch({"spec": {"replicas": 3}}) == 2
    assert "generation" not in (await api.create(MAPS, config_map("a")))["metadata"]


async def test_status_and_spec_are_updated_separately(api: Caller) -> None:
    created = await api.create(PODS, pod("a"))
    body = {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    main = (await api("PATCH", f"{PODS}/a", {"status": {"phase": "Running"}}, type=MERGE)).json
    assert main["status"]["phase"] == "Pending"
    status = (await api("PATCH", f"{PODS}/a/status", body, type=MERGE)).json
    assert status["status"]["phase"] == "Running"
    assert status["spec"] == created["spec"]
    owner = [e for e in status["metadata"]["managedFields"] if e.get("subresource") == "status"]
    assert owner and owner[0]["fieldsV1"] == {"f:status": {"f:phase": {}}}
    put = dict(created, status={"phase": "Failed", "qosClass": "BestEffort"})
    del put["metadata"]["resourceVersion"]
    assert (await api("PUT", f"{PODS}/a/status", put)).json["status"]["phase"] == "Failed"
    assert (await api.get(f"{PODS}/a/status"))["status"]["phase"] == "Failed"


@pytest.mark.parametrize(
    ("method", "url", "body", "kind"),
    [
        ("POST", f"{MAPS}?dryRun=All", config_map("new"), "application/json"),
        ("PUT", f"{MAPS}/a?dryRun=All", config_map("a", k="2"), "application/json"),
        ("PATCH", f"{MAPS}/a?dryRun=All", {"data": {"k": "2"}}, MERGE),
        ("DELETE", f"{MAPS}/a?dryRun=All", None, ""),
        ("DELETE", f"{MAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}, "application/json"),
        ("DELETE", f"{MAPS}?dryRun=All", None, ""),
    ],
)
async def test_dry_run_changes_nothing(api: Caller, method: str, url: str, body: Any, kind: str) -> None:
    await api.create(MAPS, config_map("a", k="1"))
    before = api.app.objects.store.revision
    answer = await api(method, url, body, type=kind)
    assert answer.status in (200, 201), answer.body
    if method == "POST":
        assert answer.json["metadata"]["uid"]
    assert api.app.objects.store.revision == before


async def test_dry_run_value_and_conflicts_are_checked(api: Caller) -> None:
    assert (await api("POST", f"{MAPS}?dryRun=Some", config_map("a"))).status == 422
    await api.create(MAPS, config_map("a"))
    assert (await api("POST", f"{MAPS}?dryRun=All", config_map("a"))).status == 409


@pytest.mark.parametrize(
    ("query", "status", "warned"),
    [
        ("", 201, True),
        ("?fieldValidation=Warn", 201, True),
        ("?fieldValidation=Ignore", 201, False),
        ("?fieldValidation=Strict", 400, False),
        ("?fieldValidation=Sometimes", 422, False),
    ],
)
async def test_field_validation_refuses_warns_or_ignores(api: Caller, query: str, status: int, warned: bool) -> None:
    body = b'{"metadata":{"name":"a"},"dta":{"x":"y"},"data":{"k":"1","k":"2"}}'
    answer = await api("POST", f"{MAPS}{query}", body)
    assert answer.status == status
    if status == 400:
        assert answer.json["message"] == (
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
            'unknown field "dta", duplicate field "data.k"'
        )
    assert ("warning" in answer.headers) == warned
    if status == 201:
        assert "dta" not in answer.json
    if warned:
        assert answer.headers["warning"].startswith('299 - "')


async def test_yaml_body_is_read(api: Caller) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: 'yes'}\n"
    answer = await api("POST", MAPS, body, type="application/yaml")
    assert (answer.status, answer.json["data"]) == (201, {"k": "yes"})
    for wrong, why in ((b"a: [", "did not find expected node content"), (b"a: \xff", "invalid leading UTF-8 octet")):
        answer = await api("POST", MAPS, wrong, type="application/yaml")
        head = "the object provided is unrecognized (must be of type ConfigMap): yaml: "
        assert answer.status == 400 and answer.json["message"].startswith(head) and why in answer.json["message"]
        applied = await api("PATCH", f"{MAPS}/a?fieldManager=m", wrong, type="application/apply-patch+yaml")
        head = "error decoding YAML: error converting YAML to JSON: yaml: "
        assert applied.status == 400 and applied.json["message"].startswith(head) and why in applied.json["message"]


@pytest.mark.parametrize("nothing", [b"", b"# a\n", b"---\n", b"null\n"])
async def test_yaml_body_without_a_document_says_nothing(api: Caller, nothing: bytes) -> None:
    posted = await api("POST", MAPS, nothing, type="application/yaml")
    assert posted.status == 422 and "metadata.name: Required value" in posted.json["message"]
    applied = await api("PATCH", f"{MAPS}/a?fieldManager=m", nothing, type="application/apply-patch+yaml")
    assert (applied.status, applied.json["message"]) == (400, "invalid object type: /, Kind=")
    assert (await api("DELETE", f"{MAPS}/none", nothing, type="application/yaml")).status == 404


async def test_protobuf_body_is_read(api: Caller) -> None:
    # ConfigMap{metadata{name "a"}, data{"k": "v"}} in the envelope of runtime.Unknown.
    raw = b"\x0a\x03\x0a\x01a" + b"\x12\x06\x0a\x01k\x12\x01v"
    meta = b"\x0a\x02v1\x12\x09ConfigMap"
    body = b"k8s\0" + b"\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(raw)]) + raw
    answer = await api("POST", MAPS, body, type="application/vnd.kubernetes.protobuf")
    assert (answer.status, answer.json["data"]) == (201, {"k": "v"}), answer.body


@pytest.mark.parametrize("kind", ["text/plain", "application/cbor", "application/xml"])
async def test_unknown_media_type_gives_415(api: Caller, kind: str) -> None:
    assert (await api("POST", MAPS, b"{}", type=kind)).status == 415


async def test_body_size_and_depth_are_limited(api: Caller) -> None:
    answer = await api("POST", MAPS, config_map("a", k="x" * (3 << 20)))
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    deep = b'{"metadata":{"name":"a"},"x":' + b'{"a":' * 400 + b"1" + b"}" * 401
    answer = await api("POST", MAPS, deep)
    assert answer.status == 400 and "nested deeper" in answer.json["message"]
    fine = config_map("a", k="{[" * 500)
    assert (await api("POST", MAPS, fine)).status == 201
    nested = b"a: " + b"[" * 300 + b"]" * 300
    assert (await api("POST", MAPS, nested, type="application/yaml")).status == 400


async def test_too_many_requests_give_429(api: Caller) -> None:
    from haru.apiserver.config import FlowControl
    from haru.apiserver.request.limits import RequestLimits
    from haru.event_loop import SharedTimeout

    api.app._limits = RequestLimits(FlowControl(1, 0), SharedTimeout(60.0))
    assert (await api("GET", MAPS)).status == 200
    answer = await api("POST", MAPS, config_map("a"))
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")


async def test_concurrent_updates_lose_no_increment(api: Caller) -> None:
    await api.create(MAPS, config_map("n", k="0"))

    async def increment() -> None:
        while True:
            obj = await api.get(f"{MAPS}/n")
            await asyncio.sleep(0)
            obj["data"]["k"] = str(int(obj["data"]["k"]) + 1)
            answer = await api("PUT", f"{MAPS}/n", obj)
            if answer.status == 200:
                return
            assert answer.status == 409

    await asyncio.gather(*(increment() for _ in range(100)))
    assert (await api.get(f"{MAPS}/n"))["data"]["k"] == "100"


async def test_concurrent_patches_are_all_applied(api: Caller) -> None:
    await api.create(MAPS, config_map("n"))
    answers = await asyncio.gather(
        *(api("PATCH", f"{MAPS}/n", {"data": {f"k{i}": "1"}}, type=MERGE) for i in range(60))
    )
    assert {a.status for a in answers} == {200}
    assert len((await api.get(f"{MAPS}/n"))["data"]) == 60


async def test_string_data_of_secret_becomes_data(api: Caller) -> None:
    obj = {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"x": "eQ=="}}
    created = await api.create("/api/v1/namespaces/default/secrets", obj)
    assert created["data"] == {"a": "Yg==", "x": "eQ=="} and "stringData" not in created
    assert created["type"] == "Opaque"


async def test_services_get_cluster_ips_and_node_ports(api: Caller) -> None:
    path = "/api/v1/namespaces/default/services"
    ports = [{"port": 80}]
    first = await api.create(path, {"metadata": {"name": "a"}, "spec": {"ports": ports}})
    second = await api.create(path, {"metadata": {"name": "b"}, "spec": {"ports": ports, "type": "NodePort"}})
    headless = await api.create(path, {"metadata": {"name": "c"}, "spec": {"clusterIP": "None", "ports": ports}})
    assert first["spec"]["clusterIP"] != second["spec"]["clusterIP"]
    assert 30000 <= second["spec"]["ports"][0]["nodePort"] < 32768
    assert headless["spec"]["clusterIPs"] == ["None"]
    bare = {"metadata": {"name": "b"}, "spec": {"ports": ports, "type": "NodePort"}}
    updated = (await api("PUT", f"{path}/b", bare)).json
    assert updated["spec"] == second["spec"]


async def test_field_manager_is_recorded(api: Caller) -> None:
    created = await api.create(f"{MAPS}?fieldManager=me", config_map("a", k="1"))
    (entry,) = created["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("me", "Update")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}
    patched = (await api("PATCH", f"{MAPS}/a", {"data": {"k": "2"}}, type=MERGE)).json
    assert [e["manager"] for e in patched["metadata"]["managedFields"]] == ["me", "tests"]
    assert (await api("POST", f"{MAPS}?fieldManager={'x' * 200}", config_map("b"))).status in (400, 422)


async def test_stored_bytes_have_canonical_order(api: Caller) -> None:
    await api.create(MAPS, config_map("a", text='"resourceVersion":""'))
    body = (await api("GET", f"{MAPS}/a")).body
    assert body.startswith(b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"')
    assert json.loads(body)["data"]["text"] == '"resourceVersion":""'


async def test_namespace_with_a_made_up_name_has_the_label_of_its_name(api: Caller) -> None:
    made = await api.create("/api/v1/namespaces", {"metadata": {"generateName": "g-"}})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": made["metadata"]["name"]}


async def test_empty_list_that_is_always_written_is_its_writers(api: Caller) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]

    def owners(obj: dict[str, Any]) -> list[str]:
        return [one["manager"] for one in obj["metadata"].get("managedFields", []) if "f:rules" in one["fieldsV1"]]

    assert owners(await api.create(f"{roles}?fieldManager=m", {"metadata": {"name": "r"}, "rules": []})) == ["m"]
    assert owners(await api.create(f"{roles}?fieldManager=m", {"metadata": {"name": "none"}, "rules": None})) == []
    for manager, sent in (("k", rules), ("j", []), ("j", []), ("h", [])):
        put = await api("PUT", f"{roles}/r?fieldManager={manager}", {"metadata": {"name": "r"}, "rules": sent})
        assert (owners(put.json), put.json["rules"]) == ([manager], sent or None)
    nodes = "/apis/storage.k8s.io/v1/csinodes"
    csi_node = await api.create(nodes, {"metadata": {"name": "n"}, "spec": {"drivers": []}})
    assert csi_node["metadata"]["managedFields"][0]["fieldsV1"] == {"f:spec": {"f:drivers": {}}}
