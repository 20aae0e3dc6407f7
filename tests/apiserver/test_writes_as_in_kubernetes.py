"""What 1.36's registry does with single kinds: what a PUT creates, what a deletion leaves, what options are refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod

APPLY = "application/apply-patch+yaml"
LIMITS = "/api/v1/namespaces/default/limitranges"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}
SETS = "/apis/apps/v1/namespaces/default/daemonsets"


async def test_put_of_missing_object_creates_it_where_its_kind_allows(api: Caller) -> None:
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": []}}
    created = await api("PUT", f"{LIMITS}/l", body)
    assert (created.status, created.json["spec"]) == (201, {"limits": None})
    assert (await api("PUT", f"{LIMITS}/l", body)).status == 200
    refused = await api("PUT", f"{LIMITS}/m", {**body, "metadata": {"name": "m", "uid": "x"}})
    assert (refused.status, refused.json["message"]) == (
        409,
        'Operation cannot be fulfilled on limitranges "m": StorageError: invalid object, Code: 4, Key: '
        "/registry/limitranges/default/m, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "
        "precondition: x, UID in object meta: ",
    )
    services = "/api/v1/namespaces/default/services"
    service = {"metadata": {"name": "s", "uid": "x"}, "spec": {"ports": [{"port": 80}]}}
    assert " Key: /registry/services/specs/default/s, " in (await api("PUT", f"{services}/s", service)).json["message"]
    assert (await api("PUT", f"{MAPS}/m", config_map("m"))).status == 404


@pytest.mark.parametrize("verb", ["patch", "update"])
async def test_update_and_apply_create_only_for_who_may_create(api: Caller, verb: str) -> None:
    rule = {"apiGroups": [""], "resources": ["limitranges"], "verbs": [verb]}
    await api.create(ROLES, {"metadata": {"name": "r"}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "default"}
    reference = {"kind": "Role", "name": "r"}
    bindings = ROLES.replace("roles", "rolebindings")
    await api.create(bindings, {"metadata": {"name": "b"}, "subjects": [subject], "roleRef": reference})
    await api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "a"}})
    token = await api("POST", "/api/v1/namespaces/default/serviceaccounts/a/token", {"spec": {}})
    user = api.as_(token.json["status"]["token"])
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": []}}

    async def write() -> int:
        if verb == "update":
            return (await user("PUT", f"{LIMITS}/l", body)).status
        return (await user("PATCH", f"{LIMITS}/l?fieldManager=m&force=true", body, type=APPLY)).status

    assert await write() == 403
    await api.create(LIMITS, body)
    assert await write() == 200


@pytest.mark.parametrize(
    ("name", "version", "dry", "code", "shown"),
    [
        ("a", "5", "", 400, None),
        ("a", "5", "?dryRun=All", 201, "5"),
        ("a", "0", "", 201, "set"),
        ("a", "x", "", 201, "set"),
        ("Bad!", "5", "", 422, None),
    ],
)
async def test_version_of_new_object_is_looked_at_last(
    api: Caller, name: str, version: str, dry: str, code: int, shown: str | None
) -> None:
    body = config_map("a")
    answer = await api("POST", f"{MAPS}{dry}", {**body, "metadata": {"name": name, "resourceVersion": version}})
    assert answer.status == code
    given = answer.json["metadata"].get("resourceVersion")
    assert given == shown or (shown == "set" and given not in (None, version))


@pytest.mark.parametrize(
    ("path", "spec", "writes"),
    [
        ("/api/v1/namespaces/default/persistentvolumeclaims", CLAIM, [True, False]),
        (JOBS, {"template": TEMPLATE}, [True, False]),
        (JOBS, {"template": {**TEMPLATE, "metadata": {"labels": {"a": "b"}}}}, [False, False]),
        (MAPS, None, [False, False]),
    ],
)
async def test_first_update_writes_what_the_server_has_added_on_reading(
    api: Caller, path: str, spec: Any, writes: list[bool]
) -> None:
    body = {"metadata": {"name": "a"}, **({"spec": spec} if spec else {})}
    versions = [(await api.create(path, body))["metadata"]["resourceVersion"]]
    for _ in writes:
        again = await api.get(f"{path}/a")
        versions.append((await api("PUT", f"{path}/a", again)).json["metadata"]["resourceVersion"])
    assert [new != old for old, new in itertools.pairwise(versions)] == writes


async def test_deletion_with_a_body_takes_no_option_from_the_query(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    assert (await api("DELETE", f"{MAPS}/a?dryRun=All")).status == 200
    assert (await api("GET", f"{MAPS}/a")).status == 200
    assert (await api("DELETE", f"{MAPS}/a?dryRun=All", {"kind": "DeleteOptions", "apiVersion": "v1"})).status == 200
    assert (await api("GET", f"{MAPS}/a")).status == 404


@pytest.mark.parametrize("dry", ["", "?dryRun=All"])
async def test_deleted_collection_is_answered_as_it_was(api: Caller, dry: str) -> None:
    await api.create(MAPS, config_map("a", {"x": "y"}))
    answer = await api("DELETE", MAPS + dry)
    (item,) = [each for each in answer.json["items"] if each["metadata"]["name"] == "a"]
    assert "deletionTimestamp" not in item["metadata"]


async def test_job_keeps_its_pods_unless_the_request_says_otherwise(api: Caller) -> None:
    for name in ("a", "b"):
        await api.create(JOBS, {"metadata": {"name": name}, "spec": {"template": TEMPLATE}})
    kept = await api("DELETE", f"{JOBS}/a")
    assert kept.json["metadata"]["finalizers"] == ["orphan"]
    assert "child pods are preserved by default" in kept.headers["warning"]
    gone = await api("DELETE", f"{JOBS}/b?propagationPolicy=Background")
    assert (gone.json["kind"], "warning" in gone.headers) == ("Status", False)


async def test_daemon_set_counts_changes_of_its_template(api: Caller) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    await api.create(SETS, body)

    async def change(patch: Any) -> str:
        answer = await api("PATCH", f"{SETS}/d", patch, type="application/merge-patch+json")
        counted: str = answer.json["metadata"]["annotations"]["deprecated.daemonset.template.generation"]
        return counted

    assert await change({"spec": {"minReadySeconds": 3}}) == "1"
    assert await change({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}) == "2"


@pytest.mark.parametrize(("manager", "reason"), [("m" * 129, "FieldValueTooLong"), ("a%01", "FieldValueInvalid")])
async def test_field_manager_that_is_none_is_refused(api: Caller, manager: str, reason: str) -> None:
    answer = await api("POST", f"{MAPS}?fieldManager={manager}", config_map("a"))
    assert answer.status == 422 and answer.json["details"]["kind"] == "CreateOptions"
    assert [cause["reason"] for cause in answer.json["details"]["causes"]] == [reason]


async def test_status_of_pod_has_its_first_address_twice(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    patch = {"status": {"podIPs": [{"ip": "10.0.0.9"}]}}
    answer = await api("PATCH", f"{PODS}/a/status", patch, type="application/merge-patch+json")
    assert answer.json["status"]["podIP"] == "10.0.0.9"
