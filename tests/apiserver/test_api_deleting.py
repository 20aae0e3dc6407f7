"""DELETE: finalizers, grace, propagation, preconditions, collections, namespaces."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod

MERGE = "application/merge-patch+json"


def options(**fields: Any) -> Any:
    return {"kind": "DeleteOptions", "apiVersion": "v1", **fields}


async def test_deletion_returns_status_with_uid(api: Caller) -> None:
    created = await api.create(MAPS, config_map("a"))
    answer = await api("DELETE", f"{MAPS}/a")
    assert answer.status == 200
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]},
    }
    assert (await api("DELETE", f"{MAPS}/a")).status == 404


async def test_finalizers_delay_deletion(api: Caller) -> None:
    obj = config_map("a")
    obj["metadata"]["finalizers"] = ["a.example/one", "a.example/two"]
    await api.create(MAPS, obj)
    answer = await api("DELETE", f"{MAPS}/a")
    metadata = answer.json["metadata"]
    assert (answer.status, answer.json["kind"], metadata["deletionGracePeriodSeconds"]) == (200, "ConfigMap", 0)
    assert metadata["deletionTimestamp"] == "2026-03-04T05:06:07Z"
    again = await api("DELETE", f"{MAPS}/a")
    assert again.json["metadata"]["resourceVersion"] == metadata["resourceVersion"]
    more = {"metadata": {"finalizers": ["a.example/one", "a.example/three"]}}
    assert (await api("PATCH", f"{MAPS}/a", more, type=MERGE)).status == 422
    fewer = {"metadata": {"finalizers": ["a.example/one"]}}
    assert (await api("PATCH", f"{MAPS}/a", fewer, type=MERGE)).status == 200
    last = await api("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, type=MERGE)
    assert last.status == 200
    assert (await api("GET", f"{MAPS}/a")).status == 404


async def test_pod_is_deleted_gracefully(api: Caller) -> None:
    await api.create(PODS, pod("a", nodeName="n1"))
    answer = await api("DELETE", f"{PODS}/a")
    metadata = answer.json["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2026-03-04T05:06:37Z", 30)
    assert metadata["generation"] == 2
    api.clock.advance(seconds=5)
    longer = await api("DELETE", f"{PODS}/a", options(gracePeriodSeconds=60))
    assert longer.json["metadata"]["deletionTimestamp"] == "2026-03-04T05:06:37Z"
    shorter = await api("DELETE", f"{PODS}/a", options(gracePeriodSeconds=10))
    assert shorter.json["metadata"]["deletionTimestamp"] == "2026-03-04T05:06:17Z"
    assert shorter.json["metadata"]["deletionGracePeriodSeconds"] == 10
    uid = metadata["uid"]
    final = await api("DELETE", f"{PODS}/a", options(gracePeriodSeconds=0, preconditions={"uid": uid}))
    assert final.status == 200 and final.json["kind"] == "Pod"
    assert (await api("GET", f"{PODS}/a")).status == 404


@pytest.mark.parametrize(
    ("spec", "phase", "seconds", "expected"),
    [
        ({}, "", None, None),
        ({"nodeName": "n"}, "Succeeded", None, None),
        ({"nodeName": "n"}, "Failed", 60, None),
        ({"nodeName": "n"}, "Running", 0, None),
        ({"nodeName": "n"}, "Running", -5, 1),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 7}, "Running", None, 7),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 7}, "Running", 3, 3),
    ],
)
async def test_grace_period_follows_pod_spec_and_phase(
    api: Caller, spec: Any, phase: str, seconds: int | None, expected: int | None
) -> None:
    await api.create(PODS, pod("a", **spec))
    if phase:
        await api("PATCH", f"{PODS}/a/status", {"status": {"phase": phase}}, type=MERGE)
    answer = await api("DELETE", f"{PODS}/a", None if seconds is None else options(gracePeriodSeconds=seconds))
    assert answer.status == 200
    left = await api("GET", f"{PODS}/a")
    assert left.status == (404 if expected is None else 200)
    if expected is not None:
        assert left.json["metadata"]["deletionGracePeriodSeconds"] == expected


@pytest.mark.parametrize(
    ("body", "query", "finalizer", "status"),
    [
        (options(propagationPolicy="Foreground"), "", "foregroundDeletion", 200),
        (options(propagationPolicy="Orphan"), "", "orphan", 200),
        (options(orphanDependents=True), "", "orphan", 200),
        (None, "?propagationPolicy=Foreground", "foregroundDeletion", 200),
        (options(propagationPolicy="Background"), "", "", 200),
        (options(propagationPolicy="Sideways"), "", "", 422),
        (options(propagationPolicy="Orphan", orphanDependents=False), "", "", 422),
        ({"kind": "Pod"}, "", "", 400),
    ],
)
async def test_propagation_policy_sets_finalizer(
    api: Caller, body: Any, query: str, finalizer: str, status: int
) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("DELETE", f"{MAPS}/a{query}", body)
    assert answer.status == status, answer.body
    if finalizer:
        assert answer.json["metadata"]["finalizers"] == [finalizer]
    elif status == 200:
        assert answer.json["status"] == "Success"


async def test_accepted_status_is_returned_only_with_orphan_dependents_false(api: Caller) -> None:
    obj = config_map("a")
    obj["metadata"]["finalizers"] = ["a.example/one"]
    await api.create(MAPS, obj)
    assert (await api("DELETE", f"{MAPS}/a", options(orphanDependents=False))).status == 202


async def test_deletion_preconditions_are_checked(api: Caller) -> None:
    created = await api.create(MAPS, config_map("a"))
    for wrong in ({"uid": "x"}, {"resourceVersion": "1"}):
        answer = await api("DELETE", f"{MAPS}/a", options(preconditions=wrong))
        assert answer.status == 409 and "in the precondition" in answer.json["message"]
    right = {"uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"]}
    assert (await api("DELETE", f"{MAPS}/a", options(preconditions=right))).status == 200


async def test_delete_collection_deletes_selected_objects(api: Caller) -> None:
    for index in range(4):
        await api.create(MAPS, config_map(f"m{index}", {"odd": str(index % 2)}))
    answer = await api("DELETE", f"{MAPS}?labelSelector=odd%3D1")
    assert (answer.status, answer.json["kind"]) == (200, "ConfigMapList")
    assert [i["metadata"]["name"] for i in answer.json["items"]] == ["m1", "m3"]
    assert len((await api.get(MAPS))["items"]) == 2


async def test_delete_collection_with_a_limit_says_how_it_goes_on(api: Caller) -> None:
    for index in range(3):
        await api.create(MAPS, config_map(f"m{index}"))
    revision = (await api.get(MAPS))["metadata"]["resourceVersion"]
    first = (await api("DELETE", f"{MAPS}?limit=2")).json
    token = first["metadata"].pop("continue")
    assert first["metadata"] == {"resourceVersion": revision, "remainingItemCount": 1}
    assert [i["metadata"]["name"] for i in first["items"]] == ["m0", "m1"]
    last = (await api("DELETE", f"{MAPS}?limit=2&continue={token}")).json
    assert last["metadata"] == {"resourceVersion": revision}
    assert [i["metadata"]["name"] for i in last["items"]] == ["m2"]
    assert not (await api.get(MAPS))["items"]


async def test_delete_collection_at_a_revision_keeps_what_came_later(api: Caller) -> None:
    old = await api.create(MAPS, config_map("old"))
    await api.create(MAPS, config_map("new"))
    deleted = await api("DELETE", f"{MAPS}?resourceVersion={old['metadata']['resourceVersion']}")
    assert [i["metadata"]["name"] for i in deleted.json["items"]] == ["old"]
    assert [i["metadata"]["name"] for i in (await api.get(MAPS))["items"]] == ["new"]


async def test_namespace_is_deleted_after_finalize(api: Caller) -> None:
    created = await api.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    assert created["spec"] == {"finalizers": ["kubernetes"]} and created["status"] == {"phase": "Active"}
    assert created["metadata"]["labels"]["kubernetes.io/metadata.name"] == "team"
    deleted = await api("DELETE", "/api/v1/namespaces/team")
    assert (deleted.status, deleted.json["status"]["phase"]) == (200, "Terminating")
    answer = await api("POST", "/api/v1/namespaces/team/configmaps", config_map("a"))
    assert (answer.status, answer.json["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    bare = {"metadata": {"name": "team"}, "spec": {"finalizers": []}}
    kept = await api("PUT", "/api/v1/namespaces/team", bare)
    assert kept.json["spec"] == {"finalizers": ["kubernetes"]}
    final = await api("PUT", "/api/v1/namespaces/team/finalize", bare)
    assert final.status == 200
    assert (await api("GET", "/api/v1/namespaces/team")).status == 404


@pytest.mark.parametrize(
    ("name", "described"),
    [
        ("system-node-critical", "must not be moved from their current node."),
        ("system-cluster-critical", "must run in the cluster, but can be moved to another node if necessary."),
    ],
)
async def test_priority_class_of_the_system_is_not_deleted(api: Caller, name: str, described: str) -> None:
    path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}"
    answer = await api("DELETE", path)
    assert (answer.status, answer.json["message"]) == (
        403,
        f'priorityclasses.scheduling.k8s.io "{name}" is forbidden: '
        "this is a system priority class and cannot be deleted",
    )
    kept = await api("GET", path)
    assert (kept.status, kept.json["description"]) == (200, f"Used for system critical pods that {described}")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_system_namespaces_cannot_be_deleted(api: Caller, name: str) -> None:
    answer = await api("DELETE", f"/api/v1/namespaces/{name}")
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")


async def test_delete_options_in_protobuf_are_read(api: Caller) -> None:
    await api.create(PODS, pod("a", nodeName="n"))
    meta = b"\x0a\x02v1\x12\x0dDeleteOptions"
    raw = b"\x08\x05"  # gracePeriodSeconds: 5
    body = b"k8s\0" + b"\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(raw)]) + raw
    answer = await api("DELETE", f"{PODS}/a", body, type="application/vnd.kubernetes.protobuf")
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 5
