"""Answers of kube-apiserver 1.36.2 in situations with watches, webhooks and rights, where those of Haru were others."""

from __future__ import annotations

import json

import pytest
from api_caller import MAPS, USER, Caller, config_map
from webhook_server import WebhookServer, allow, hook, hooks, mutating, patch, rule, validating

__all__ = ["hooks"]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
APPLY = "application/apply-patch+yaml"
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
