"""Small promises of 1.36 that its own end-to-end tests hold a server to."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import MAPS, Caller, config_map
from signing_request_objects import REQUEST

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
EVENTS = "/api/v1/namespaces/default/events"
MERGE = "application/merge-patch+json"
SSARS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def test_default_service_cidr_is_there_and_ready(api: Caller) -> None:
    found = await api.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes")
    assert found["spec"] == {"cidrs": ["10.96.0.0/16"]}
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "True")


async def test_namespace_of_a_cluster_scoped_object_is_ignored(api: Caller) -> None:
    role: Any = {"metadata": {"name": "r", "namespace": "default"}, "rules": []}
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    made = await api("POST", path, role)
    assert made.status == 201 and "namespace" not in made.json["metadata"]
    assert (await api("PUT", f"{path}/r", role)).status == 200


async def test_core_events_are_selected_by_the_controller_that_reports_them(api: Caller) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "reportingComponent": "c", "type": "Normal"}
    await api.create(EVENTS, event)
    assert [e["metadata"]["name"] for e in (await api.get(f"{EVENTS}?fieldSelector=source%3Dc"))["items"]] == ["e"]
    assert not (await api.get(f"{EVENTS}?fieldSelector=source%3Dd"))["items"]


async def test_review_has_no_table(api: Caller) -> None:
    spec = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    assert (await api("POST", SSARS, spec, accept=TABLE)).status == 406
    assert (await api("POST", SSARS, spec)).status == 201


@pytest.mark.parametrize("part", ["approval", "status"])
async def test_signing_request_takes_annotations_by_way_of_its_parts(api: Caller, part: str) -> None:
    spec = {"request": REQUEST, "signerName": "example.com/a", "usages": ["client auth"]}
    await api.create(CSRS, {"metadata": {"name": "c"}, "spec": spec})
    patch = {"metadata": {"annotations": {"patched": part}}}
    assert (await api("PATCH", f"{CSRS}/c/{part}", patch, type=MERGE)).status == 200
    assert (await api.get(f"{CSRS}/c"))["metadata"]["annotations"] == {"patched": part}


async def test_namespace_takes_finalizers_by_way_of_finalize(api: Caller) -> None:
    path = "/api/v1/namespaces/team"
    namespace = await api.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    namespace["spec"]["finalizers"].append("example.com/hold")
    changed = await api("PUT", f"{path}/finalize", namespace)
    assert changed.status == 200
    assert (await api.get(path))["spec"]["finalizers"] == ["kubernetes", "example.com/hold"]


async def test_owner_that_is_named_twice_counts_once_and_warns(api: Caller) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    made = await api("POST", MAPS, {"metadata": {"name": "m", "ownerReferences": [owner, owner]}})
    assert made.json["metadata"]["ownerReferences"] == [owner]
    assert "duplicate UID(s) observed: u" in made.headers["warning"]


async def test_future_revision_is_refused_in_a_read_and_waited_for_in_a_watch(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    assert (await api("GET", f"{MAPS}/a?resourceVersion=99999999")).status == 504
    watched = await api("GET", f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=99999999")
    assert (watched.status, watched.body) == (200, b"")


@pytest.mark.parametrize("accept", ["application/xml", "application/*", f"{TABLE.replace('v=v1', 'v=v9')}"])
async def test_media_type_that_is_not_served_is_refused_before_the_object_is_looked_for(
    api: Caller, accept: str
) -> None:
    assert (await api("GET", f"{MAPS}/none", accept=accept)).status == 406


async def test_failure_is_told_in_yaml_to_who_wants_yaml(api: Caller) -> None:
    answer = await api("GET", f"{MAPS}/none", accept="application/yaml")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/yaml")
    assert b"reason: NotFound" in answer.body


async def test_unknown_field_of_an_apply_is_refused_whatever_the_strictness(api: Caller) -> None:
    applied = {**config_map("a"), "nope": 1}
    for wish in ("Ignore", "Warn", "Strict"):
        path = f"{MAPS}/a?fieldManager=m&fieldValidation={wish}"
        answer = await api("PATCH", path, applied, type="application/apply-patch+yaml")
        assert (answer.status, ".nope: field not declared in schema" in answer.json["message"]) == (500, True)


async def test_what_is_answered_and_not_stored_says_who_set_which_fields(api: Caller) -> None:
    await api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "a"}})
    token = await api("POST", "/api/v1/namespaces/default/serviceaccounts/a/token", {"spec": {}})
    (entry,) = token.json["metadata"]["managedFields"]
    assert (entry["fieldsV1"], entry["subresource"]) == ({"f:spec": {"f:expirationSeconds": {}}}, "token")
    review = await api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}})
    assert review.json["metadata"]["managedFields"][0]["fieldsV1"] == {"f:spec": {"f:token": {}}}


async def test_what_the_server_makes_itself_is_its_own(api: Caller) -> None:
    namespace = await api.get("/api/v1/namespaces/kube-system")
    assert [entry["manager"] for entry in namespace["metadata"]["managedFields"]] == ["kube-apiserver"]


@pytest.mark.parametrize("path", ["/version", "/api/v1/namespaces", "/apis", "/healthz"])
async def test_time_limit_in_the_url_must_be_a_duration(api: Caller, path: str) -> None:
    refused = await api("GET", f"{path}?timeout=soon")
    message = 'invalid timeout specified in the request URL - time: invalid duration "soon"'
    assert (refused.status, refused.json["message"]) == (400, message)
    for text in ("0s", "3m", "1m30s", ""):
        assert (await api("GET", f"{path}?timeout={text}")).status == 200, text
