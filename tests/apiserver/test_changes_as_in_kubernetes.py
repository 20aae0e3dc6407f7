"""What 1.36 makes of objects that clients change in several steps: Services of other types, Events of both groups."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import MAPS, USER, Caller

MERGE = "application/merge-patch+json"
SERVICES = "/api/v1/namespaces/default/services"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
ABOUT = {"kind": "Pod", "namespace": "default", "name": "p", "apiVersion": "v1"}


async def changed(api: Caller, path: str, patch: Any) -> Any:
    answer = await api("PATCH", path, patch, type=MERGE)
    return answer.json if answer.status == 200 else answer.json["message"]


async def test_service_that_is_no_load_balancer_any_more_forgets_where_it_was(api: Caller) -> None:
    await api.create(SERVICES, {"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
    balancer = {"loadBalancer": {"ingress": [{"hostname": "a.b"}]}}
    await changed(api, f"{SERVICES}/s/status", {"status": balancer})
    kept = await changed(api, f"{SERVICES}/s", {"spec": {"publishNotReadyAddresses": True}})
    assert kept["status"]["loadBalancer"]["ingress"][0]["hostname"] == "a.b"
    assert (await changed(api, f"{SERVICES}/s", {"spec": {"type": "ClusterIP"}}))["status"] == {"loadBalancer": {}}


async def test_address_of_a_service_is_refused_for_what_it_is(api: Caller) -> None:
    await api.create(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    moved = await changed(api, f"{SERVICES}/s", {"spec": {"clusterIP": "192.0.2.5"}})
    assert moved.endswith('spec.clusterIPs[0]: Invalid value: ["192.0.2.5"]: may not change once set')
    named = {"type": "ExternalName", "externalName": "a.b"}
    await api.create(SERVICES, {"metadata": {"name": "e"}, "spec": named})
    told = await changed(api, f"{SERVICES}/e", {"spec": {"clusterIP": "None"}})
    assert told.endswith("spec.clusterIPs: Forbidden: may not be set for ExternalName services")


async def test_event_written_in_its_other_group_has_no_owners_of_the_first(api: Caller) -> None:
    event = {
        "metadata": {"name": "e"},
        "regarding": ABOUT,
        "reason": "R",
        "action": "A",
        "type": "Normal",
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": "x.y/z",
        "reportingInstance": "i",
    }
    await api.create("/apis/events.k8s.io/v1/namespaces/default/events", event)
    now = await changed(api, "/api/v1/namespaces/default/events/e", {"metadata": {"labels": {"a": "b"}}})
    assert [one["apiVersion"] for one in now["metadata"]["managedFields"]] == ["v1"]


async def test_repeated_names_within_any_json_are_no_fault(api: Caller) -> None:
    body = b'{"metadata": {"name": "r"}, "data": {"a": 1, "a": 2}, "revision": 1}'
    assert (await api("POST", f"{REVISIONS}?fieldValidation=Strict", body)).status == 201


async def test_unknown_path_is_not_found_by_any_method(api: Caller) -> None:
    for method in ("GET", "PUT", "POST", "DELETE"):
        answer = await api(method, "/API/v1/x", {} if method in ("PUT", "POST") else None)
        assert answer.status == 404, method
    assert (await api("PUT", "/version", {})).status == 405
    assert (await api("PUT", MAPS, {})).status == 405


async def test_secret_and_policies_of_jobs_are_judged_with_their_defaults(api: Caller) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    key = {"metadata": {"name": "k"}, "type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}}
    assert (await api("POST", secrets, key)).json["message"].endswith("data[ssh-privatekey]: Required value")
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    job = {"spec": {"template": pods, "podFailurePolicy": {"rules": rules}}}
    made = await api.create(CRON_JOBS, {"metadata": {"name": "c"}, "spec": {"schedule": "@daily", "jobTemplate": job}})
    (rule,) = made["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


async def test_new_service_without_a_cluster_has_no_address(api: Caller) -> None:
    spec = {"type": "ExternalName", "externalName": "a.b", "clusterIP": "None"}
    refused = await api("POST", SERVICES, {"metadata": {"name": "s"}, "spec": spec})
    assert refused.json["message"].endswith("spec.clusterIPs: Forbidden: may not be set for ExternalName services")


async def test_scale_of_a_missing_workload_must_say_its_name(api: Caller) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments/none/scale"
    assert (await api("PUT", path, {"spec": {"replicas": 1}})).status == 400
    assert (await api("PUT", path, {"metadata": {"name": "none"}, "spec": {"replicas": 1}})).status == 404


async def test_new_job_is_judged_without_the_labels_of_its_pods(api: Caller) -> None:
    rule = {"operations": ["CREATE"], "apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]}
    validations = [{"expression": "has(object.metadata.labels)", "message": "no labels"}]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": validations}
    await api.create(f"{POLICIES}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    bound = {"policyName": "p", "validationActions": ["Warn"]}
    await api.create(f"{POLICIES}/validatingadmissionpolicybindings", {"metadata": {"name": "p"}, "spec": bound})
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    for name, more, told in (("a", {}, True), ("b", {"metadata": {"labels": {"x": "y"}}}, False)):
        answer = await api("POST", jobs, {"metadata": {"name": name}, "spec": {"template": {**pods, **more}}})
        assert answer.json["metadata"]["labels"]["job-name"] == name
        assert ("no labels" in answer.headers.get("warning", "")) is told


@pytest.mark.parametrize("path", ["/healthz", "/version", "/apis"])
async def test_right_to_get_a_path_is_none_to_another_method(api: Caller, path: str) -> None:
    jane = api.as_(USER)
    assert [(await jane(method, path)).status for method in ("GET", "HEAD", "OPTIONS")] == [200, 403, 403]
    assert f'cannot options path \\"{path}\\"' in (await jane("OPTIONS", path)).body.decode()
