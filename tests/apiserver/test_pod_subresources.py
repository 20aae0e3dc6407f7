"""What the subresources of a pod accept: ephemeral containers, resizes, bindings, status (by answers of 1.36.2)."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from api_caller import PODS, Caller, pod

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
NODES = "/api/v1/nodes"


def container(name: str = "main", **resources: Any) -> Any:
    return {"name": name, "image": "i", **({"resources": resources} if resources else {})}


def causes(answer: Any) -> set[tuple[str, str]]:
    return {(cause["reason"], cause.get("field", "")) for cause in answer.json["details"]["causes"]}


async def node(api: Caller, name: str = "n1", **labels: str) -> None:
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "10"}
    status = {"capacity": amounts, "allocatable": amounts}
    await api.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})


# -- ephemeral containers


@pytest.mark.parametrize(
    ("added", "reason", "field"),
    [
        ({"targetContainerName": "none"}, "FieldValueNotFound", "targetContainerName"),
        ({"image": ""}, "FieldValueRequired", "image"),
        ({"volumeMounts": [{"name": "none", "mountPath": "/x"}]}, "FieldValueNotFound", "volumeMounts[0].name"),
        ({"ports": [{"containerPort": 1}]}, "FieldValueForbidden", "ports"),
        ({"lifecycle": {}}, "FieldValueForbidden", "lifecycle"),
        ({"restartPolicy": "Always"}, "FieldValueForbidden", "restartPolicy"),
        ({"name": "Big"}, "FieldValueInvalid", "name"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_invalid_ephemeral_container_is_refused(api: Caller, added: Any, reason: str, field: str) -> None:
    await api.create(PODS, pod("a"))
    body = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox", **added}]}}
    answer = await api("PATCH", f"{PODS}/a/ephemeralcontainers", body, type=STRATEGIC)
    assert answer.status == 422, answer.body
    assert (reason, f"spec.ephemeralContainers[0].{field}") in causes(answer)
    labelled = await api("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}, type=MERGE)
    assert labelled.status == 200, "the pod can still be updated"


async def test_ephemeral_container_of_a_mirror_pod_is_refused(api: Caller) -> None:
    obj = pod("a", nodeName="n1", automountServiceAccountToken=False)
    obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    await api.create(PODS, obj)
    body = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}
    answer = await api("PATCH", f"{PODS}/a/ephemeralcontainers", body, type=STRATEGIC)
    assert answer.status == 422 and "static pods do not support ephemeral containers" in answer.json["message"]


# -- resize


async def sized(api: Caller, name: str = "a", running: Any = None, **spec: Any) -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    await api.create(PODS, pod(name, **{"containers": [container(**resources)], **spec}))
    if running is not None:
        seen = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
        status = {"status": {"phase": "Running", "containerStatuses": [{**seen, **running}]}}
        assert (await api("PATCH", f"{PODS}/{name}/status", status, type=MERGE)).status == 200


async def resize(api: Caller, spec: Any, name: str = "a", type: str = STRATEGIC) -> Any:
    return await api("PATCH", f"{PODS}/{name}/resize", {"spec": spec}, type=type)


@pytest.mark.parametrize(
    ("resources", "reason", "field"),
    [
        ({"requests": {"cpu": "3"}}, "FieldValueInvalid", "spec.containers[0].resources.requests"),
        ({"requests": {"cpu": "-1"}}, "FieldValueInvalid", "spec.containers[0].resources.requests[cpu]"),
        ({"limits": {"cpu": None}}, "FieldValueForbidden", "spec.containers[0].resources.limits"),
        ({"requests": {"memory": None}}, "FieldValueForbidden", "spec.containers[0].resources.requests"),
        ({"limits": {"a.example/x": "1"}}, "FieldValueForbidden", "spec"),
        ({"requests": {"ephemeral-storage": "1Gi"}}, "FieldValueForbidden", "spec"),
    ],
    ids=["above the limit", "negative", "no limit", "no request", "extended", "storage"],
)
async def test_invalid_resize_is_refused(api: Caller, resources: Any, reason: str, field: str) -> None:
    await sized(api)
    answer = await resize(api, {"containers": [{"name": "main", "resources": resources}]})
    assert answer.status == 422, answer.body
    assert (reason, field) in causes(answer)
    assert (await api.get(f"{PODS}/a"))["metadata"]["generation"] == 1


async def test_resize_with_other_containers_is_refused(api: Caller) -> None:
    await sized(api)
    more = await resize(api, {"containers": [container("more")]})
    assert more.status == 422 and ("FieldValueForbidden", "spec.containers") in causes(more)
    renamed = await resize(api, {"containers": [container("other", requests={"cpu": "1"})]}, type=MERGE)
    assert renamed.status == 422 and ("FieldValueForbidden", "spec.containers[0].name") in causes(renamed)


async def test_resize_that_changes_an_image_keeps_the_image(api: Caller) -> None:
    await sized(api)
    answer = await resize(api, {"containers": [{"name": "main", "image": "other"}]})
    assert answer.status == 200 and answer.json["spec"]["containers"][0]["image"] == "i"
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    refused = await resize(api, {"containers": [{"name": "main", "resizePolicy": policy}]})
    assert refused.status == 422 and ("FieldValueForbidden", "spec") in causes(refused)


async def test_resize_of_pod_level_resources_is_stored(api: Caller) -> None:
    await sized(api, resources={"requests": {"cpu": "2", "memory": "2Gi"}})
    answer = await resize(api, {"resources": {"requests": {"cpu": "3"}}})
    assert answer.status == 200, answer.body
    assert answer.json["spec"]["resources"]["requests"] == {"cpu": "3", "memory": "2Gi"}
    dropped = await resize(api, {"resources": {"requests": {"cpu": None}}})
    assert ("FieldValueForbidden", "spec.resources.requests") in causes(dropped)


async def test_resize_on_node_without_resize_support_is_refused(api: Caller) -> None:
    await node(api)
    await sized(api, running={}, nodeName="n1")
    await sized(api, "b", running={"resources": {}}, nodeName="n1")
    wanted = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1500m"}}}]}
    answer = await resize(api, wanted)
    assert answer.status == 422 and "Pod running on node without support for resize" in answer.json["message"]
    assert (await resize(api, wanted, "b")).status == 200


@pytest.mark.parametrize(
    ("labels", "bound_to", "resources", "code", "cause", "text"),
    [
        ({}, "n1", {"requests": {"cpu": "8"}, "limits": {"cpu": "9"}}, 200, "", ""),
        (
            {},
            "n1",
            {"requests": {"cpu": "9"}, "limits": {"cpu": "9"}},
            403,
            "NodeCapacity",
            "node didn't have enough allocatable resources: cpu, requested: 9000, allocatable: 8000",
        ),
        (
            {},
            "n1",
            {"requests": {"memory": "17Gi"}},
            403,
            "NodeCapacity",
            "node didn't have enough allocatable resources: memory, requested: 18253611008, allocatable: 17179869184",
        ),
        ({"kubernetes.io/os": "windows"}, "n1", {"requests": {"cpu": "2"}}, 403, "UnsupportedPlatform", "linux nodes"),
        ({}, "n2", {"requests": {"cpu": "2"}}, 403, "", 'node "n2" not found'),
        ({}, "", {"requests": {"cpu": "9"}, "limits": {"cpu": "9"}}, 200, "", ""),
        ({}, "n1", {}, 200, "", ""),
    ],
    ids=["all of the node", "too much cpu", "too much memory", "windows", "no node", "not bound", "nothing changes"],
)
async def test_resize_is_checked_against_the_node(
    api: Caller, labels: dict[str, str], bound_to: str, resources: Any, code: int, cause: str, text: str
) -> None:
    await node(api, **labels)
    await sized(api, **({"nodeName": bound_to} if bound_to else {}))
    answer = await resize(api, {"containers": [{"name": "main", "resources": resources}]})
    assert answer.status == code, answer.body
    if code == 403:
        assert text in answer.json["message"]
        assert [c["reason"] for c in answer.json["details"].get("causes", [])] == ([cause] if cause else [])


# -- binding


@pytest.mark.parametrize("metadata", [{"name": "b"}, {}, {"name": "a", "namespace": "other"}], ids=str)
async def test_binding_with_other_name_than_path_is_refused(api: Caller, metadata: Any) -> None:
    for name in ("a", "b"):
        await api.create(PODS, pod(name))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    answer = await api("POST", f"{PODS}/a/binding", {"metadata": metadata, "target": target})
    assert answer.status == 400, answer.body
    if metadata.get("namespace") is None:
        assert answer.json["message"] == "name in URL does not match name in Binding object"
    for name in ("a", "b"):
        assert "nodeName" not in (await api.get(f"{PODS}/{name}"))["spec"]


# -- status


async def test_status_update_without_qos_class_keeps_it(api: Caller) -> None:
    made = await api.create(PODS, pod("a"))
    del made["status"]["qosClass"]
    answer = await api("PUT", f"{PODS}/a/status", {**made, "status": {**made["status"], "phase": "Running"}})
    assert answer.status == 200, answer.body
    assert (answer.json["status"]["phase"], answer.json["status"]["qosClass"]) == ("Running", "BestEffort")
    other = {**answer.json, "status": {"qosClass": "Guaranteed"}}
    assert (await api("PUT", f"{PODS}/a/status", other)).status == 422, "nobody changes it"


async def test_status_update_without_observed_generation_keeps_it(api: Caller) -> None:
    made = await api.create(PODS, pod("a"))
    observed = [{"type": kind, "status": "True", "observedGeneration": 1} for kind in ("Ready", "Initialized")]
    first = {**made, "status": {"observedGeneration": 1, "conditions": observed}}
    assert (await api("PUT", f"{PODS}/a/status", first)).status == 200
    later = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "False", "observedGeneration": 2}]
    answer = await api("PUT", f"{PODS}/a/status", {**made, "metadata": {"name": "a"}, "status": {"conditions": later}})
    assert answer.status == 200, answer.body
    found = {c["type"]: c["observedGeneration"] for c in answer.json["status"]["conditions"]}
    assert (answer.json["status"]["observedGeneration"], found) == (1, {"Initialized": 1, "Ready": 2})


# -- the recorded answers

_COMPARED = re.compile(r"/pods/[^/]+/(binding|ephemeralcontainers|resize|status)(\?.*)?$")


async def test_pod_subresources_answer_as_recorded(api: Caller, reference_data: Path) -> None:
    with gzip.open(reference_data / "vectors" / "api" / "special.jsonl.gz", "rt") as file:
        (steps,) = (one["steps"] for one in map(json.loads, file) if one["name"] == "podsubs")
    saved: dict[str, Any] = {}
    different, compared = [], 0
    for number, step in enumerate(steps):
        body = json.loads(_fill(json.dumps(step.get("body"))))
        if isinstance(body, dict) and "$object" in body:
            body = _changed(saved[body["$object"]], body["$set"])
        type_ = (step.get("headers") or {}).get("Content-Type", "application/json")
        answer = await api(step["method"], _fill(step["path"]), body, type=type_)
        if step.get("save") and answer.status < 400:
            saved[step["save"]] = answer.json
        if _COMPARED.search(step["path"]):
            compared += 1
            expected = json.loads(_fill(json.dumps(step["expect"])))
            if _shown(answer) != _expected(expected):
                different.append((number, step.get("what"), _shown(answer), _expected(expected)))
    assert compared > 25 and different == []


def _fill(text: str) -> str:
    return text.replace("{{run}}", "zabcdef").replace("RUN", "zabcdef")


def _changed(obj: Any, changes: Any) -> Any:
    obj = json.loads(json.dumps(obj))
    for path, value in changes.items():
        *parents, last = path.split("/")
        target = obj
        for name in parents:
            target = target[name]
        if value == "$delete":
            target.pop(last, None)
        else:
            target[last] = value
    return obj


def _shown(answer: Any) -> Any:
    if answer.status >= 400:
        found = (answer.json.get("details") or {}).get("causes") or []
        return answer.status, answer.json["reason"], {(c["reason"], c.get("field", "")) for c in found}
    return answer.status, _core(answer.json)


def _expected(expect: Any) -> Any:
    if expect["code"] >= 400:
        return expect["code"], expect["reason"], {(reason, field) for reason, field, _ in expect.get("causes") or []}
    return expect["code"], _core(expect["object"])


def _core(obj: Any) -> Any:
    """What subresources are about: the spec, the generation and the phase."""
    return obj.get("spec"), (obj.get("metadata") or {}).get("generation"), (obj.get("status") or {}) and _phase(obj)


def _phase(obj: Any) -> Any:
    status = obj["status"]
    return status if isinstance(status, str) else (status.get("phase"), status.get("qosClass"))
