"""The pytest plug-in, used as its users use it, and clusters from templates."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from haru.embedded.options import OptionError
from haru.kube.errors import StatusError
from haru.testing import Cluster, LocalCluster, ProcessCluster, Template, WaitTimeoutError
from haru.testing.plugin import _marked

POD = """
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  containers: [{name: main, image: busybox}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: card}
spec:
  devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: trainer}
spec:
  containers: [{name: main, image: busybox, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: card}]
"""


def test_cluster_runs_pods_and_lists_objects(haru_cluster: Cluster) -> None:
    haru_cluster.apply(POD)
    pod = haru_cluster.wait("Pod", "worker")
    assert pod["status"]["phase"] == "Running"
    settings = haru_cluster.get("cm", "settings")
    assert settings is not None and settings["data"] == {"a": "b"}
    assert haru_cluster.wait_for_event("worker", "Scheduled")
    with pytest.raises(WaitTimeoutError, match=r"default/worker: no event Evicted: not within 0.2 s; .*Scheduled: "):
        haru_cluster.wait_for_event("worker", "Evicted", timeout=0.2)
    haru_cluster.patch("configmaps", "settings", {"data": {"a": "c"}})
    assert [
        found["data"]["a"] for found in haru_cluster.list("ConfigMap", "default", fields="metadata.name=settings")
    ] == ["c"]
    haru_cluster.delete("Pod", "worker", wait=60)
    assert haru_cluster.get("Pod", "worker") is None


def test_next_test_has_fresh_cluster(haru_cluster: Cluster) -> None:
    assert haru_cluster.get("ConfigMap", "settings") is None
    assert haru_cluster.list("Pod") == []


@pytest.mark.haru(profiles="dgx-h100:1")
def test_cluster_with_cards_allocates_claim(haru_cluster: Cluster) -> None:
    haru_cluster.apply(CLAIM)
    haru_cluster.wait("Pod", "trainer")
    claim = haru_cluster.wait_for("ResourceClaim", "card", lambda found: found["status"].get("allocation"))
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["driver"] == "gpu.nvidia.com"


def test_wait_timeout_reports_last_state(haru_cluster: Cluster) -> None:
    haru_cluster.apply(POD.replace("spec:\n", "spec:\n  nodeSelector: {no: such}\n", 1))
    haru_cluster.wait_for("Pod", "worker", lambda pod: pod.get("status", {}).get("conditions"))
    with pytest.raises(WaitTimeoutError) as caught:
        haru_cluster.wait("Pod", "worker", timeout=0.2)
    assert "Pod default/worker: Ready=True: not within 0.2 s" in str(caught.value)
    assert "PodScheduled=False (Unschedulable: 0/1 nodes are available" in str(caught.value)
    with pytest.raises(LookupError, match="the cluster serves no 'nonsense'"):
        haru_cluster.get("nonsense", "x")


def test_shared_cluster_gives_separate_namespaces(haru_shared_cluster: LocalCluster, haru_namespace: str) -> None:
    haru_shared_cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}, namespace=haru_namespace
    )
    assert haru_shared_cluster.get("ConfigMap", "c", haru_namespace) is not None


def test_kubectl_works_with_cluster_kubeconfig(haru_cluster: Cluster) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        assert os.environ.get("HARU_REQUIRE_ALL") != "1", "kubectl is required but not installed"
        pytest.skip("kubectl is not installed")
    command = [kubectl, "--kubeconfig", str(haru_cluster.kubeconfig), "get", "nodes", "-o", "json"]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert len(found["items"]) == 1


def test_template_is_prepared_once(tmp_path: Path) -> None:
    template = Template(tmp_path / "template", profiles="").prepare()
    made = (tmp_path / "template" / "state.db").stat().st_mtime_ns
    assert template.prepare().is_prepared
    assert (tmp_path / "template" / "state.db").stat().st_mtime_ns == made
    with LocalCluster(template.copy(tmp_path / "one"), template.options) as cluster:
        assert cluster.url.startswith("https://127.0.0.1:")
        assert cluster.list("Node") == []


class _Marked:
    """What the plug-in asks of a test."""

    nodeid = "test_it"

    def __init__(self, *markers: pytest.Mark) -> None:
        self._markers = markers

    def iter_markers(self, name: str) -> tuple[pytest.Mark, ...]:
        return self._markers


def test_nearest_marker_wins_and_unknown_option_is_refused() -> None:
    near, far = pytest.mark.haru(profiles="cpu:2").mark, pytest.mark.haru(profiles="cpu:3", controllers=["*"]).mark
    assert _marked(_Marked(near, far)) == {"profiles": "cpu:2", "controllers": ("*",)}
    with pytest.raises(pytest.UsageError, match=r"takes profiles, .*, not nodes"):
        _marked(_Marked(pytest.mark.haru(nodes=3).mark))


@pytest.mark.haru(process=True)
def test_process_cluster_supports_all_operations(haru_cluster: Cluster) -> None:
    """All that can be done with one in a thread, errors included, and it ends with its test."""
    assert isinstance(haru_cluster, ProcessCluster)
    haru_cluster.apply(POD)
    pod = haru_cluster.wait("Pod", "worker")
    assert pod["status"]["phase"] == "Running"
    assert haru_cluster.wait_for_event("worker", "Scheduled")
    with pytest.raises(LookupError, match="the cluster serves no 'nonsense'"):
        haru_cluster.get("nonsense", "x")
    with pytest.raises(StatusError, match=r"nodeName.*Forbidden|may not change"):
        haru_cluster.patch("Pod", "worker", {"spec": {"nodeName": "elsewhere"}})
    before = haru_cluster.now
    assert haru_cluster.advance(60) - before >= timedelta(seconds=60)
    assert haru_cluster.url.startswith("https://127.0.0.1:")


def test_process_cluster_reports_startup_error(tmp_path: Path) -> None:
    template = Template(tmp_path / "template", profiles="cpu:1")
    with pytest.raises(OptionError, match=r"--feature-gates: .*Nonsense"):
        ProcessCluster(tmp_path / "other", replace(template.options, feature_gates="Nonsense=true")).start()


def test_process_cluster_reports_exit_code(tmp_path: Path, haru_template: Callable[..., Template]) -> None:
    template = haru_template()
    cluster = ProcessCluster(template.copy(tmp_path / "cluster"), template.options).start()
    try:
        assert cluster._process.pid is not None
        os.kill(cluster._process.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="the cluster has ended, with the exit code -9"):
            cluster.get("Pod", "worker")
    finally:
        cluster.stop()
