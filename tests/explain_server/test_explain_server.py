"""Tenants' questions over real sockets: who is believed, who may ask, and whose names are told."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from engine_objects import node, pod
from fake_api import FakeApi
from prometheus_client.parser import text_string_to_metric_families

from haru.apiserver.auth import Pair, client_pair, new_authority
from haru.client.api import ApiClient
from haru.engine import SchedulerCache
from haru.explain.diagnosis import pending
from haru.explain_server import (
    ExplainServer,
    Limits,
    answers,
    api_service,
    explanation_path,
    list_path,
    register,
    registered_bundle,
)
from haru.explain_server.metrics import Metrics
from haru.kube.kinds import known_kind
from haru.secure_serving.certificates import self_signed
from haru.secure_serving.options import ServingOptions
from waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Obj = dict[str, Any]
NOW = datetime.now(UTC)
FRONT, OTHER = new_authority(NOW, "front-proxy"), new_authority(NOW, "other")
PATH = explanation_path("default", "pods", "waits")


class ReviewingApi(FakeApi):
    """A cluster whose reviews go by `allowed`: user, namespace and resource."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: set[tuple[str, str, str]] = set()
        self.reviews: list[Obj] = []

    async def _answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, Obj]:
        if path.endswith("/tokenreviews"):
            name = json.loads(body)["spec"]["token"]
            return 201, {"status": {"authenticated": name == "prometheus", "user": {"username": name}}}
        if not path.endswith("/subjectaccessreviews"):
            return await super()._answer(method, path, query, body)
        spec = json.loads(body)["spec"]
        if (about := spec.get("nonResourceAttributes")) is not None:
            what = (spec["user"], about["verb"], about["path"])
            return 201, {"status": {"allowed": what == ("prometheus", "get", "/metrics")}}
        self.reviews.append(spec)
        about = spec["resourceAttributes"]
        what = (spec["user"], about.get("namespace", ""), about["resource"])
        verb = "list" if about["resource"].endswith("explanations") and "name" not in about else "get"
        return 201, {"status": {"allowed": what in self.allowed and about["verb"] == verb}}


@dataclass
class Served:
    api: ReviewingApi
    url: str
    directory: Path

    async def get(
        self,
        path: str = PATH,
        user: str = "jane",
        pair: Pair | None = None,
        method: str = "GET",
        token: str = "",
        accept: str = "*/*",
    ) -> tuple[int, str, dict[str, str]]:
        """Ask as the aggregation layer does, or with another certificate."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        shown = client_pair(FRONT, "proxy", (), NOW) if pair is None else pair
        if shown.certificate:
            file = self.directory / "client.pem"
            file.write_bytes(shown.certificate + b"\n" + shown.key)
            context.load_cert_chain(file)
        headers = {"Accept": accept}
        headers |= {"X-Remote-User": user, "X-Remote-Group": "devs"} if user else {}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, f"{self.url}{path}", headers=headers) as found,
        ):
            return found.status, await found.text(), {k.lower(): v for k, v in found.headers.items()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    api = ReviewingApi()
    client = ApiClient.in_process(api)
    front = {
        "requestheader-client-ca-file": FRONT.certificate.decode(),
        "requestheader-allowed-names": '["proxy"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    meta = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    await client.create(known_kind("v1", "ConfigMap"), {"metadata": meta, "data": front})
    holder = pod("secret-holder", cpu="8", node="n1", priority=3)
    holder["metadata"]["namespace"] = "tenant-b"
    for obj in (node("n1"), pod("waits", cpu="4"), holder):
        await client.create(known_kind(obj["apiVersion"], obj["kind"]), obj)
    options = ServingOptions(address="127.0.0.1")
    limits = Limits(waiting=2, waiting_per_user=1, review_seconds=0.0)
    server = ExplainServer(client, options, limits, now=lambda: NOW)
    await server.start()
    found = Served(api, f"https://127.0.0.1:{server.port}", tmp_path_factory.mktemp("explain"))
    api.allowed.add(("jane", "default", "pods"))

    async def is_ready() -> bool:
        return (await found.get("/readyz", user="", pair=Pair(b"", b"")))[0] == 200

    await until(is_ready)
    yield found
    await server.stop()
    await client.close()


async def test_tenant_is_told_numbers_without_names_of_other_namespaces(served: Served) -> None:
    status, body, _ = await served.get()
    told = json.loads(body)
    assert (status, told["kind"], told["apiVersion"]) == (200, "Explanation", "explain.haru.dev/v1alpha1")
    assert told["metadata"] == {"name": "waits", "namespace": "default"}
    assert told["verdict"] == "FitsLater" and "insufficient cpu" in body.lower()
    assert "secret-holder" not in body and "tenant-b" not in body
    [evict] = [remedy for remedy in told["remedies"] if remedy["kind"] == "Evict"]
    assert evict["summary"].startswith("end 1 pod of another namespace (priority 3)") and evict["confirmed"]
    assert evict["changes"] == [] and "command" not in evict


async def test_names_are_told_to_whom_reviews_allow_them(served: Served) -> None:
    for resource in ("pods", "resourceclaims"):
        served.api.allowed.add(("jane", "tenant-b", resource))
    try:
        assert "secret-holder" in (await served.get())[1]
        served.api.allowed.discard(("jane", "tenant-b", "resourceclaims"))
        assert "secret-holder" not in (await served.get())[1]
    finally:
        served.api.allowed.discard(("jane", "tenant-b", "pods"))
    served.api.allowed |= {("root", "default", "pods"), ("root", "", "pods"), ("root", "", "resourceclaims")}
    assert "secret-holder" in (await served.get(user="root"))[1]


async def test_text_is_the_short_form_or_the_whole(served: Served) -> None:
    status, short, headers = await served.get(f"{PATH}?output=text")
    assert status == 200 and short.startswith("Pod default/waits: FitsLater") and short.count("\n") <= 5
    assert headers["content-type"].startswith("text/plain")
    asked = (await served.get(f"{PATH}?output=text&command=haru%20explain%20pod%2Fwaits%20--context%20c"))[1]
    assert asked == short.replace("haru explain pod/waits -n default", "haru explain pod/waits --context c")
    assert asked != short
    whole = (await served.get(f"{PATH}?output=wide"))[1]
    assert whole.startswith("Pod default/waits: FitsLater") and "secret-holder" not in short + whole
    assert (await served.get(f"{PATH}?output=xml"))[0] == 400
    assert json.loads((await served.get(f"{PATH}?remedies=false"))[1])["remedies"] == []


@pytest.mark.parametrize(
    ("path", "user", "expected"),
    [
        (PATH, "bob", (403, "Forbidden")),
        (explanation_path("tenant-b", "pods", "secret-holder"), "jane", (403, "Forbidden")),
        (explanation_path("tenant-b", "pods", "nothing"), "jane", (403, "Forbidden")),
        (explanation_path("default", "pods", "nothing"), "jane", (404, "NotFound")),
        (explanation_path("default", "secrets", "waits"), "jane", (404, "NotFound")),
        ("/apis/explain.haru.dev/v1alpha1/namespaces/default/pods/waits", "jane", (404, "NotFound")),
        ("/apis/explain.haru.dev/v1alpha1/namespaces/default/pods//waits/explanation", "jane", (404, "NotFound")),
    ],
)
async def test_refusals_are_kubernetes_status_objects(
    served: Served, path: str, user: str, expected: tuple[int, str]
) -> None:
    status, body, _ = await served.get(path, user=user)
    told = json.loads(body)
    assert (status, told["kind"], told["code"], told["reason"]) == (expected[0], "Status", *expected)


async def test_review_asks_for_the_subresource_in_the_namespace(served: Served) -> None:
    served.api.reviews.clear()
    await served.get()
    [first, *_] = [spec for spec in served.api.reviews if "name" in spec["resourceAttributes"]]
    assert first["resourceAttributes"] == {
        "namespace": "default",
        "verb": "get",
        "group": "explain.haru.dev",
        "version": "v1alpha1",
        "resource": "pods",
        "subresource": "explanation",
        "name": "waits",
    }
    assert (first["user"], first["groups"]) == ("jane", ["devs", "system:authenticated"])


async def test_headers_need_the_certificate_of_the_aggregation_layer(served: Served) -> None:
    assert (await served.get(pair=Pair(b"", b"")))[0] == 401
    assert (await served.get(pair=client_pair(FRONT, "jane", (), NOW)))[0] == 401
    assert (await served.get(user=""))[0] == 401
    with pytest.raises((aiohttp.ClientError, OSError)):
        await served.get(pair=client_pair(OTHER, "proxy", (), NOW))
    assert (await served.get("/apis/explain.haru.dev/v1alpha1", pair=Pair(b"", b"")))[0] == 401
    assert (await served.get("/healthz", user="", pair=Pair(b"", b"")))[:2] == (200, "ok")


async def test_metrics_are_for_those_whose_token_may_read_them(served: Served) -> None:
    nobody = Pair(b"", b"")
    assert (await served.get("/metrics", pair=nobody, user=""))[0] == 403
    # Who speaks for users is no user: neither the certificate nor the headers count.
    assert (await served.get("/metrics", user="prometheus"))[0] == 403
    assert (await served.get("/metrics", pair=nobody, user="", token="stolen"))[0] == 401
    await served.get()
    await served.get(explanation_path("default", "pods", "nothing"))
    status, body, headers = await served.get("/metrics", pair=nobody, user="", token="prometheus")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = {found.name: found for found in text_string_to_metric_families(body)}
    labels = [sample.labels for sample in families["apiserver_request"].samples]
    assert {"verb": "GET", "resource": "pods", "code": "404"} in labels
    assert families["haru_explain_cache_objects"].samples
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text().split("## The resident answer")[1]
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", page.split("## ")[0], re.M)
    types = {(name, kind) for name, kind, _ in listed}
    assert types == set(re.findall(r"^# TYPE (\w+) (\w+)$", "\n".join(all_metrics()), re.M))


def all_metrics() -> list[str]:
    """The text of each metric, once each has been counted."""
    metrics = Metrics(lambda: 0, lambda: SchedulerCache().snapshot())
    metrics.observe(PATH, 429, 0.1)
    return metrics.text().decode().splitlines()


async def test_nothing_but_reading(served: Served) -> None:
    assert (await served.get(method="POST"))[0] == 405
    assert (await served.get(method="HEAD"))[:2] == (200, "")


async def test_discovery_lists_subresources(served: Served) -> None:
    listed = json.loads((await served.get("/apis/explain.haru.dev/v1alpha1", user="system:kube-aggregator"))[1])
    assert listed["kind"] == "APIResourceList" and listed["groupVersion"] == "explain.haru.dev/v1alpha1"
    names = {each["name"] for each in listed["resources"]}
    assert {"pods/explanation", "podgroups/explanation", "jobs/explanation", "jobsets/explanation"} <= names
    assert {"deployments/explanation", "nodes/explanation", "explanations", "visibleexplanations"} <= names
    whole = {each["name"].partition("/")[0] for each in listed["resources"] if not each["namespaced"]}
    assert whole == {"nodes", "devices", "deviceclasses", "visibleexplanations"}
    verbs = {"explanations": ["get", "list"], "visibleexplanations": ["list"]}
    assert all(each["verbs"] == verbs.get(each["name"], ["get"]) for each in listed["resources"])
    assert json.loads((await served.get("/apis"))[1])["groups"][0]["name"] == "explain.haru.dev"


async def test_node_is_told_without_names_of_other_namespaces(served: Served) -> None:
    path = explanation_path("", "nodes", "n1")
    assert (await served.get(path))[0] == 403
    served.api.allowed.add(("jane", "", "nodes"))
    status, body, _ = await served.get(path)
    told = json.loads(body)
    assert (status, told["kind"], told["subject"]["name"]) == (200, "NodeExplanation", "n1")
    [holder] = told["workloads"]
    assert (holder["workload"], holder["priority"], holder["pods"]) == ("1 workload of another namespace", 3, [])
    assert "secret-holder" not in body and "tenant-b" not in body
    text = (await served.get(f"{path}?output=wide"))[1]
    assert text.startswith("Node n1: ") and "of another namespace" in text and "secret-holder" not in text
    served.api.allowed |= {("root", "", name) for name in ("nodes", "pods", "resourceclaims")}
    assert "secret-holder" in (await served.get(path, user="root"))[1]
    assert (await served.get(explanation_path("", "nodes", "none"), user="root"))[0] == 404
    assert (await served.get(explanation_path("default", "nodes", "n1"), user="root"))[0] == 404


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


async def test_name_that_another_namespace_has_is_not_found_without_a_hint(served: Served) -> None:
    client, kind = ApiClient.in_process(served.api), known_kind("scheduling.k8s.io/v1alpha2", "Workload")
    template = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 1}}}
    theirs = {"metadata": {"name": "plan", "namespace": "tenant-b"}, "spec": {"podGroupTemplates": [template]}}
    await client.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **theirs})
    await until_told(served, explanation_path("tenant-b", "workloads", "plan"), ("bob", "tenant-b", "workloads"))
    served.api.allowed.add(("jane", "default", "workloads"))
    for name in ("plan", "plam"):
        status, body, _ = await served.get(explanation_path("default", "workloads", name))
        assert status == 404 and "tenant-b" not in body and "did you mean" not in body


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


async def until_told(served: Served, path: str, right: tuple[str, str, str]) -> str:
    """The answer for who has a right, once the cache has what was written."""
    served.api.allowed.add(right)
    answers: list[str] = []

    async def is_told() -> bool:
        status, body, _ = await served.get(path, user=right[0])
        answers.append(body)
        return status == 200

    await until(is_told)
    return answers[-1]


async def test_object_that_was_just_written_is_seen(served: Served) -> None:
    client = ApiClient.in_process(served.api)
    for number in range(5):
        made = pod(f"fresh-{number}", cpu="4")
        await client.create(known_kind("v1", "Pod"), made)
        assert (await served.get(explanation_path("default", "pods", f"fresh-{number}")))[0] == 200
    await client.delete(known_kind("v1", "Pod"), "fresh-0", "default")
    assert (await served.get(explanation_path("default", "pods", "fresh-0")))[0] == 404


async def test_event_of_a_claim_that_is_not_prepared_is_read(served: Served) -> None:
    client = ApiClient.in_process(served.api)
    made = pod("unprepared", cpu="1", node="n1")
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gone"}]
    made["status"] = {"phase": "Pending"}
    about = {"kind": "Pod", "name": "unprepared", "namespace": "default"}
    message = "Failed to prepare dynamic resources: prepare dynamic resources: the card is on fire"
    event = {
        "metadata": {"name": "unprepared.1", "namespace": "default"},
        "involvedObject": about,
        "reason": "FailedPrepareDynamicResources",
        "message": message,
        "count": 3,
    }
    for kind, obj in ((known_kind("v1", "Pod"), made), (known_kind("v1", "Event"), event)):
        await client.create(kind, obj)
    path = explanation_path("default", "pods", "unprepared")
    told = json.loads((await served.get(path))[1])
    assert told["verdict"] == "FitsIf" and "(3 attempts): the card is on fire" in told["summary"], told["summary"]


async def test_questions_beyond_the_bound_get_429(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate, explain = threading.Event(), threading.Event(), answers.explain

    def slow(*args: Any, **given: Any) -> Any:
        entered.set()
        assert gate.wait(60)
        return explain(*args, **given)

    # Pods that nobody has asked for: an answer that is kept would not be computed.
    client = ApiClient.in_process(served.api)
    for name in ("long", "beyond"):
        await client.create(known_kind("v1", "Pod"), pod(name, cpu="4"))
    monkeypatch.setattr(answers, "explain", slow)
    begun = asyncio.create_task(served.get(explanation_path("default", "pods", "long")))
    await until(entered.is_set)
    try:
        status, body, headers = await served.get(explanation_path("default", "pods", "beyond"))
    finally:
        gate.set()
    assert (status, headers["retry-after"], json.loads(body)["details"]["retryAfterSeconds"]) == (429, "1", 1)
    assert (await begun)[0] == 200
    assert (await served.get())[0] == 200


async def test_changed_answer_is_diagnosed_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    path, client = explanation_path("default", "pods", "changes"), ApiClient.in_process(served.api)
    await client.create(known_kind("v1", "Pod"), pod("changes", cpu="4"))
    before = json.loads((await served.get(path))[1])
    diagnosed: list[int] = []
    tell, diagnose = answers.Answers._told, pending.diagnose

    def counted(*args: Any) -> Any:
        diagnosed[-1] += 1
        return diagnose(*args)

    def told(*args: Any) -> Any:
        diagnosed.append(0)
        return tell(*args)

    monkeypatch.setattr(answers.Answers, "_told", told)
    monkeypatch.setattr(pending, "diagnose", counted)
    await client.create(known_kind("v1", "Node"), node("one-more"))

    async def is_changed() -> bool:
        now = json.loads((await served.get(path))[1])
        return bool(now["summary"] != before["summary"] or now["nodes"] != before["nodes"])

    await until(is_changed)
    await client.delete(known_kind("v1", "Node"), "one-more")
    assert set(diagnosed) == {1}


async def test_api_service_keeps_certificates_of_replicas_until_they_expire() -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    kind = known_kind("apiregistration.k8s.io/v1", "APIService")
    [old, one, two] = [self_signed("haru-explain", (), at)[0] for at in (datetime(2020, 1, 1, tzinfo=UTC), NOW, NOW)]
    await client.create(kind, api_service("haru-system", "haru-explain", bundle=old))
    for own in (one, two, two):
        await register(client, "haru-system", "haru-explain", 443, own, NOW)
    spec = (await client.get(kind, "v1alpha1.explain.haru.dev"))["spec"]
    bundle = base64.b64decode(spec["caBundle"])
    assert [pem.strip() in bundle for pem in (old, one, two)] == [False, True, True]
    assert spec["service"] == {"namespace": "haru-system", "name": "haru-explain", "port": 443}
    many = b""
    for number in range(12):
        own = self_signed(f"replica-{number}", (), NOW)[0]
        many = registered_bundle(base64.b64encode(many).decode(), own, lambda _: True)
    assert many.count(b"BEGIN CERTIFICATE") == 8
