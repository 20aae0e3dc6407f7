"""Tenants' questions over real sockets: who is believed, who may ask, and whose names are told."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from engine_objects import node, pod
from fake_api import FakeApi
from prometheus_client.parser import text_string_to_metric_families
from served_explanations import FRONT, NOW, OTHER, PATH, Served, until_told

from haru.apiserver.auth import Pair, client_pair
from haru.client.api import ApiClient
from haru.engine import SchedulerCache
from haru.explain.diagnosis import pending
from haru.explain_server import (
    answers,
    api_service,
    explanation_path,
    register,
    registered_bundle,
)
from haru.explain_server.metrics import Metrics
from haru.kube.kinds import known_kind
from haru.secure_serving.certificates import self_signed
from waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Obj = dict[str, Any]


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


async def test_object_that_was_just_written_is_seen(served: Served) -> None:
    client = ApiClient.in_process(served.api)
    for number in range(5):
        made = pod(f"fresh-{number}", cpu="4")
        await client.create(known_kind("v1", "Pod"), made)
        assert (await served.get(explanation_path("default", "pods", f"fresh-{number}")))[0] == 200
    await client.delete(known_kind("v1", "Pod"), "fresh-0", "default")
    assert (await served.get(explanation_path("default", "pods", "fresh-0")))[0] == 404


@pytest.mark.parametrize("is_known", [True, False])
async def test_cache_that_does_not_catch_up_is_not_waited_for_long(
    served: Served, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """What the API server has is explained, also an object that the cache has not seen at all."""
    monkeypatch.setattr(answers, "_BEHIND_SECONDS", 0.1)
    name = "behind" if is_known else "unseen"
    if is_known:
        await ApiClient.in_process(served.api).create(known_kind("v1", "Pod"), pod(name, cpu="4"))
        assert (await served.get(explanation_path("default", "pods", name)))[0] == 200
    unheard = pod(name, cpu="4")
    unheard["metadata"] |= {"uid": "u", "resourceVersion": "999999"}
    served.api.objects["pods", "default", name] = unheard
    async with asyncio.timeout(30):
        status, body, _ = await served.get(explanation_path("default", "pods", name))
    assert status == 200
    assert json.loads(body)["verdict"] == "FitsLater"
    del served.api.objects["pods", "default", name]


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
