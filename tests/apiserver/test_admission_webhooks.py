"""Admission webhooks through the API, with a real HTTPS server that is asked."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_caller import MAPS, PODS, USER, Caller, config_map, pod
from mutating_objects import labelled, mutator, mutator_binding
from namesake_certificates import namesakes
from webhook_server import (
    SERVICE,
    VALIDATING,
    WebhookServer,
    allow,
    authority,
    bundle,
    configuration,
    deny,
    hook,
    hooks,
    label,
    mutating,
    patch,
    rule,
    server_pair,
    validating,
)

from haru.apiserver.auth import certificates
from small_proxy import SmallProxy, proxied

__all__ = ["hooks"]

Obj = dict[str, Any]
MERGE = "application/merge-patch+json"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


async def test_webhook_by_url_is_called_through_the_proxy_of_the_environment(
    api: Caller, hooks: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks.answers["/v"] = allow
    proxy, server = SmallProxy(), f"{SERVICE}:{hooks.port}"
    await validating(api, hook({"url": f"https://{server}/v", "caBundle": bundle()}, rule("configmaps", "CREATE")))
    async with proxied(proxy) as place:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{place}")
        await api.create(MAPS, config_map("m", {}, k="1"))
    assert len(hooks.asked["/v"]) == 1 and proxy.asked == [f"CONNECT {server}"]
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy:1080")
    refused = await api("POST", MAPS, config_map("n", {}, k="1"))
    assert refused.status == 500
    assert "proxy socks5://proxy:1080: a SOCKS proxy is not supported here" in refused.json["message"]


async def test_webhook_receives_review_and_allows_request(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = allow
    await validating(api, hook(hooks.client("/v"), rule("configmaps", "CREATE", "UPDATE", "DELETE")))
    await api.create(f"{MAPS}?fieldManager=me", config_map("m", {"a": "b"}, k="1"))
    review = hooks.asked["/v"][0]
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    request = review["request"]
    stored = await api.get(f"{MAPS}/m")
    seen = request.pop("object")
    stored["metadata"].pop("resourceVersion")
    assert seen == stored
    assert request.pop("uid")
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert request == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "m",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "uid": "1", "groups": ["system:masters", "system:authenticated"]},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"},
    }
    await api("PATCH", f"{MAPS}/m?dryRun=All", {"data": {"k": "2"}}, type=MERGE)
    await api("DELETE", f"{MAPS}/m?gracePeriodSeconds=3")
    update, deletion = (each["request"] for each in hooks.asked["/v"][1:])
    assert (update["operation"], update["dryRun"], update["options"]["kind"]) == ("UPDATE", True, "UpdateOptions")
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"k": "1"}, {"k": "2"})
    assert (deletion["operation"], deletion["object"], deletion["oldObject"]["data"]) == ("DELETE", None, {"k": "1"})
    assert deletion["options"] == {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 3}


REFUSALS: list[tuple[Obj, int, str, str]] = [
    ({"code": 418, "message": "teapot", "reason": "Short"}, 418, "Short", ": teapot"),
    ({"message": "no"}, 400, "", ": no"),
    ({"code": 200, "reason": "Because"}, 400, "Because", ": Because"),
    ({}, 400, "", " without explanation"),
]


@pytest.mark.parametrize(("status", "code", "reason", "text"), REFUSALS)
async def test_webhook_denial_has_status_code_and_message(
    api: Caller, hooks: WebhookServer, status: Obj, code: int, reason: str, text: str
) -> None:
    hooks.answers["/v"] = deny(**status)
    await validating(api, hook(hooks.client("/v")))
    answer = await api("POST", MAPS, config_map("m"))
    assert (answer.status, answer.json["code"], answer.json.get("reason", "")) == (code, code, reason)
    assert answer.json["message"] == f'admission webhook "hook.example.com" denied the request{text}'
    assert (await api("GET", f"{MAPS}/m")).status == 404


async def test_mutating_webhook_patches_object_before_defaulting(api: Caller, hooks: WebhookServer) -> None:
    container = {"name": "side", "image": "side:1"}
    hooks.answers["/m"] = patch(
        {"op": "add", "path": "/spec/containers/-", "value": container},
        {"op": "add", "path": "/metadata/annotations", "value": {"by": "hook"}},
        {"op": "add", "path": "/spec/nonsense", "value": 1},
        warnings=["look out"],
    )
    hooks.answers["/v"] = allow
    await mutating(api, hook(hooks.client("/m"), rule("pods")))
    await validating(api, hook(hooks.client("/v"), rule("pods")))
    answer = await api("POST", PODS, pod("p"))
    assert answer.status == 201, answer.json
    assert answer.headers["warning"] == '299 - "look out"'
    made = answer.json
    assert [c["name"] for c in made["spec"]["containers"]] == ["main", "side"]
    assert made["spec"]["containers"][1]["terminationMessagePolicy"] == "File"
    assert made["metadata"]["annotations"] == {"by": "hook"}
    assert "nonsense" not in made["spec"]
    first, last = hooks.asked["/m"][0]["request"]["object"], hooks.asked["/v"][0]["request"]["object"]
    assert "uid" not in first["metadata"]
    assert first["spec"]["tolerations"]  # what the server's own plugins add is there before
    assert last["metadata"]["uid"] == made["metadata"]["uid"]
    assert last["spec"] == made["spec"]


async def test_mutating_webhook_changes_updates_and_result_is_validated(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/m"] = patch({"op": "replace", "path": "/data/k", "value": "hooked"})
    await mutating(api, hook(hooks.client("/m"), rule("configmaps", "UPDATE")))
    await api.create(MAPS, config_map("m", k="1"))
    assert (await api("PUT", f"{MAPS}/m", config_map("m", k="2"))).json["data"] == {"k": "hooked"}
    hooks.answers["/m"] = patch({"op": "add", "path": "/data/~1", "value": "bad key"})
    refused = await api("PATCH", f"{MAPS}/m", {"data": {"k": "3"}}, type=MERGE)
    assert (refused.status, refused.json["reason"]) == (422, "Invalid")
    hooks.answers["/m"] = patch({"op": "remove", "path": "/data/none"})
    refused = await api("PATCH", f"{MAPS}/m", {"data": {"k": "3"}}, type=MERGE)
    assert (refused.status, refused.json["reason"]) == (500, "InternalError")
    assert (await api.get(f"{MAPS}/m"))["data"] == {"k": "hooked"}


async def test_webhooks_run_in_name_order_and_see_earlier_changes(api: Caller, hooks: WebhookServer) -> None:
    for name in ("b", "a", "c"):
        hooks.answers[f"/{name}"] = patch(label(name, str(len(hooks.asked))))
        await mutating(api, hook(hooks.client(f"/{name}")), name=name)
    answer = await api("POST", MAPS, config_map("m", {"x": "y"}))
    assert answer.status == 201, answer.json
    seen = [hooks.asked[path][0]["request"]["object"]["metadata"]["labels"].keys() for path in ("/a", "/b", "/c")]
    assert [sorted(each) for each in seen] == [["x"], ["a", "x"], ["a", "b", "x"]]


async def test_webhook_sees_fields_without_a_value_after_a_change_as_before(api: Caller, hooks: WebhookServer) -> None:
    policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
    about = {**rule("resourceclaims"), "apiGroups": ["resource.k8s.io"]}
    laid = mutator(labelled("x", "'y'"), matchConstraints={"resourceRules": [about]})
    await api.create(policies, laid)
    await api.create(f"{policies.removesuffix('policies')}policybindings", mutator_binding())
    for name in ("a", "b"):
        hooks.answers[f"/{name}"] = patch(label(name, "1"))
        await mutating(api, hook(hooks.client(f"/{name}"), about), name=name)
    claim = {"metadata": {"name": "c", "labels": {"x": "x"}}, "spec": {"devices": {}}}
    await api.create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
    seen = [hooks.asked[path][0]["request"]["object"] for path in ("/a", "/b")]
    assert [each["metadata"]["labels"]["x"] for each in seen] == ["y", "y"]
    assert [each["spec"] for each in seen] == [{"devices": {"requests": None}}] * 2


@pytest.mark.parametrize(("again", "times"), [("IfNeeded", 2), ("Never", 1)])
async def test_reinvocation_policy_repeats_webhook_after_changes(
    api: Caller, hooks: WebhookServer, again: str, times: int
) -> None:
    hooks.answers["/first"] = patch(label("first", "1"))
    hooks.answers["/second"] = patch(label("second", "1"))
    client = hooks.client
    await mutating(
        api,
        hook(client("/first"), name="a.example.com", reinvocationPolicy=again),
        hook(client("/second"), name="b.example.com", reinvocationPolicy=again),
    )
    await api.create(MAPS, config_map("m", {"x": "y"}))
    assert len(hooks.asked["/first"]) == times
    assert len(hooks.asked["/second"]) == 1
    if times == 2:
        assert hooks.asked["/first"][1]["request"]["object"]["metadata"]["labels"]["second"] == "1"


async def test_built_in_plugins_run_again_after_webhook_changes(api: Caller, hooks: WebhookServer) -> None:
    """A webhook that chooses a priority class gets the pod its number."""
    cls = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", cls)
    hooks.answers["/m"] = patch(
        {"op": "add", "path": "/spec/priorityClassName", "value": "high"}, {"op": "remove", "path": "/spec/priority"}
    )
    await mutating(api, hook(hooks.client("/m"), rule("pods")))
    made = await api.create(PODS, pod("p"))
    assert (made["spec"]["priorityClassName"], made["spec"]["priority"]) == ("high", 1000)


FAILURES: list[tuple[str, Any, str]] = [
    ("/gone", None, "the server could not find the requested resource"),
    ("/broken", (500, b"oops"), 'an error on the server ("oops") has prevented the request from succeeding'),
    ("/text", (200, b"hello"), "couldn't get version/kind; json parse error"),
    ("/empty", (200, b"{}"), "received invalid webhook response: webhook response was absent"),
    ("/uid", (200, b'{"response":{"uid":"x"}}'), 'received invalid webhook response: expected response.uid="'),
    ("/patching", "patch", "received invalid webhook response: validating webhook may not return response.patch"),
    ("/silent", "silent", "context deadline exceeded"),
]


@pytest.mark.parametrize(("path", "raw", "text"), FAILURES)
async def test_webhook_failure_follows_failure_policy(
    api: Caller, hooks: WebhookServer, path: str, raw: Any, text: str
) -> None:
    if raw == "patch":
        hooks.answers[path] = patch(label("a", "b"))
    elif raw == "silent":
        hooks.silent.add(path)
    else:
        hooks.raw[path] = raw or (404, b"")
    await validating(api, hook(hooks.client(path), timeoutSeconds=1 if raw == "silent" else 30))
    answer = await api("POST", MAPS, config_map("m"))
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    message: str = answer.json["message"]
    assert message.startswith('Internal error occurred: failed calling webhook "hook.example.com": ')
    assert text in message
    if "Post" in message:
        assert f'failed to call webhook: Post "{hooks.url(path)}?timeout=' in message
    ignore = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    await api("PATCH", f"{VALIDATING}/v", ignore, type="application/json-patch+json")
    assert (await api("POST", MAPS, config_map("m"))).status == 201


async def test_unreachable_or_untrusted_webhook_fails(api: Caller, hooks: WebhookServer) -> None:
    other = certificates.new_authority(datetime.now(UTC))
    await validating(api, hook({"url": hooks.url("/v"), "caBundle": bundle(other)}), name="untrusted")
    answer = await api("POST", MAPS, config_map("m"))
    assert "tls: failed to verify certificate" in answer.json["message"]
    await api("DELETE", f"{VALIDATING}/untrusted")
    await validating(api, hook({"url": "https://127.0.0.1:1/v", "caBundle": bundle()}), name="nobody")
    answer = await api("POST", MAPS, config_map("m"))
    assert answer.json["message"].endswith("dial tcp 127.0.0.1:1: connect: connection refused")
    await api("DELETE", f"{VALIDATING}/nobody")
    assert (await api("POST", MAPS, config_map("m"))).status == 201


async def test_webhook_is_trusted_by_a_bundle_that_holds_its_own_certificate(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = allow
    # As envtest writes it: the server's certificate, which no authority signed by itself, and two slashes.
    await validating(api, hook({"url": hooks.url("//v"), "caBundle": bundle(server_pair())}))
    assert (await api("POST", MAPS, config_map("m"))).status == 201
    assert len(hooks.asked["/v"]) == 1


async def test_what_is_no_certificate_in_a_bundle_is_passed_over(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = allow
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    whole = (
        "# F\u0151tan\u00fas\u00edtv\u00e1ny\n".encode()
        + broken
        + authority().certificate.replace(b"\n", b"\r\n")
        + broken
    )
    believed = base64.b64encode(whole).decode()
    await validating(api, hook({"url": hooks.url("/v"), "caBundle": believed}), name="commented")
    assert (await api("POST", MAPS, config_map("m"))).status == 201
    nothing = base64.b64encode(broken).decode()
    await validating(api, hook({"url": hooks.url("/v"), "caBundle": nothing}), name="nothing")
    answer = await api("POST", MAPS, config_map("n"))
    assert answer.status == 500 and "unable to load root certificates" in answer.json["message"]


@pytest.mark.parametrize(("issuer", "status"), [("authority", 201), ("certificate", 500)])
async def test_webhook_whose_certificate_has_the_name_of_its_authority_is_trusted_by_the_signature(
    issuer: str, status: int, api: Caller, tmp_path: Path
) -> None:
    issuing, shown = namesakes(issuer)
    server = WebhookServer(tmp_path, shown)
    await server.start()
    server.answers["/v"] = allow
    await validating(api, hook({"url": server.url("/v"), "caBundle": bundle(issuing)}))
    assert (await api("POST", MAPS, config_map("m"))).status == status
    assert len(server.asked.get("/v", [])) == (status == 201)
    await server.stop()


async def test_webhook_service_resolves_to_its_endpoints(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = allow
    service = {"name": "hooks", "namespace": "tools", "path": "/v"}
    await validating(api, hook({"service": service, "caBundle": bundle()}))

    async def refused() -> str:
        answer = await api("POST", MAPS, config_map("m"))
        assert answer.status == 500
        told: str = answer.json["message"]
        prefix = f'failed to call webhook: Post "https://{SERVICE}:443/v?timeout=30s": '
        assert prefix in told
        return told.partition(prefix)[2]

    assert await refused() == 'service "hooks" not found'
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tools"}})
    spec: Obj = {"ports": [{"name": "web", "port": 8443}]}
    made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hooks"}, "spec": spec}
    await api.create("/api/v1/namespaces/tools/services", made)
    assert await refused() == 'no service port 443 found for service "hooks"'
    ports = [{"op": "replace", "path": "/spec/ports/0/port", "value": 443}]
    await api("PATCH", "/api/v1/namespaces/tools/services/hooks", ports, type="application/json-patch+json")
    assert await refused() == 'no endpoints available for service "hooks"'
    slices = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "hooks-1", "labels": {"kubernetes.io/service-name": "hooks"}},
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": hooks.port}],
        "endpoints": [
            {"addresses": ["127.0.0.2"], "conditions": {"ready": False}},
            {"addresses": ["127.0.0.1"], "conditions": {"ready": True}},
        ],
    }
    path = "/apis/discovery.k8s.io/v1/namespaces/tools/endpointslices"
    await api.create(path, slices)
    assert (await api("POST", MAPS, config_map("m"))).status == 201
    assert hooks.hosts[-1] == f"{SERVICE}:443"
    # The address of a pod that is simulated may be somebody else's.
    node: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    await api.create("/api/v1/nodes", node)
    placed = [{"op": "add", "path": "/endpoints/1/nodeName", "value": "n1"}]
    await api("PATCH", f"{path}/hooks-1", placed, type="application/json-patch+json")
    assert await refused() == 'no endpoints available for service "hooks": its pods are simulated, and run nothing'
    kubelet = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}
    await api("PATCH", "/api/v1/nodes/n1/status", kubelet, type="application/merge-patch+json")
    assert (await api("POST", MAPS, config_map("m2"))).status == 201


async def test_dry_run_requires_webhook_without_side_effects(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = allow
    await validating(api, hook(hooks.client("/v")))
    assert (await api("POST", f"{MAPS}?dryRun=All", config_map("m"))).status == 201
    assert hooks.asked["/v"][0]["request"]["dryRun"] is True
    assert (await api("GET", f"{MAPS}/m")).status == 404
    effects = hook(hooks.client("/v"), name="side.example.com", sideEffects="Some")
    refused = await api("POST", VALIDATING, configuration("Validating", "w", effects))
    assert refused.status == 422
    why = 'webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'
    assert why in refused.json["message"]


async def test_match_conditions_and_selectors_limit_webhook(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = deny(message="no")
    conditions = [
        {"name": "not-nodes", "expression": "!('system:nodes' in request.userInfo.groups)"},
        {"name": "marked", "expression": "object.metadata.labels['guard'] == 'on'"},
    ]
    made = hook(hooks.client("/v"), matchConditions=conditions, objectSelector={"matchLabels": {"team": "a"}})
    await validating(api, made)
    for labels, status in (
        ({"team": "b", "guard": "on"}, 201),
        ({"team": "a", "guard": "off"}, 201),
        ({"team": "a", "guard": "on"}, 400),
        ({"team": "a"}, 403),
    ):
        name = f"m-{'-'.join(labels.values())}"
        answer = await api("POST", MAPS, config_map(name, labels))
        assert answer.status == status, (labels, answer.json)
    assert answer.json["message"] == (
        "configmaps \"m-a\" is forbidden: expression 'object.metadata.labels['guard'] == 'on'' resulted in error: "
        "no such key: guard"
    )


async def test_equivalent_version_is_converted_for_webhook_and_back(api: Caller, hooks: WebhookServer) -> None:
    exact = rule("resourceclaims", apiGroups=["resource.k8s.io"], apiVersions=["v1beta1"])
    hooks.answers["/m"] = patch(
        {"op": "replace", "path": "/spec/devices/requests/0/deviceClassName", "value": "other.example.com"}
    )
    await mutating(api, hook(hooks.client("/m"), exact))
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
    }
    made = await api.create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
    request = hooks.asked["/m"][0]["request"]
    assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v1beta1", "v1")
    assert request["object"]["apiVersion"] == "resource.k8s.io/v1beta1"
    assert request["object"]["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"
    assert made["apiVersion"] == "resource.k8s.io/v1"
    assert made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "other.example.com"


async def test_v1beta1_review_is_supported(api: Caller, hooks: WebhookServer) -> None:
    data = base64.b64encode(json.dumps([label("old", "1")]).encode()).decode()
    hooks.answers["/m"] = lambda request: {"allowed": True, "patch": data, "uid": "another"}
    await mutating(api, hook(hooks.client("/m"), admissionReviewVersions=["v7", "v1beta1", "v1"]))
    made = await api.create(MAPS, config_map("m", {"x": "y"}))
    assert hooks.asked["/m"][0]["apiVersion"] == "admission.k8s.io/v1beta1"
    assert made["metadata"]["labels"] == {"x": "y", "old": "1"}


async def test_patch_that_is_null_changes_nothing(api: Caller, hooks: WebhookServer) -> None:
    data = base64.b64encode(b"null").decode()
    hooks.answers["/m"] = lambda request: {"allowed": True, "patch": data, "patchType": "JSONPatch"}
    await mutating(api, hook(hooks.client("/m")))
    made = await api.create(MAPS, config_map("m", {"x": "y"}))
    assert (len(hooks.asked["/m"]), made["metadata"]["labels"]) == (1, {"x": "y"})


async def test_subresource_review_has_its_own_body(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = allow
    rules = rule("pods/binding,pods/eviction,serviceaccounts/token", "CREATE")
    await validating(api, hook(hooks.client("/v"), rules))
    await api.create(PODS, pod("p"))
    target = {"kind": "Node", "name": "n"}
    bind: Obj = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
    assert (await api("POST", f"{PODS}/p/binding", bind)).status == 201
    evict = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await api("POST", f"{PODS}/p/eviction", evict)).status == 201
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}}
    await api.create("/api/v1/namespaces/default/serviceaccounts", account)
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    assert (await api("POST", "/api/v1/namespaces/default/serviceaccounts/s/token", token)).status == 201
    asked = [review["request"] for review in hooks.asked["/v"]]
    assert [(each["kind"]["kind"], each["subResource"], each["resource"]["resource"]) for each in asked] == [
        ("Binding", "binding", "pods"),
        ("Eviction", "eviction", "pods"),
        ("TokenRequest", "token", "serviceaccounts"),
    ]
    assert asked[0]["object"]["target"]["name"] == "n"
    hooks.answers["/v"] = deny(message="stay")
    assert (await api("POST", f"{PODS}/p/eviction", evict)).status == 400
    await api.create(PODS, pod("q"))
    bind["metadata"]["name"] = "q"
    assert (await api("POST", "/api/v1/namespaces/default/bindings", bind)).status == 400


async def test_token_request_is_changed_as_posted_and_judged_complete(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/m"] = hooks.answers["/v"] = allow
    rules = rule("serviceaccounts/token", "CREATE")
    await mutating(api, hook(hooks.client("/m"), rules))
    await validating(api, hook(hooks.client("/v"), rules))
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    account = await api.create(accounts, {"metadata": {"name": "s"}})
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 599}}
    assert (await api("POST", f"{accounts}/s/token", token)).status == 422
    assert (await api("POST", f"{accounts}/none/token", token)).status == 404
    assert len(hooks.asked["/m"]) == 2 and "/v" not in hooks.asked  # what is invalid is not judged
    posted = hooks.asked["/m"][0]["request"]["object"]
    assert posted["metadata"].keys() == {"namespace", "managedFields"}
    assert posted["spec"] == {"audiences": None, "boundObjectRef": None, "expirationSeconds": 599}
    assert (await api("POST", f"{accounts}/s/token", {**token, "spec": {}})).status == 201
    judged = hooks.asked["/v"][0]["request"]["object"]
    assert judged["metadata"]["uid"] == account["metadata"]["uid"] and judged["spec"]["audiences"]
    assert judged["status"] == {"token": "", "expirationTimestamp": None}


async def test_webhook_is_asked_before_connections_to_pods(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = allow
    await validating(api, hook(hooks.client("/v"), rule("pods/attach,pods/exec,pods/portforward", "CONNECT")))
    await api.create(PODS, pod("p"))
    for query, options in (
        ("attach?stdin=true&tty=1&container=c", {"stdin": True, "tty": True, "container": "c"}),
        ("exec?command=ls&command=-l&stdout=true", {"stdout": True, "command": ["ls", "-l"]}),
        ("portforward?ports=80", {"ports": [80]}),
    ):
        answer = await api("POST", f"{PODS}/p/{query}")
        assert answer.status == 400 and "does not have a host assigned" in answer.json["message"]
        request = hooks.asked["/v"][-1]["request"]
        kind = {"attach": "PodAttachOptions", "exec": "PodExecOptions", "portforward": "PodPortForwardOptions"}[
            query.partition("?")[0]
        ]
        assert request["object"] == {"kind": kind, "apiVersion": "v1", **options}
        assert (request["operation"], request["options"]) == ("CONNECT", None)
        assert request["kind"] == {"group": "", "version": "v1", "kind": kind}
    hooks.answers["/v"] = deny(message="stay out")
    answer = await api("POST", f"{PODS}/p/attach")
    assert answer.status == 400 and answer.json["message"].endswith("denied the request: stay out")


async def test_webhook_runs_for_generated_names_and_apply(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/m"] = patch(label("seen", "1"))
    await mutating(api, hook(hooks.client("/m"), rule("configmaps", "CREATE", "UPDATE")))
    generated = config_map("x", {"a": "b"})
    generated["metadata"] = {"generateName": "x-", "labels": {"a": "b"}}
    made = await api.create(MAPS, generated)
    assert made["metadata"]["name"].startswith("x-")
    request = hooks.asked["/m"][0]["request"]
    assert "name" not in request
    assert "name" not in request["object"]["metadata"]
    apply = "application/apply-patch+yaml"
    for value in ("1", "2"):
        wanted = config_map("applied", {"a": "b"}, k=value)
        answer = await api("PATCH", f"{MAPS}/applied?fieldManager=me", wanted, type=apply)
        assert answer.status in (200, 201), answer.json
        assert answer.json["metadata"]["labels"] == {"a": "b", "seen": "1"}
    assert [review["request"]["operation"] for review in hooks.asked["/m"]] == ["CREATE", "CREATE", "UPDATE"]


async def test_webhook_names_object_that_has_no_name(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/m"] = patch({"op": "add", "path": "/metadata/name", "value": "given"})
    await mutating(api, hook(hooks.client("/m"), rule("configmaps", "CREATE")))
    unnamed: Obj = {"metadata": {}, "data": {"k": "v"}}
    assert (await api.create(MAPS, unnamed))["metadata"]["name"] == "given"
    based = {"metadata": {"generateName": "x-"}}
    answer = await api("POST", MAPS, based)
    assert (answer.status, answer.json["details"]["name"]) == (409, "given")
    assert "name" not in hooks.asked["/m"][0]["request"]["object"]["metadata"]


async def test_webhook_is_asked_about_object_without_name_before_that_is_missed(
    api: Caller, hooks: WebhookServer
) -> None:
    hooks.answers["/m"] = deny(message="not so")
    claims, deployments = (
        "/api/v1/namespaces/default/persistentvolumeclaims",
        "/apis/apps/v1/namespaces/default/deployments",
    )
    asked = [rule("persistentvolumeclaims", "CREATE"), rule("deployments", "CREATE", apiGroups=["apps"])]
    await mutating(api, hook(hooks.client("/m"), *asked))
    for path in (claims, deployments):
        answer = await api("POST", path, {"metadata": {}, "spec": {}})
        assert (answer.status, "not so" in answer.json["message"]) == (400, True)
    hooks.answers["/m"] = allow
    for path in (claims, deployments):
        answer = await api("POST", path, {"metadata": {}, "spec": {}})
        assert answer.status == 422 and "metadata.name: Required value" in answer.json["message"]


async def test_match_condition_that_fails_is_told_without_a_name_where_the_object_has_none(
    api: Caller, hooks: WebhookServer
) -> None:
    broken = [{"name": "c", "expression": "1 / 0 > 1"}]
    await mutating(api, hook(hooks.client("/m"), rule("configmaps", "CREATE"), matchConditions=broken))
    why = "expression '1 / 0 > 1' resulted in error: division by zero"
    for metadata, name in (({"name": "m"}, ' "m"'), ({}, ""), ({"generateName": "m-"}, "")):
        answer = await api("POST", MAPS, {"metadata": metadata})
        assert (answer.status, answer.json["message"]) == (403, f"configmaps{name} is forbidden: {why}")


async def test_webhook_sees_namespace_of_path_in_update_without_one(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/m"] = allow
    await mutating(api, hook(hooks.client("/m"), rule("configmaps", "UPDATE")))
    await api.create(MAPS, config_map("m"))
    await api("PUT", f"{MAPS}/m", {"metadata": {"name": "m"}, "data": {"k": "v"}})
    assert hooks.asked["/m"][0]["request"]["object"]["metadata"]["namespace"] == "default"


async def test_grant_is_judged_as_a_webhook_leaves_it_and_before_validation(api: Caller, hooks: WebhookServer) -> None:
    rights, jane = "rbac.authorization.k8s.io", api.as_(USER)
    held = [{"apiGroups": [rights], "resources": ["roles"], "verbs": ["create", "update"]}]
    held.append({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": "j"}, "rules": held})
    reference = {"apiGroup": rights, "kind": "ClusterRole", "name": "j"}
    bound = {"metadata": {"name": "j"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "jane"}]}
    await api.create(f"{RBAC}/clusterrolebindings", bound)
    roles, more = f"{RBAC}/namespaces/default/roles", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    names: list[Obj] = [{"name": "r"}, {}, {"generateName": "r-"}, {"name": "R/"}]
    for metadata in names:
        refused = await jane("POST", roles, {"metadata": metadata, "rules": [more, {"verbs": []}]})
        assert refused.status == 403 and "not currently held" in refused.json["message"]
        assert refused.json["details"].get("name", "") == metadata.get("name", "")
    for value, created, updated in (([held[1]], 201, 200), ([more], 403, 403)):
        hooks.answers["/m"] = patch({"op": "add", "path": "/rules", "value": value})
        await api("DELETE", f"{WEBHOOKS}/m")
        await mutating(api, hook(hooks.client("/m"), rule("roles", "CREATE", "UPDATE", apiGroups=[rights])))
        assert (await jane("POST", roles, {"metadata": {"name": f"r{created}"}, "rules": [more]})).status == created
        assert (await jane("PUT", f"{roles}/r201", {"metadata": {"name": "r201"}, "rules": [more]})).status == updated
        assert hooks.asked["/m"][-1]["request"]["operation"] == "UPDATE"


async def test_webhooks_do_not_apply_to_webhook_configurations(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/v"] = deny(message="never")
    everything = rule("*/*", "*", apiGroups=["*"], apiVersions=["*"])
    await validating(api, hook(hooks.client("/v"), everything))
    assert (await api("POST", MAPS, config_map("m"))).status == 400
    assert (await api("DELETE", f"{VALIDATING}/v")).status == 200
    assert (await api("POST", MAPS, config_map("m"))).status == 201


async def test_webhook_applies_to_custom_resources(api: Caller, hooks: WebhookServer) -> None:
    from custom_objects import TRAININGS, define, training

    await define(api)
    rules = rule("trainings", "CREATE", apiGroups=["ml.example.com"])
    hooks.answers["/m"] = patch(
        {"op": "add", "path": "/spec/note", "value": "hooked"}, {"op": "add", "path": "/spec/unknown", "value": 1}
    )
    await mutating(api, hook(hooks.client("/m"), rules))
    made = await api.create(TRAININGS, training("t"))
    assert made["spec"]["note"] == "hooked"
    assert "unknown" not in made["spec"]
    hooks.answers["/m"] = patch({"op": "replace", "path": "/spec/model", "value": "NO"})
    assert (await api("POST", TRAININGS, training("u"))).status == 422
