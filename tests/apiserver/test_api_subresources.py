"""What is written below an object: binding, eviction, scale, tokens, logs, resizes, approvals."""

from __future__ import annotations

from typing import Any

import jwt
import pytest
from api_caller import ADMIN, PODS, Caller, pod
from signing_request_objects import REQUEST

MERGE = "application/merge-patch+json"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def binding(name: str, node: str = "n1", **metadata: Any) -> Any:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


@pytest.mark.parametrize("path", [f"{PODS}/a/binding", "/api/v1/namespaces/default/bindings"])
async def test_binding_sets_node_once(api: Caller, path: str) -> None:
    await api.create(PODS, pod("a"))
    answer = await api("POST", path, binding("a", annotations={"x": "y"}))
    assert (answer.status, answer.json["status"], answer.json["kind"]) == (201, "Success", "Status")
    bound = await api.get(f"{PODS}/a")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"x": "y"}
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = await api("POST", path, binding("a", "n2"))
    assert again.status == 409
    assert again.json["message"] == (
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"'
    )


@pytest.mark.parametrize(
    ("body", "spec", "code"),
    [
        (binding("a", ""), {}, 422),
        (binding("a") | {"target": {"kind": "Pod", "name": "x"}}, {}, 422),
        (binding("a", uid="other"), {}, 409),
        (binding("a"), {"schedulingGates": [{"name": "g.example/x"}]}, 409),
        (binding("a", namespace="other"), {}, 400),
    ],
)
async def test_invalid_binding_is_refused(api: Caller, body: Any, spec: Any, code: int) -> None:
    await api.create(PODS, pod("a", **spec))
    answer = await api("POST", f"{PODS}/a/binding", body)
    assert answer.status == code, answer.body
    assert "nodeName" not in (await api.get(f"{PODS}/a"))["spec"]


async def test_binding_missing_or_terminating_pod_is_refused(api: Caller) -> None:
    assert (await api("POST", f"{PODS}/a/binding", binding("a"))).status == 404
    obj = pod("a")
    obj["metadata"]["finalizers"] = ["a.example/x"]
    await api.create(PODS, obj)
    await api("DELETE", f"{PODS}/a")
    answer = await api("POST", f"{PODS}/a/binding", binding("a"))
    assert answer.status == 409 and "is being deleted" in answer.json["message"]


def budget(**status: Any) -> Any:
    spec = {"selector": {"matchLabels": {"app": "x"}}, "minAvailable": 1}
    return {"metadata": {"name": "b"}, "spec": spec}, {"status": status}


async def running(api: Caller, ready: bool = True) -> None:
    obj = pod("a", nodeName="n1")
    obj["metadata"]["labels"] = {"app": "x"}
    await api.create(PODS, obj)
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    body = {"status": {"phase": "Running", "conditions": [condition]}}
    assert (await api("PATCH", f"{PODS}/a/status", body, type=MERGE)).status == 200


def eviction(**options: Any) -> Any:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": options}


@pytest.mark.parametrize(
    ("status", "ready", "code"),
    [
        (None, True, 201),
        ({"observedGeneration": 1, "disruptionsAllowed": 1, "expectedPods": 2}, True, 201),
        ({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}, True, 429),
        ({"observedGeneration": 0, "disruptionsAllowed": 1}, True, 429),
        ({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}, False, 201),
        ({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 1}, False, 429),
    ],
)
async def test_eviction_follows_disruption_budget(api: Caller, status: Any, ready: bool, code: int) -> None:
    await running(api, ready)
    if status is not None:
        obj, patch = budget(**status)
        await api.create(BUDGETS, obj)
        assert (await api("PATCH", f"{BUDGETS}/b/status", patch, type=MERGE)).status == 200
    answer = await api("POST", f"{PODS}/a/eviction", eviction(gracePeriodSeconds=0))
    assert answer.status == code, answer.body
    assert (await api("GET", f"{PODS}/a")).status == (404 if code == 201 else 200)
    if code == 429:
        assert answer.json["details"]["causes"][0]["reason"] == "DisruptionBudget"
    elif status is not None and ready:
        left = (await api.get(f"{BUDGETS}/b"))["status"]
        assert left["disruptionsAllowed"] == 0 and "a" in left["disruptedPods"]


SYNC_FAILED = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}
HELD = {"type": "DisruptionAllowed", "status": "False", "reason": "Drill", "message": "not today"}
SINCE = {"lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("status", "why", "seconds"),
    [
        ({"observedGeneration": 0, "disruptionsAllowed": 1}, "is still being processed by the server.", 10),
        ({"desiredHealthy": 1, "currentHealthy": 1}, "needs 1 healthy pods and has 1 currently", None),
        ({"desiredHealthy": 1, "currentHealthy": 2}, "does not allow evicting pods currently", None),
        (
            {"conditions": [SYNC_FAILED | SINCE]},
            "does not allow evicting pods currently because it failed sync: no scale",
            None,
        ),
        (
            {"desiredHealthy": 1, "currentHealthy": 2, "conditions": [HELD | SINCE]},
            "does not allow evicting pods currently (Drill): not today",
            None,
        ),
    ],
)
async def test_only_unprocessed_budget_gives_retry_after(
    api: Caller, status: Any, why: str, seconds: int | None
) -> None:
    """A client repeats a request whose answer names a time, ten times, whatever it was told of its own patience."""
    await running(api)
    obj, patch = budget(**{"observedGeneration": 1, "expectedPods": 2, **status})
    await api.create(BUDGETS, obj)
    assert (await api("PATCH", f"{BUDGETS}/b/status", patch, type=MERGE)).status == 200
    answer = await api("POST", f"{PODS}/a/eviction", eviction())
    assert answer.status == 429
    assert answer.json["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": f"The disruption budget b {why}"}
    ]
    assert answer.json["details"].get("retryAfterSeconds") == seconds
    assert answer.headers.get("retry-after") == (str(seconds) if seconds else None)


async def test_number_of_disrupted_pods_is_limited(api: Caller) -> None:
    await running(api)
    going = {f"p{number}": "2026-01-01T00:00:00Z" for number in range(2001)}
    obj, patch = budget(observedGeneration=1, disruptionsAllowed=5, currentHealthy=6, disruptedPods=going)
    await api.create(BUDGETS, obj)
    assert (await api("PATCH", f"{BUDGETS}/b/status", patch, type=MERGE)).status == 200
    answer = await api("POST", f"{PODS}/a/eviction", eviction())
    assert answer.status == 403 and "DisruptedPods map too big" in answer.json["message"]


async def test_last_allowed_disruption_updates_condition(api: Caller) -> None:
    await running(api)
    obj, patch = budget(observedGeneration=1, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1)
    await api.create(BUDGETS, obj)
    assert (await api("PATCH", f"{BUDGETS}/b/status", patch, type=MERGE)).status == 200
    assert (await api("POST", f"{PODS}/a/eviction", eviction())).status == 201
    (condition,) = (await api.get(f"{BUDGETS}/b"))["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("DisruptionAllowed", "False")
    assert (condition["reason"], condition["observedGeneration"]) == ("InsufficientPods", 1)


@pytest.mark.parametrize("version", ["", "current", "1"])
async def test_evicted_pod_has_disruption_target_condition(api: Caller, version: str) -> None:
    await running(api)
    before = await api.get(f"{PODS}/a")
    wanted = before["metadata"]["resourceVersion"] if version == "current" else version
    options = {"preconditions": {"resourceVersion": wanted}} if version else {}
    dry = await api("POST", f"{PODS}/a/eviction", eviction(**options, dryRun=["All"]))
    assert await api.get(f"{PODS}/a") == before
    answer = await api("POST", f"{PODS}/a/eviction", eviction(**options))
    assert (dry.status, answer.status) == ((409, 409) if version == "1" else (201, 201)), answer.body
    pod_now = await api.get(f"{PODS}/a")
    found = [c for c in pod_now["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    if version == "1":
        assert not found and "deletionTimestamp" not in pod_now["metadata"]
    else:
        assert pod_now["metadata"]["deletionTimestamp"]
        assert [(c["status"], c["reason"], c["message"]) for c in found] == [
            ("True", "EvictionByEvictionAPI", "Eviction API: evicting")
        ]


async def test_two_matching_budgets_refuse_eviction(api: Caller) -> None:
    await running(api)
    for name in ("b", "c"):
        obj, _ = budget()
        await api.create(BUDGETS, obj | {"metadata": {"name": name}})
    answer = (await api("POST", f"{PODS}/a/eviction", eviction())).json
    why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    assert (answer["code"], answer["message"], answer.get("reason")) == (500, why, None)


async def test_budget_that_an_eviction_used_is_owned_by_the_server(api: Caller) -> None:
    await running(api)
    obj, patch = budget(observedGeneration=1, disruptionsAllowed=2)
    await api.create(BUDGETS, obj)
    await api("PATCH", f"{BUDGETS}/b/status", patch, type=MERGE)
    assert (await api("POST", f"{PODS}/a/eviction", eviction())).status == 201
    entries = (await api.get(f"{BUDGETS}/b"))["metadata"]["managedFields"]
    own = next(entry for entry in entries if entry["manager"] == "kube-apiserver")
    assert (own["operation"], own["subresource"]) == ("Update", "status")
    assert own["fieldsV1"] == {"f:status": {"f:disruptedPods": {".": {}, "f:a": {}}, "f:disruptionsAllowed": {}}}


async def test_eviction_in_another_namespace_than_its_path_is_refused(api: Caller) -> None:
    await running(api)
    metadata = {"name": "a", "namespace": "other"}
    answer = await api("POST", f"{PODS}/a/eviction", eviction() | {"metadata": metadata})
    assert (answer.status, answer.json["message"][:34]) == (400, "the namespace of the provided obje")


async def test_eviction_of_missing_pod_is_not_found(api: Caller) -> None:
    assert (await api("POST", f"{PODS}/a/eviction", eviction())).status == 404


async def deployment(api: Caller) -> Any:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["2", "1"]}]}
    template["metadata"]["labels"]["c"] = "1"
    return await api.create(
        DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"selector": selector, "template": template}}
    )


async def test_scale_is_read_and_updated(api: Caller) -> None:
    created = await deployment(api)
    scale = await api.get(f"{DEPLOYMENTS}/d/scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == {"replicas": 0, "selector": "a=b,c in (1,2)"}
    assert scale["metadata"]["uid"] == created["metadata"]["uid"]
    scale["spec"]["replicas"] = 4
    updated = await api("PUT", f"{DEPLOYMENTS}/d/scale", scale)
    assert (updated.status, updated.json["spec"]) == (200, {"replicas": 4})
    assert (await api("PUT", f"{DEPLOYMENTS}/d/scale", scale)).status == 409
    patched = await api("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 2}}, type=MERGE)
    assert patched.json["spec"] == {"replicas": 2}
    live = await api.get(f"{DEPLOYMENTS}/d")
    assert (live["spec"]["replicas"], live["metadata"]["generation"]) == (2, 3)
    wrong = await api("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": -1}}, type=MERGE)
    assert wrong.status == 422
    assert (await api("GET", f"{DEPLOYMENTS}/none/scale")).status == 404


async def test_scale_warns_about_the_template_where_it_changes_the_count(api: Caller) -> None:
    await deployment(api)
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    template = {"template": {"spec": {"topologySpreadConstraints": spread}}}
    await api("PATCH", f"{DEPLOYMENTS}/d", {"spec": template}, type=MERGE)
    for replicas, warns in ((3, True), (3, False)):
        answer = await api("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": replicas}}, type=MERGE)
        assert answer.status == 200
        assert ("a null labelSelector results in matching no pod" in answer.headers.get("warning", "")) is warns


SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}}
APPLY = "application/apply-patch+yaml"


async def test_scale_accepts_every_patch_type(api: Caller) -> None:
    await deployment(api)
    path = f"{DEPLOYMENTS}/d/scale"
    for type, body in (
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 7}]),
        ("application/strategic-merge-patch+json", {"spec": {"$retainKeys": ["replicas"], "replicas": 7}}),
        (MERGE, {"spec": {"replicas": 7}}),
    ):
        answer = await api("PATCH", path, body, type=type)
        assert (answer.status, answer.json["spec"]) == (200, {"replicas": 7}), answer.body
        await api("PATCH", path, {"spec": {"replicas": 1}}, type=MERGE)
    wrongs: list[Any] = [{"spec": {"replicas": "x"}}, {"spec": []}, {"spec": {"replicas": 2**31}}, {"kind": "Pod"}]
    for wrong in wrongs:
        assert (await api("PATCH", path, wrong, type=MERGE)).status == 422, wrong
    unknown = await api("PATCH", f"{path}?fieldValidation=Strict", {"spec": {"replica": 1}}, type=MERGE)
    assert unknown.status == 422 and 'unknown field "spec.replica"' in unknown.json["message"]


async def test_scale_is_applied_by_field_manager(api: Caller) -> None:
    await deployment(api)
    path = f"{DEPLOYMENTS}/d/scale"
    applied = {**SCALE, "spec": {"replicas": 3}}
    conflict = await api("PATCH", f"{path}?fieldManager=hpa", applied, type=APPLY)
    assert conflict.status == 409, "the creator holds the default, too"
    first = await api("PATCH", f"{path}?fieldManager=hpa&force=true", applied, type=APPLY)
    assert (first.status, first.json["spec"]) == (200, {"replicas": 3})
    other = await api("PATCH", f"{path}?fieldManager=me", {**SCALE, "spec": {"replicas": 5}}, type=APPLY)
    assert other.status == 409
    assert (
        other.json["message"]
        == 'Apply failed with 1 conflict: conflict with "hpa" with subresource "scale": .spec.replicas'
    )
    forced = await api("PATCH", f"{path}?fieldManager=me&force=true", {**SCALE, "spec": {"replicas": 5}}, type=APPLY)
    assert forced.json["spec"] == {"replicas": 5}
    live = await api.get(f"{DEPLOYMENTS}/d")
    entries = [e for e in live["metadata"]["managedFields"] if e.get("subresource") == "scale"]
    assert [(e["manager"], e["operation"], e["apiVersion"]) for e in entries] == [("me", "Apply", "apps/v1")]
    assert entries[0]["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    again = await api("PATCH", f"{path}?fieldManager=me", {**SCALE, "spec": {"replicas": 5}}, type=APPLY)
    assert again.json["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
    for wrong in ({**SCALE, "kind": "Deployment"}, {**SCALE, "metadata": {"name": "x"}}):
        assert (await api("PATCH", f"{path}?fieldManager=me", wrong, type=APPLY)).status == 400
    nameless = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 6}}
    for form in (nameless, {**nameless, "metadata": None}):
        found = await api("PATCH", f"{path}?fieldManager=me", form, type=APPLY)
        assert (found.status, found.json["spec"], found.json["metadata"]["name"]) == (200, {"replicas": 6}, "d")


async def test_apply_of_scale_goes_by_the_owners_of_the_count_alone(api: Caller) -> None:
    workload: Any = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    workload["spec"] = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    path = f"{DEPLOYMENTS}/d/scale"

    async def scaled(manager: str, replicas: int | None, force: bool = False) -> tuple[int, str, int, list[str]]:
        body = {**SCALE, "spec": {} if replicas is None else {"replicas": replicas}}
        answer = await api("PATCH", f"{path}?fieldManager={manager}&force={str(force).lower()}", body, type=APPLY)
        live = await api.get(f"{DEPLOYMENTS}/d")
        owners = [e["manager"] for e in live["metadata"]["managedFields"] if "f:replicas" in e["fieldsV1"]["f:spec"]]
        return answer.status, answer.json.get("message", ""), live["spec"]["replicas"], owners

    assert (await api("PATCH", f"{DEPLOYMENTS}/d?fieldManager=n", workload, type=APPLY)).status == 201
    whose = 'conflict with "before-first-apply" with subresource "scale" using autoscaling/v1: .spec.replicas'
    assert await scaled("m", 2) == (409, f"Apply failed with 1 conflict: {whose}", 1, [])
    assert await scaled("m", 1) == (200, "", 1, ["m", "before-first-apply"])
    assert await scaled("m", 2, force=True) == (200, "", 2, ["m"])
    assert await scaled("k", 2) == (200, "", 2, ["k", "m"])
    assert await scaled("m", None) == (200, "", 2, ["k", "m"])
    assert await scaled("j", 0, force=True) == (200, "", 0, ["j"])
    held = 'conflict with "j" with subresource "scale": .spec.replicas'
    assert await scaled("k", 0) == (409, f"Apply failed with 1 conflict: {held}", 0, ["j"])


async def test_requested_tokens_authenticate_until_expiry(api: Caller) -> None:
    account = await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = await api("POST", f"{ACCOUNTS}/robot/token", request)
    assert answer.status == 201, answer.body
    assert answer.json["status"]["expirationTimestamp"] == "2026-03-04T05:16:07Z"
    token = answer.json["status"]["token"]
    assert jwt.get_unverified_header(token)["alg"] == "ES256"
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert claims["kubernetes.io"]["serviceaccount"]["uid"] == account["metadata"]["uid"]
    robot = api.as_(token)
    review = await robot("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    info = review.json["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:default:robot"
    assert {"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"} == set(info["groups"])
    api.clock.advance(seconds=660)  # clocks differ: a minute is granted
    assert (await robot("GET", PODS)).status == 403
    api.clock.advance(seconds=1)
    assert (await robot("GET", PODS)).status == 401


async def test_token_is_invalid_after_bound_pod_is_deleted(api: Caller) -> None:
    await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    created = await api.create(PODS, pod("a", nodeName="n1", serviceAccountName="robot"))
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "a", "uid": created["metadata"]["uid"]}
    spec = {"boundObjectRef": reference}
    token = (await api("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})).json["status"]["token"]
    robot = api.as_(token)
    review = await robot("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    extra = review.json["status"]["userInfo"]["extra"]
    assert extra["authentication.kubernetes.io/node-name"] == ["n1"]
    await api("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
    assert (await robot("GET", PODS)).status == 401


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"expirationSeconds": 10}, 422),
        ({"boundObjectRef": {"kind": "Job", "name": "x"}}, 400),
        ({"boundObjectRef": {"kind": "Pod", "name": "none"}}, 404),
    ],
)
async def test_invalid_token_request_is_refused(api: Caller, spec: Any, code: int) -> None:
    await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    assert (await api("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})).status == code
    assert (await api("POST", f"{ACCOUNTS}/none/token", {"spec": {}})).status == 404


async def test_tampered_tokens_are_refused(api: Caller) -> None:
    await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    token = (await api("POST", f"{ACCOUNTS}/robot/token", {"spec": {}})).json["status"]["token"]
    head, body, signature = token.split(".")
    for forged in (f"{head}.{body}.AAAA", f"{head}.{body}x.{signature}", "a.b.c", ADMIN + "x"):
        assert (await api.as_(forged)("GET", PODS)).status == 401
    none = jwt.encode({"sub": "system:serviceaccount:default:robot"}, "", algorithm="none")
    assert (await api.as_(none)("GET", PODS)).status == 401


async def test_log_of_simulated_pod_is_empty(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    answer = await api("GET", f"{PODS}/a/log")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"].startswith("text/plain")
    assert (await api("GET", f"{PODS}/a/log?container=none")).status == 400
    await api.create(PODS, pod("b", containers=[{"name": n, "image": "i"} for n in ("x", "y")]))
    answer = await api("GET", f"{PODS}/b/log")
    assert answer.status == 400 and "choose one of: [x y]" in answer.json["message"]
    assert (await api("GET", f"{PODS}/none/log")).status == 404


async def test_log_of_simulated_pod_has_what_its_commands_print(api: Caller) -> None:
    script = "echo first; sleep 60; echo second; sleep 60; printf third; exit 1"
    await api.create(PODS, pod("a", containers=[{"name": "main", "image": "i", "command": ["sh", "-c", script]}]))
    path = f"{PODS}/a/log"

    async def status(**fields: Any) -> None:
        patch = {"status": {"containerStatuses": [{"name": "main", "image": "i", "imageID": "", **fields}]}}
        answer = await api("PATCH", f"{PODS}/a/status", patch, type=MERGE)
        assert answer.status == 200, answer.body

    counts = {"ready": False, "restartCount": 0}
    await status(**counts, state={"waiting": {"reason": "ImagePullBackOff"}})
    answer = await api("GET", path)
    assert answer.status == 400
    assert answer.json["message"] == 'container "main" in pod "a" is waiting to start: image can\'t be pulled'
    began, between, ended = "2020-01-01T00:00:00Z", "2020-01-01T00:00:30Z", "2020-01-01T00:02:00Z"
    killed = {"terminated": {"exitCode": 137, "startedAt": began, "finishedAt": between}}
    whole = {"terminated": {"exitCode": 1, "startedAt": began, "finishedAt": ended}}
    await status(**counts, state=whole, lastState=killed)
    assert (await api("GET", path)).body == b"first\nsecond\nthird"
    assert (await api("GET", f"{path}?previous=true")).body == b"first\n"
    assert (await api("GET", f"{path}?tailLines=1&timestamps=true")).body == b"2020-01-01T00:02:00.000000000Z third"
    assert (await api("GET", f"{path}?sinceTime={between}")).body == b"second\nthird"
    assert (await api("GET", f"{path}?limitBytes=6")).body == b"first\n"
    assert (await api("GET", f"{path}?tailLines=no")).status == 400
    wrong = await api("GET", f"{path}?tailLines=-1&limitBytes=0")
    assert [cause["field"] for cause in wrong.json["details"]["causes"]] == ["tailLines", "limitBytes"]
    await status(**counts, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=killed)
    assert (await api("GET", path)).body == b"first\n"
    await status(**counts, state=whole)
    answer = await api("GET", f"{path}?previous=true")
    assert answer.json["message"] == 'previous terminated container "main" in pod "a" not found'


async def test_ephemeral_containers_can_only_be_added(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    path = f"{PODS}/a/ephemeralcontainers"
    body = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}
    answer = await api("PATCH", path, body, type="application/strategic-merge-patch+json")
    assert answer.status == 200, answer.body
    assert answer.json["spec"]["ephemeralContainers"][0]["name"] == "debug"
    assert (await api("PATCH", path, {"spec": {"ephemeralContainers": []}}, type=MERGE)).status == 422
    clash = {"spec": {"ephemeralContainers": [{"name": "main", "image": "busybox"}]}}
    assert (await api("PATCH", path, clash, type="application/strategic-merge-patch+json")).status == 422


async def test_resize_changes_only_cpu_and_memory(api: Caller) -> None:
    resources = {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    await api.create(PODS, pod("a", containers=[{"name": "main", "image": "i", "resources": resources}]))

    async def resize(changed: Any) -> Any:
        body = {"spec": {"containers": [{"name": "main", "resources": changed}]}}
        return await api("PATCH", f"{PODS}/a/resize", body, type="application/strategic-merge-patch+json")

    answer = await resize({"requests": {"cpu": "2"}})
    assert answer.status == 200, answer.body
    assert answer.json["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert answer.json["metadata"]["generation"] == 2
    assert (await resize({"requests": {"nvidia.com/gpu": "2"}})).status == 422


async def test_signing_request_spec_is_immutable(api: Caller) -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": REQUEST, "signerName": "example.com/s", "usages": ["client auth"]}
    made = await api.create(path, {"metadata": {"name": "r"}, "spec": spec})
    forged = {**made, "spec": {**made["spec"], "username": "system:admin", "groups": ["system:masters"]}}
    assert (await api("PUT", f"{path}/r", forged)).json["spec"] == made["spec"]
    patched = await api("PATCH", f"{path}/r", {"spec": {"username": "x"}}, type=MERGE)
    assert patched.json["spec"] == made["spec"]


async def test_signing_request_records_requester_and_approval(api: Caller) -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": REQUEST, "signerName": "a.example/b", "usages": ["client auth"], "username": "forged"}
    created = await api.create(path, {"metadata": {"name": "r"}, "spec": spec})
    assert created["spec"]["username"] == "admin"
    body = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}}
    answer = await api("PATCH", f"{path}/r/approval", body, type=MERGE)
    assert answer.status == 200, answer.body
    assert answer.json["status"]["conditions"][0]["lastUpdateTime"] == "2026-03-04T05:06:07Z"
