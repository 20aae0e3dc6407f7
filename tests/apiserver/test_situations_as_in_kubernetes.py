"""Answers of kube-apiserver 1.36.2 in situations with watches, webhooks and rights, where those of Haru were others."""

from __future__ import annotations

import json

import pytest
from api_caller import MAPS, PODS, USER, Caller, config_map, pod
from webhook_server import WebhookServer, allow, hook, hooks, mutating, patch, rule, validating

__all__ = ["hooks"]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
APPLY = "application/apply-patch+yaml"
BACKEND = {"apiGroup": "x.y", "kind": "K", "name": "n"}
END = {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize("query", ["watch=1", "watch=1&resourceVersion=0"])
async def test_watch_without_a_revision_tells_where_its_first_events_end(api: Caller, query: str) -> None:
    await api.create(MAPS, config_map("a"))
    stream = await api.stream(f"{MAPS}?{query}&allowWatchBookmarks=true")
    assert await stream.take(1) == [("ADDED", "a")]
    assert (await stream.next())["object"]["metadata"]["annotations"] == END
    await stream.close()


async def test_end_of_first_events_is_told_in_a_row_of_a_table(api: Caller) -> None:
    stream = await api.stream(f"{MAPS}?watch=1&allowWatchBookmarks=true", accept=TABLE)
    told = (await stream.next())["object"]
    assert [column["name"] for column in told["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert told["metadata"].keys() == {"resourceVersion"}
    (row,) = told["rows"]
    assert row["object"]["metadata"] == {**told["metadata"], "annotations": END}
    await stream.close()


async def test_watch_that_asks_for_first_events_may_not_go_on(api: Caller) -> None:
    answer = await api("GET", f"{MAPS}?watch=1&sendInitialEvents=true&continue=x")
    (cause,) = answer.json["details"]["causes"]
    assert cause["message"].endswith("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")


async def test_empty_warning_of_a_webhook_is_none(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = lambda request: {"allowed": True, "warnings": ["", "careful"]}
    await validating(api, hook(hooks.client("/v")))
    answer = await api("POST", MAPS, config_map("m"))
    assert answer.headers["warning"] == '299 - "careful"'


async def test_webhooks_are_told_the_name_of_the_request_after_one_has_changed_it(
    api: Caller, hooks: WebhookServer
) -> None:
    hooks.answers |= {"/m": patch({"op": "replace", "path": "/metadata/name", "value": "other"}), "/v": allow}
    await mutating(api, hook(hooks.client("/m"), rule("configmaps", "CREATE")))
    await validating(api, hook(hooks.client("/v"), rule("configmaps", "CREATE")))
    await api.create(MAPS, config_map("m"))
    (review,) = hooks.asked["/v"]
    assert review["request"]["name"] == "m" and review["request"]["object"]["metadata"]["name"] == "other"


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [("PATCH", "/api/v1/namespaces/n?fieldManager=m", "create"), ("GET", "/apis/apps/v1/namespaces/n", "get")],
)
async def test_who_asks_for_a_namespace_asks_in_it(api: Caller, method: str, path: str, verb: str) -> None:
    rules = [{"verbs": ["patch"], "apiGroups": [""], "resources": ["namespaces"]}]
    named = {"metadata": {"name": "patcher"}}
    subjects = [{"kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io"}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "patcher"}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await api.create(f"{rbac}/clusterroles", {**named, "rules": rules})
    await api.create(f"{rbac}/clusterrolebindings", {**named, "roleRef": reference, "subjects": subjects})
    body = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}).encode()
    answer = await api.as_(USER)(method, path, body if method == "PATCH" else None, type=APPLY)
    assert answer.status == 403 and f"cannot {verb} resource" in answer.json["message"]
    assert answer.json["message"].endswith('in the namespace "n"')


async def test_port_without_a_number_is_shown_by_its_name(api: Caller) -> None:
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    ports = [[{}], [{"name": "http"}, {"port": 80}]]
    for number, one in enumerate(ports):
        await api.create(
            path, {"metadata": {"name": f"s{number}"}, "addressType": "IPv4", "endpoints": [], "ports": one}
        )
    shown = (await api("GET", path, accept=TABLE)).json["rows"]
    assert [row["cells"][2] for row in shown] == ["<unset>", "http,80"]


async def test_nothing_is_posted_to_what_is_in_a_namespace_that_goes(api: Caller) -> None:
    space = "/api/v1/namespaces/going"
    await api.create("/api/v1/namespaces", {"metadata": {"name": "going"}})
    await api.create(f"{space}/serviceaccounts", {"metadata": {"name": "default"}})
    await api.create(f"{space}/pods", pod("p"))
    await api("DELETE", space)
    bound = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}}
    evicted = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    for path, body in (
        ("serviceaccounts/default/token", {"spec": {}}), ("pods/p/eviction", evicted), ("pods/p/binding", bound),
        ("bindings", bound),
    ):  # fmt: skip
        answer = await api("POST", f"{space}/{path}", body)
        assert answer.status == 403, (path, answer.body)
        assert answer.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"


async def test_limits_of_pods_leave_out_the_overhead_of_a_runtime_class(api: Caller) -> None:
    made = {"metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1"}}}
    await api.create("/apis/node.k8s.io/v1/runtimeclasses", made)
    limits = [{"type": "Pod", "min": {"cpu": "200m"}}]
    await api.create("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    answer = await api("POST", PODS, pod("p", runtimeClassName="r"))
    assert answer.status == 403
    assert answer.json["message"].endswith("minimum cpu usage per Pod is 200m.  No request is specified")


async def test_overhead_that_no_class_defines_is_refused_after_limits(api: Caller) -> None:
    refused = await api("POST", PODS, pod("p", overhead={"cpu": "1"}))
    assert (refused.status, "Pod Overhead set without" in refused.json["message"]) == (403, True)
    limits = [{"type": "Pod", "min": {"cpu": "2"}}]
    await api.create("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    assert "minimum cpu usage" in (await api("POST", PODS, pod("p", overhead={"cpu": "1"}))).json["message"]


async def test_ports_of_a_pod_on_a_node_that_is_not_there_are_not_found(api: Caller) -> None:
    await api.create(PODS, pod("p", nodeName="nowhere"))
    answer = await api("POST", f"{PODS}/p/portforward")
    assert (answer.status, answer.json["message"]) == (404, 'pods "nowhere" not found')


async def test_only_affinity_by_client_gets_a_time(api: Caller) -> None:
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "sessionAffinity": "x"}}
    answer = await api("POST", "/api/v1/namespaces/default/services", body)
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == ["spec.sessionAffinity"]


async def test_finalizer_that_is_no_name_is_told_by_its_place_where_a_namespace_is_finalized(api: Caller) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    body = {"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes", "x"]}}
    answer = await api("PUT", "/api/v1/namespaces/n/finalize", body)
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == ["spec.finalizers[1]"]


async def test_webhook_may_not_make_an_object_of_another_kind(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/m"] = patch({"op": "replace", "path": "/kind", "value": "Other"})
    await mutating(api, hook(hooks.client("/m"), rule("configmaps", "CREATE")))
    answer = await api("POST", MAPS, config_map("m"))
    assert (answer.status, 'no kind "Other" is registered for version "v1"' in answer.json["message"]) == (500, True)


async def test_empty_answer_of_a_webhook_is_told_as_such(api: Caller, hooks: WebhookServer) -> None:
    hooks.raw["/v"] = (200, b"")
    await validating(api, hook(hooks.client("/v"), rule("configmaps", "CREATE")))
    answer = await api("POST", MAPS, config_map("m"))
    assert answer.status == 500
    assert "failed to call webhook: 0-length response with status code: 200" in answer.json["message"]


async def test_addresses_of_load_balancers_are_shown_once_and_in_order(api: Caller) -> None:
    given = [{"ip": "10.0.0.9"}, {}, {"hostname": "a.b"}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.9"}]
    shown = []
    for path, column, spec in (
        ("/apis/networking.k8s.io/v1/namespaces/default/ingresses", 3, {"defaultBackend": {"resource": BACKEND}}),
        ("/api/v1/namespaces/default/services", 3, {"type": "LoadBalancer", "ports": [{"port": 80}]}),
    ):
        await api.create(path, {"metadata": {"name": "s"}, "spec": spec})
        status = {"status": {"loadBalancer": {"ingress": [one for one in given if one]}}}
        written = await api("PATCH", f"{path}/s/status", status, type="application/merge-patch+json")
        assert written.status == 200, written.body
        shown.append((await api("GET", f"{path}/s", accept=TABLE)).json["rows"][0]["cells"][column])
    assert shown == ["10.0.0.1,10.0.0.9,a.b"] * 2
