"""`haru scheduler`, `haru explain` and `haru top` as processes beside a server that stands in for an older release."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replica_world import Replicas

from etcd_process import Etcd
from haru_process import Api, component, condition, haru, health, until

Obj = dict[str, Any]
DRIVER = "test.example.com"


@pytest.fixture
def replicas(tmp_path: Path, etcd: Etcd) -> Iterator[Replicas]:
    made = Replicas(tmp_path, etcd, f"/older-{tmp_path.name}")
    yield made
    made.stop()


def furnish(api: Api) -> None:
    """A node with one device, and two pods with a claim each, everything in v1beta1."""
    version = {"apiVersion": "resource.k8s.io/v1beta1"}
    api.create({**version, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}})
    api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "20"}
    api.patch("nodes", "n1", {"status": {"capacity": amounts, "allocatable": amounts}}, sub="status")
    api.patch("nodes", "n1", {"spec": {"taints": None}})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0", "basic": {"attributes": {"model": {"string": "a"}}}}]
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": devices}
    api.create({**version, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec})
    for name in ("a", "b"):
        request = {"name": "r", "deviceClassName": "gpu"}
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        api.create({**version, "kind": "ResourceClaim", **claim}, "default")
        container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}]}}
        claims = [{"name": "g", "resourceClaimName": name}]
        pod = {"schedulerName": "haru", "containers": [container], "resourceClaims": claims}
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}, "default")


def test_scheduler_and_commands_work_beside_server_of_1_33_with_v1beta1_alone(
    replicas: Replicas, tmp_path: Path
) -> None:
    gates = "DynamicResourceAllocation=true"
    versions = "resource.k8s.io/v1beta1=true"
    replicas.start("a", "--emulated-version", "1.33", "--feature-gates", gates, "--runtime-config", versions)
    api, kubeconfig = replicas.api("a"), replicas.kubeconfigs["a"]
    assert api.call("GET", "/apis/resource.k8s.io/v1")[0] == 404
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, "default")
    furnish(api)
    scheduler, port = component(tmp_path, "scheduler", kubeconfig)
    try:
        until("it is ready", lambda: health(port, "/readyz")[0] == 200)

        def bound() -> list[str]:
            return [pod["metadata"]["name"] for pod in api.list("pods", "default") if pod["spec"].get("nodeName")]

        [winner] = until("one pod is bound", bound)
        [loser] = {"a", "b"} - {winner}
        code, claim = api.call("GET", f"/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims/{winner}")
        assert code == 200
        assert [result["device"] for result in claim["status"]["allocation"]["devices"]["results"]] == ["gpu-0"]
        until("the other one waits", lambda: condition(api.get("pods", loser, "default"), "PodScheduled"))
        log = scheduler.log.read_text()
        assert "API server 1.33 serves resource.k8s.io/v1beta1; not served: " in log
        assert "scheduling.k8s.io/v1alpha2 PodGroup" in log and "Traceback" not in log
        where = ("--kubeconfig", str(kubeconfig))
        explained = haru(tmp_path, "explain", f"pod/{loser}", *where)
        assert "gpu" in explained.stdout and explained.returncode == 0, explained.stderr
        assert "(not served by this cluster: " in explained.stdout and "PodGroup" in explained.stdout
        top = haru(tmp_path, "top", *where)
        assert top.returncode == 0 and f"pod/{winner}" in top.stdout, top.stdout + top.stderr
    finally:
        assert scheduler.stop() == 0


def test_plain_pods_are_bound_beside_server_without_claims(replicas: Replicas, tmp_path: Path) -> None:
    replicas.start("a", "--emulated-version", "1.33")
    api = replicas.api("a")
    assert api.call("GET", "/apis/resource.k8s.io/v1beta1")[0] == 404
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, "default")
    api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "20"}
    api.patch("nodes", "n1", {"status": {"capacity": amounts, "allocatable": amounts}}, sub="status")
    api.patch("nodes", "n1", {"spec": {"taints": None}})
    spec = {"schedulerName": "haru", "containers": [{"name": "c", "image": "i"}]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, "default")
    scheduler, port = component(tmp_path, "scheduler", replicas.kubeconfigs["a"])
    try:
        until("it is ready", lambda: health(port, "/readyz")[0] == 200)
        until("the pod is bound", lambda: api.get("pods", "p", "default")["spec"].get("nodeName"))
    finally:
        assert scheduler.stop() == 0
