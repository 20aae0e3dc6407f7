"""The main jobs, end to end, in both arrangements: embedded, and with scheduler and controllers as processes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from system_cluster import (
    A100,
    H100,
    Cluster,
    claim,
    deployment,
    job,
    pod,
    pod_group,
    replica_set,
    request,
    selected,
    template,
)

from haru_process import Refusal, condition, devices_of, health, phase, until

Obj = dict[str, Any]


def test_deployment_with_claims_runs_and_releases_devices(cluster: Cluster, space: str) -> None:
    api = cluster.api
    api.create(template("one", request()), space)
    api.create(deployment("web", 3, template="one"), space)
    pods = cluster.wait_running(space, 3)
    claims = [cluster.claim_of(p) for p in pods]
    assert len(cluster.held(space)) == 3
    for each, held in zip(pods, claims, strict=True):
        assert held["status"]["reservedFor"] == [
            {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
        ]
        assert held["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert [r["uid"] for r in held["metadata"]["ownerReferences"]] == [each["metadata"]["uid"]]
        assert all(pool == each["spec"]["nodeName"] for pool, _ in devices_of(held))
    status = until("the deployment is available", lambda: _available(cluster, space, "web", 3))
    assert status["readyReplicas"] == 3
    api.patch("deployments", "web", {"spec": {"replicas": 1}}, space)
    until("two claims are gone", lambda: len(api.list("resourceclaims", space)) == 1)
    assert len(cluster.held(space)) == 1


def _available(cluster: Cluster, space: str, name: str, replicas: int) -> Obj | None:
    status: Obj = cluster.api.get("deployments", name, space).get("status", {})
    return status if status.get("availableReplicas") == replicas else None


def test_indexed_job_becomes_gang_and_releases_claims_on_completion(cluster: Cluster, space: str) -> None:
    api = cluster.api
    api.create(template("one", request()), space)
    api.create(job("train", 4, run_seconds="1", template="one"), space)
    until("the job is complete", lambda: condition(api.get("jobs", "train", space), "Complete").get("status") == "True")
    finished = api.get("jobs", "train", space)
    assert (finished["status"]["succeeded"], finished["status"]["completedIndexes"]) == (4, "0-3")
    pods = cluster.pods(space)
    assert [phase(p) for p in pods] == ["Succeeded"] * 4
    assert len({p["spec"]["schedulingGroup"]["podGroupName"] for p in pods}) == 1
    [workload] = api.list("workloads", space)
    assert workload["metadata"]["ownerReferences"][0]["uid"] == finished["metadata"]["uid"]
    assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"]["gang"]["minCount"] == 4
    until("the devices are free", lambda: cluster.held(space) == [])


def test_gang_with_extended_resource_gets_devices_and_releases_them(cluster: Cluster, space: str) -> None:
    api = cluster.api
    main = {"name": "main", "image": "registry.example.com/work:1", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    api.create(job("train", 3, run_seconds="1", containers=[main]), space)
    until("the job is complete", lambda: condition(api.get("jobs", "train", space), "Complete").get("status") == "True")
    for each in cluster.pods(space):
        recorded = each["status"]["extendedResourceClaimStatus"]
        assert recorded["resourceClaimName"].startswith(f"{each['metadata']['name']}-extended-resources-")
        assert [m["containerName"] for m in recorded["requestMappings"]] == ["main"]
    until("the devices are free", lambda: api.list("resourceclaims", space) == [])


def test_gang_that_does_not_fit_stays_pending_until_it_fits(cluster: Cluster, space: str) -> None:
    api = cluster.api
    api.create(template("one", request()), space)
    api.create(deployment("others", 13, template="one"), space)
    cluster.wait_running(space, 13, "others")
    api.create(job("train", 4, template="one"), space)

    def refused() -> Obj | None:
        groups = api.list("podgroups", space)
        found = condition(groups[0], "PodGroupScheduled") if groups else {}
        return found if found.get("status") == "False" else None

    assert until("the group is refused", refused)["reason"] == "Unschedulable"
    assert len(cluster.pods(space, "train")) == 4
    assert cluster.bound(space, "train") == []
    assert len(cluster.held(space)) == 13
    said = cluster.wait_rejected(space, cluster.pods(space, "train")[0]["metadata"]["name"])
    assert said["reason"] == "Unschedulable"
    api.patch("deployments", "others", {"spec": {"replicas": 12}}, space)
    cluster.wait_running(space, 4, "train")
    assert len(cluster.held(space)) == 16


@pytest.mark.parametrize("attempt", range(2))
def test_exactly_one_of_two_gangs_is_bound(cluster: Cluster, space: str, attempt: int) -> None:
    api = cluster.api
    api.create(template("one", request()), space)
    for name in ("red", "blue"):
        api.create(pod_group(name, 9), space)
    for number in range(9):
        for name in ("red", "blue"):
            api.create(pod(f"{name}-{number}", group=name, template="one"), space)

    def winners() -> list[str] | None:
        whole = [name for name in ("red", "blue") if len(cluster.running(space, name)) == 9]
        return whole or None

    [winner] = until("one gang runs", winners)
    loser = ({"red", "blue"} - {winner}).pop()
    cluster.wait_rejected(space, f"{loser}-0")
    assert cluster.bound(space, loser) == []
    assert len(cluster.held(space)) == 9
    for number in range(9):
        api.delete("pods", f"{winner}-{number}", space)
    cluster.wait_running(space, 9, loser)


def test_mig_partition_is_allocated(cluster: Cluster, space: str) -> None:
    small = selected('device.attributes["gpu.nvidia.com"].profile == "3g.40gb"', "mig.nvidia.com")
    cluster.api.create(template("slice", small), space)
    cluster.api.create(deployment("infer", 4, template="slice"), space)
    pods = cluster.wait_running(space, 4)
    assert {p["spec"]["nodeName"] for p in pods} == {"dgx-a100-80gb-mig-0"}
    partitions = cluster.held(space)
    assert len(partitions) == 4 and all("mig-3g40gb" in device for _, device in partitions)
    # Two such partitions fill a card's memory; whole cards that are cut are not to be had.
    cluster.api.create(template("card", request(family=A100, count=8, allocationMode="ExactCount")), space)
    cluster.api.create(pod("greedy", template="card"), space)
    assert cluster.wait_rejected(space, "greedy")["reason"] == "Unschedulable"


def test_first_available_alternative_is_allocated(cluster: Cluster, space: str) -> None:
    def alternative(name: str, expression: str) -> Obj:
        return {
            "name": name,
            "deviceClassName": "gpu.nvidia.com",
            "selectors": [{"cel": {"expression": expression}}],
        }

    wanted = [
        alternative("b200", 'device.attributes["gpu.nvidia.com"].architecture == "Blackwell"'),
        alternative("a100", f'device.attributes["gpu.nvidia.com"].architecture == "{A100}"'),
        alternative("h100", f'device.attributes["gpu.nvidia.com"].architecture == "{H100}"'),
    ]
    cluster.api.create(template("any", {"name": "gpu", "firstAvailable": wanted}), space)
    cluster.api.create(pod("server", template="any"), space)
    [server] = cluster.wait_running(space, 1)
    allocated = cluster.claim_of(server)["status"]["allocation"]["devices"]["results"]
    assert [r["request"] for r in allocated] == ["gpu/a100"]


def test_two_pods_share_a_claim(cluster: Cluster, space: str) -> None:
    api = cluster.api
    api.create(claim("shared", request()), space)
    for name in ("chat-a", "chat-b"):
        api.create(pod(name, claim="shared"), space)
    pods = cluster.wait_running(space, 2)
    assert len({p["spec"]["nodeName"] for p in pods}) == 1
    held = api.get("resourceclaims", "shared", space)
    assert {r["name"] for r in held["status"]["reservedFor"]} == {"chat-a", "chat-b"}
    api.delete("pods", "chat-a", space)
    until("one user is left", lambda: [r["name"] for r in _reserved(cluster, space)] == ["chat-b"])
    assert len(cluster.held(space)) == 1
    # In use, it cannot go; without users it goes.
    api.delete("resourceclaims", "shared", space)
    assert api.get("resourceclaims", "shared", space)["metadata"]["deletionTimestamp"]
    api.delete("pods", "chat-b", space)
    until("the claim is gone", lambda: api.find("resourceclaims", "shared", space) is None)


def _reserved(cluster: Cluster, space: str) -> list[Obj]:
    return list(cluster.api.get("resourceclaims", "shared", space)["status"].get("reservedFor") or ())


def test_deleted_namespace_removes_all_its_objects(cluster: Cluster) -> None:
    api = cluster.api
    space = api.namespace("to-delete")
    api.create(template("one", request()), space)
    api.create(deployment("web", 2, template="one"), space)
    api.create(job("train", 2, template="one"), space)
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}, space)
    cluster.wait_running(space, 4)
    api.delete("namespaces", space)
    until("the namespace is gone", lambda: api.find("namespaces", space) is None)
    for plural in ("pods", "deployments", "jobs", "resourceclaims", "configmaps", "podgroups", "workloads"):
        assert api.list(plural, space) == []
    assert cluster.held() == []


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_propagation_policy_determines_fate_of_dependents(cluster: Cluster, space: str, policy: str) -> None:
    api = cluster.api
    api.create(replica_set("owner", 2), space)
    cluster.wait_running(space, 2)
    before = {p["metadata"]["uid"] for p in cluster.pods(space)}
    api.delete("replicasets", "owner", space, propagationPolicy=policy)
    if policy == "Foreground":
        owner = api.find("replicasets", "owner", space)
        if owner is not None:
            assert "foregroundDeletion" in owner["metadata"]["finalizers"]
    until("the owner is gone", lambda: api.find("replicasets", "owner", space) is None)
    if policy == "Orphan":
        pods = cluster.pods(space)
        assert {p["metadata"]["uid"] for p in pods} == before
        assert all(not p["metadata"].get("ownerReferences") for p in pods)
    else:
        if policy == "Foreground":
            assert cluster.pods(space) == []
        until("the pods are gone", lambda: cluster.pods(space) == [])


def test_pod_is_deleted_after_termination_and_finalizer(cluster: Cluster, space: str) -> None:
    api = cluster.api
    slow = pod("slow", terminationGracePeriodSeconds=20)
    # Something that holds the object, so that there is time to look at it.
    slow["metadata"]["finalizers"] = ["example.com/hold"]
    api.create(slow, space)
    api.create(pod("quick"), space)
    cluster.wait_running(space, 2)
    api.delete("pods", "slow", space)
    leaving = api.get("pods", "slow", space)
    assert leaving["metadata"]["deletionTimestamp"] and leaving["metadata"]["deletionGracePeriodSeconds"] in (20, 0)
    until("its containers are stopped", lambda: phase(api.get("pods", "slow", space)) in ("Failed", "Succeeded"))
    api.patch("pods", "slow", {"metadata": {"finalizers": None}}, space)
    until("the pod is gone", lambda: api.find("pods", "slow", space) is None)
    api.delete("pods", "quick", space, gracePeriodSeconds=0)
    assert api.find("pods", "quick", space) is None


def test_drained_node_moves_its_pods(cluster: Cluster, space: str) -> None:
    api = cluster.api
    api.create(deployment("web", 2, nodeSelector={"node.kubernetes.io/instance-type": "cpu"}), space)
    first = cluster.wait_running(space, 2)
    node = first[0]["spec"]["nodeName"]
    budget: Obj = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}}
    budget["spec"] = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    api.create(budget, space)
    until("the budget is counted", lambda: _budget(cluster, space).get("currentHealthy") == 2)
    api.patch("nodes", node, {"spec": {"unschedulable": True}})
    try:
        name = first[0]["metadata"]["name"]
        with pytest.raises(Refusal, match="Cannot evict pod as it would violate the pod's disruption budget") as caught:
            _evict(cluster, space, name)
        assert caught.value.code == 429
        api.patch("poddisruptionbudgets", "web", {"spec": {"minAvailable": 1}}, space)
        until("one may go", lambda: _budget(cluster, space).get("disruptionsAllowed") == 1)
        _evict(cluster, space, name)
        until("the pod is gone", lambda: api.find("pods", name, space) is None)
        others = cluster.wait_running(space, 2)
        assert name not in {p["metadata"]["name"] for p in others}
        moved = [p for p in others if p["metadata"]["uid"] not in {f["metadata"]["uid"] for f in first}]
        assert [p["spec"]["nodeName"] for p in moved if p["spec"]["nodeName"] != node] != []
    finally:
        api.patch("nodes", node, {"spec": {"unschedulable": None}})


def _budget(cluster: Cluster, space: str) -> Obj:
    status: Obj = cluster.api.get("poddisruptionbudgets", "web", space).get("status", {})
    return status


def _evict(cluster: Cluster, space: str, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space}}
    path = f"/api/v1/namespaces/{space}/pods/{name}/eviction"
    code, answer = cluster.api.call("POST", path, body)
    if code >= 300:
        raise Refusal(path, code, answer)


def test_tainted_device_evicts_pod_and_is_not_allocated(cluster: Cluster, space: str) -> None:
    api = cluster.api
    api.create(claim("card", request()), space)
    api.create(pod("worker", claim="card"), space)
    [worker] = cluster.wait_running(space, 1)
    [(pool, device)] = devices_of(cluster.claim_of(worker))
    rule: Obj = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "broken"}}
    rule["spec"] = {
        "deviceSelector": {"driver": "gpu.nvidia.com", "pool": pool, "device": device},
        "taint": {"key": "broken", "value": "true", "effect": "NoExecute"},
    }
    api.create(rule)
    try:
        until("the pod is evicted", lambda: api.find("pods", "worker", space) is None)
        until("the device is free", lambda: cluster.held(space) == [])
        api.create(template("one", request()), space)
        api.create(deployment("others", 15, template="one"), space)
        cluster.wait_running(space, 15)
        assert (pool, device) not in cluster.held(space)
    finally:
        api.delete("devicetaintrules", "broken")


def test_pool_status_reports_device_counts(cluster: Cluster, space: str, kubectl: str) -> None:
    api = cluster.api
    api.create(template("one", request()), space)
    api.create(deployment("web", 3, template="one"), space)
    cluster.wait_running(space, 3)
    held = cluster.held(space)
    pool, device = next(("dgx-h100-1", f"gpu-{i}") for i in range(8) if ("dgx-h100-1", f"gpu-{i}") not in held)
    rule: Obj = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "hot"}}
    rule["spec"] = {"deviceSelector": {"pool": pool, "device": device}, "taint": {"key": "hot", "effect": "NoSchedule"}}
    api.create(rule)
    asked: Obj = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest"}
    asked |= {"metadata": {"name": space}, "spec": {"driver": "gpu.nvidia.com"}}
    name = f"resourcepoolstatusrequests/{space}"
    try:
        # The controllers hear of the claims and of the rule in their own time; an answer is of one moment.
        def counted() -> Obj | None:
            assert cluster.up.kubectl(kubectl, "create", "-f", "-", stdin=json.dumps(asked)).returncode == 0
            waited = cluster.up.kubectl(kubectl, "wait", "--for=condition=Complete", name, "--timeout=30s")
            assert waited.returncode == 0, waited.stderr
            answer = json.loads(cluster.up.kubectl(kubectl, "get", name, "-o", "json").stdout)
            table = cluster.up.kubectl(kubectl, "get", name).stdout.splitlines()
            assert cluster.up.kubectl(kubectl, "delete", name).returncode == 0
            assert table[0].split()[2:6] == ["TOTAL", "AVAILABLE", "ALLOCATED", "UNAVAILABLE"]
            seen = [int(number) for number in table[1].split()[2:6]]
            return answer["status"] if (seen[2], seen[3]) == (3, 1) else None

        status = until("all is counted", counted) or {}
    finally:
        api.delete("devicetaintrules", "hot")
    assert status["poolCount"] == 3
    pools = {p["poolName"]: p for p in status["pools"]}
    assert list(pools) == ["dgx-a100-80gb-mig-0", "dgx-h100-0", "dgx-h100-1"]
    for of_pool in pools.values():
        assert of_pool["nodeName"] == of_pool["poolName"] and "validationError" not in of_pool
        on_it = [device for where, device in held if where == of_pool["poolName"]]
        unavailable = 1 if of_pool["poolName"] == pool else 0
        left = of_pool["totalDevices"] - len(on_it) - unavailable
        numbers = (of_pool["allocatedDevices"], of_pool["unavailableDevices"], of_pool["availableDevices"])
        assert numbers == (len(on_it), unavailable, left)
    assert pools["dgx-h100-0"]["totalDevices"] == 8 and pools["dgx-a100-80gb-mig-0"]["totalDevices"] > 100


def test_events_report_binding_and_rejection(cluster: Cluster, space: str) -> None:
    api = cluster.api
    api.create(template("one", request()), space)
    api.create(pod("fits", template="one"), space)
    api.create(template("many", request(count=9)), space)
    api.create(pod("waits", template="many"), space)
    cluster.wait_running(space, 1, "fits")
    cluster.wait_rejected(space, "waits")

    def reasons(name: str) -> set[str]:
        return {e["reason"] for e in api.list("events", space) if e["involvedObject"]["name"] == name}

    until("the binding is told", lambda: "Scheduled" in reasons("fits"))
    until("the refusal is told", lambda: "FailedScheduling" in reasons("waits"))


def test_components_serve_health_version_and_metrics(cluster: Cluster, space: str) -> None:
    if cluster.arrangement == "embedded":
        code, text = cluster.api.call("GET", "/healthz")
        assert (code, text) == (200, "ok")
        assert cluster.api.call("GET", "/readyz")[0] == 200
        assert "apiserver_request_total" in cluster.api.call("GET", "/metrics")[1]
        return
    cluster.api.create(pod("one"), space)
    cluster.wait_running(space, 1)
    wanted = {"scheduler": "scheduler_schedule_attempts_total", "controllers": "workqueue_"}
    for name, port in cluster.health_ports.items():
        assert health(port, "/healthz") == (200, "ok")
        assert health(port, "/livez")[0] == 200
        assert health(port, "/readyz") == (200, "ok")
        assert wanted[name] in health(port, "/metrics")[1]
        assert 'kubernetes_feature_enabled{name="DRADeviceTaints",stage="BETA"} 1\n' in health(port, "/metrics")[1]
        lease = cluster.api.get("leases", f"haru-{name}", "kube-system")
        assert lease["spec"]["holderIdentity"]


def test_kubectl_works_with_simulated_containers(cluster: Cluster, space: str, kubectl: str) -> None:
    cluster.api.create(pod("one"), space)
    cluster.wait_running(space, 1)

    def run(*arguments: str) -> tuple[int, str, str]:
        done = cluster.up.kubectl(kubectl, "-n", space, *arguments)
        return done.returncode, done.stdout, done.stderr

    assert run("logs", "one") == (0, "", "")
    assert run("exec", "one", "--", "hostname") == (0, "one\n", "")
    code, _, told = run("exec", "one", "--", "ls")
    assert code == 127 and "this container is simulated and runs no programs" in told, told
    code, _, told = run("port-forward", "pod/one", ":80")
    assert code == 1 and "its pods are simulated" in told, told
    debugger = ("--image=busybox", "--profile=general", "--container=debugger", "--attach=false")
    assert run("debug", "one", *debugger)[0] == 0

    def joined() -> list[Obj]:
        listed: list[Obj] = cluster.api.get("pods", "one", space)["status"].get("ephemeralContainerStatuses") or []
        return [status for status in listed if "running" in status["state"]]

    assert [status["name"] for status in until("the debugger runs", joined) or []] == ["debugger"]
