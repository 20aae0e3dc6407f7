"""What waits as lists, rows, tables and their schema, as tenants ask for it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from engine_objects import pod
from served_explanations import Served, until_told

from haru.client.api import ApiClient
from haru.explain_server import (
    explanation_path,
    list_path,
)
from haru.kube.kinds import known_kind
from waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Obj = dict[str, Any]


async def test_list_has_the_namespaces_in_which_the_user_may_list(served: Served) -> None:
    client = ApiClient.in_process(served.api)
    theirs = pod("their-secret", cpu="9")
    theirs["metadata"]["namespace"] = "tenant-b"
    await client.create(known_kind("v1", "Pod"), theirs)
    await until_told(served, explanation_path("tenant-b", "pods", "their-secret"), ("bob", "tenant-b", "pods"))
    assert (await served.get(list_path("default"), user="eve"))[0] == 403
    served.api.allowed |= {("eve", "default", "explanations"), ("eve", "", "visibleexplanations")}
    assert (await served.get(list_path("tenant-b"), user="eve"))[0] == 403
    for path in (list_path("default"), list_path("")):
        status, body, _ = await served.get(path, user="eve")
        told = json.loads(body)
        assert (status, told["kind"], told["apiVersion"]) == (200, "ExplanationList", "explain.haru.dev/v1alpha1")
        assert {item["namespace"] for item in told["items"]} == {"default"}
        assert "pod.waits" in {item["metadata"]["name"] for item in told["items"]}
        assert "secret" not in body and "tenant-b" not in body
    text = (await served.get(f"{list_path('')}?output=text", user="eve"))[1]
    assert text.startswith("WHAT") and "in the namespaces that you may list" in text
    served.api.allowed.add(("eve", "tenant-b", "explanations"))
    assert "their-secret" in (await served.get(list_path(""), user="eve"))[1]
    every = "/apis/explain.haru.dev/v1alpha1/explanations"
    assert (await served.get(every, user="eve"))[0] == 403
    served.api.allowed.add(("lister", "", "explanations"))
    assert "their-secret" in (await served.get(every, user="lister"))[1]
    columns = {}
    for path, user in ((list_path(""), "eve"), (every, "lister")):
        table = json.loads(
            (await served.get(path, user=user, accept="application/json;as=Table;v=v1;g=meta.k8s.io"))[1]
        )
        columns[path] = [column["name"] for column in table["columnDefinitions"]]
        assert all(len(row["cells"]) == len(columns[path]) for row in table["rows"])
    assert columns[list_path("")] == ["NAMESPACE", *columns[every]] and columns[every][0] == "WHAT"
    assert (await served.get(f"{list_path('default')}?watch=true", user="eve"))[0] == 405
    none = f"{list_path('default')}?labelSelector=app%3Dnone&output=text"
    assert (await served.get(none, user="eve"))[1] == "nothing waits in namespace default with app=none\n"
    assert (await served.get(f"{list_path('default')}?labelSelector=%3D%3D", user="eve"))[0] == 400


async def test_row_of_what_waits_is_an_object_by_its_name(served: Served) -> None:
    path = f"{list_path('default')}/pod.waits"
    assert (await served.get(path, user="una"))[0] == 403
    served.api.allowed.add(("una", "default", "explanations"))
    served.api.reviews.clear()
    status, body, _ = await served.get(path, user="una")
    [review] = [spec["resourceAttributes"] for spec in served.api.reviews if "name" in spec["resourceAttributes"]]
    assert (review["verb"], review["resource"], review["name"]) == ("get", "explanations", "pod.waits")
    assert status == 200 and "subresource" not in review and "secret-holder" not in body
    told = json.loads(body)
    assert (told.pop("apiVersion"), told.pop("kind")) == ("explain.haru.dev/v1alpha1", "Explanation")
    assert told["metadata"] == {"name": "pod.waits", "namespace": "default"}
    listed = json.loads((await served.get(list_path("default"), user="una"))[1])["items"]
    assert told == next(item for item in listed if item["workload"] == "pod/waits")
    table = json.loads((await served.get(path, user="una", accept="application/json;as=Table;v=v1;g=meta.k8s.io"))[1])
    assert table["kind"] == "Table" and [row["cells"][0] for row in table["rows"]] == ["pod/waits"]
    for name in ("pod.none", "pod.their-secret", "waits"):
        status, body, _ = await served.get(f"{list_path('default')}/{name}", user="una")
        assert (status, json.loads(body)["reason"]) == (404, "NotFound") and name in body
    assert (await served.get("/apis/explain.haru.dev/v1alpha1/explanations/pod.waits", user="una"))[0] == 404


async def test_schema_has_the_fields_of_what_waits(served: Served) -> None:
    index = json.loads((await served.get("/openapi/v3"))[1])["paths"]
    told = json.loads((await served.get(index["apis/explain.haru.dev/v1alpha1"]["serverRelativeURL"]))[1])
    schemas = told["components"]["schemas"]
    served.api.allowed |= {("reader", "default", "explanations"), ("reader", "", "explanations")}
    served.api.allowed.add(("reader", "", "visibleexplanations"))
    for path, operation in told["paths"].items():
        status, body, _ = await served.get(path.format(namespace="default", name="pod.waits"), user="reader")
        found, listed = json.loads(body), operation["get"]["x-kubernetes-action"] == "list"
        assert status == 200 and found["kind"] == ["Explanation", "ExplanationList"][listed]
        for row in found["items"] if listed else [found]:
            assert_fields(row, schemas["Explanation"])
        assert_fields(found, schemas[found["kind"]])


def assert_fields(obj: Obj, schema: Obj) -> None:
    """Each field is described, down to objects of which not all is."""
    assert set(obj) <= schema["properties"].keys() and set(schema.get("required", ())) <= set(obj)
    types = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
    for name, value in obj.items():
        assert isinstance(value, types[schema["properties"][name]["type"]]), name
        if isinstance(value, dict) and "properties" in schema["properties"][name]:
            assert_fields(value, schema["properties"][name])


async def test_workload_and_device_class_are_tables_of_what_waits_with_them(served: Served) -> None:
    client = ApiClient.in_process(served.api)
    controller = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    metadata = {"name": "web-1", "namespace": "default", "uid": "r", "ownerReferences": [controller]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x", cpu="7")["spec"]}
    replicas = {"metadata": metadata, "spec": {"replicas": 2, "template": template}}
    await client.create(
        known_kind("apps/v1", "ReplicaSet"), {"apiVersion": "apps/v1", "kind": "ReplicaSet", **replicas}
    )
    path = explanation_path("default", "deployments", "web")
    told = json.loads(await until_told(served, path, ("jane", "default", "deployments")))
    assert [(item["workload"], item["pods"]) for item in told["items"]] == [("deployment/web", 2)]
    assert (await served.get(explanation_path("default", "deployments", "none")))[0] == 404
    device_class = {"metadata": {"name": "gpu"}, "spec": {}}
    kind = known_kind("resource.k8s.io/v1", "DeviceClass")
    await client.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **device_class})
    path = explanation_path("", "deviceclasses", "gpu")
    assert (await served.get(path))[0] == 403
    told = json.loads(await until_told(served, path, ("jane", "", "deviceclasses")))
    assert told["items"] == []


async def test_work_of_a_kind_that_nobody_knows_is_a_table_of_what_waits_with_it(served: Served) -> None:
    client = ApiClient.in_process(served.api)
    for name, kind in (("step-1", "Workflow"), ("step-2", "Workflow"), ("step-3", "Other")):
        step = pod(name, cpu="7")
        owner = {"apiVersion": "example.com/v1", "kind": kind, "name": "train", "uid": "w", "controller": True}
        step["metadata"]["ownerReferences"] = [owner]
        await client.create(known_kind("v1", "Pod"), step)
    path = explanation_path("default", "workflows", "train")
    assert (await served.get(path))[0] == 403
    told: list[tuple[str, int]] = []

    async def is_told() -> bool:
        items = json.loads(await until_told(served, path, ("jane", "default", "workflows")))["items"]
        told[:] = [(item["workload"], item["pods"]) for item in items]
        return sum(pods for _, pods in told) == 2

    await until(is_told)
    assert told == [("workflow/train", 2)]
    _, text, _ = await served.get(f"{path}?output=text")
    assert "2 pods of 1 workload wait in workflow/train" in text
    assert (await served.get(explanation_path("default", "workflows", "none")))[0] == 404
    assert (await served.get(explanation_path("default", "work%3Aflows", "train")))[0] == 404
    for name in ("step-1", "step-2", "step-3"):
        await client.delete(known_kind("v1", "Pod"), name, "default")


async def test_list_names_why_pods_are_not_made(served: Served) -> None:
    client = ApiClient.in_process(served.api)
    replicas = {"replicas": 1, "template": {"spec": pod("x", cpu="1")["spec"]}}
    metadata = {"name": "refused", "namespace": "refusing"}
    kind = known_kind("apps/v1", "ReplicaSet")
    await client.create(kind, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": replicas})
    served.api.allowed.add(("rob", "refusing", "explanations"))
    about = {"kind": "ReplicaSet", "namespace": "refusing", "name": "refused"}
    message = 'Error creating: serviceaccount "trainer" not found'
    event = {"metadata": {"name": "e", "namespace": "refusing"}, "involvedObject": about, "reason": "FailedCreate"}
    await client.create(known_kind("v1", "Event"), {"apiVersion": "v1", "kind": "Event", "message": message, **event})

    async def is_told() -> bool:
        items = json.loads((await served.get(list_path("refusing"), user="rob"))[1])["items"]
        told = [item["explanation"] for item in items]
        return [one["verdict"] for one in told] == ["FitsIf"] and message in told[0]["summary"]

    await until(is_told)


async def test_workload_that_waits_for_two_reasons_is_two_objects(served: Served) -> None:
    client = ApiClient.in_process(served.api)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "two", "uid": "t", "controller": True}
    for name, needs in (("two-a", {"cpu": "9"}), ("two-b", {"cpu": "1", "node_selector": {"disk": "ssd"}})):
        waits = pod(name, **needs)
        waits["metadata"] |= {"namespace": "twice", "ownerReferences": [owner]}
        await client.create(known_kind("v1", "Pod"), waits)
    await until_told(served, explanation_path("twice", "pods", "two-b"), ("tom", "twice", "pods"))
    served.api.allowed.add(("tom", "twice", "explanations"))
    listed = json.loads((await served.get(list_path("twice"), user="tom"))[1])["items"]
    assert [item["metadata"]["name"] for item in listed] == ["job.two", "job.two.2"]
    for item in listed:
        told = json.loads((await served.get(f"{list_path('twice')}/{item['metadata']['name']}", user="tom"))[1])
        assert {**item, "apiVersion": told["apiVersion"], "kind": "Explanation"} == told


async def test_fields_select_rows_of_what_waits(served: Served) -> None:
    served.api.allowed |= {("fay", "default", "explanations"), ("fay", "", "explanations")}
    every = "/apis/explain.haru.dev/v1alpha1/explanations"

    async def chosen(path: str, fields: str) -> list[str]:
        status, body, _ = await served.get(f"{path}?fieldSelector={quote(fields)}", user="fay")
        assert status == 200, body
        return [item["metadata"]["name"] for item in json.loads(body)["items"]]

    assert await chosen(list_path("default"), "metadata.name=pod.waits") == ["pod.waits"]
    assert "pod.waits" not in await chosen(every, "metadata.name!=pod.waits")
    assert await chosen(every, "metadata.name=pod.waits,metadata.namespace!=default") == []
    text = f"{list_path('default')}?output=text&fieldSelector=metadata.name%3Dnone"
    assert (await served.get(text, user="fay"))[1] == "nothing waits in namespace default with metadata.name=none\n"
    for path in (list_path("default"), list_path("none")):
        served.api.allowed.add(("fay", "none", "explanations"))
        status, body, _ = await served.get(f"{path}?fieldSelector=spec.nodeName%3Dn1", user="fay")
        assert status == 400 and '"spec.nodeName" is not a known field selector' in json.loads(body)["message"]
