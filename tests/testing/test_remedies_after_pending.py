"""What goes wrong after a pod has its place is mended by the command of `haru explain`, run by a real kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from haru.testing import Cluster

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: main, {container}}}]}}
"""
OOM = "image: busybox, command: [stress, --vm-bytes, 150M], resources: {limits: {memory: 100Mi}}"


def waits(cluster: Cluster, app: str, reason: str) -> str:
    """The pod of an application whose container waits for this reason, as soon as there is one."""

    def found() -> str:
        for pod in cluster.list("Pod", "default", labels=f"app={app}"):
            for status in pod.get("status", {}).get("containerStatuses", ()):
                if status["state"].get("waiting", {}).get("reason") == reason:
                    return str(pod["metadata"]["name"])
        return ""

    return cluster.wait_until(found, timeout=120, what=f"a pod of {app} waits: {reason}")


def carry_out(cluster: Cluster, pod: str, remedy: str) -> None:
    """Run the command of the first remedy for a pod, which must be of this kind."""
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-m", "haru", "explain", f"pod/{pod}", "-o", "json"]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    first = json.loads(answer.stdout)["remedies"][0]
    assert first["kind"] == remedy, first
    subprocess.run(["bash", "-ec", first["command"]], env=env, check=True, capture_output=True, timeout=120)


def is_ready(cluster: Cluster, name: str) -> bool:
    """Whether the newest pods of a Deployment run, and no other."""
    status = (cluster.get("Deployment", name) or {}).get("status", {})
    return bool(status.get("updatedReplicas") == status.get("readyReplicas") == status.get("replicas") == 1)


@pytest.mark.usefixtures("kubectl")
@pytest.mark.haru(profiles="cpu:1")
def test_commands_for_killed_containers_and_unknown_images_let_deployments_run(haru_cluster: Cluster) -> None:
    haru_cluster.apply(DEPLOYMENT.format(name="hungry", container=OOM))
    haru_cluster.apply(DEPLOYMENT.format(name="right", container="image: registry.invalids/train:1"))
    haru_cluster.apply(DEPLOYMENT.format(name="misspelt", container="image: registry.invalid/train:1"))
    hungry = waits(haru_cluster, "hungry", "CrashLoopBackOff")
    carry_out(haru_cluster, hungry, "RaiseMemoryLimit")
    misspelt = waits(haru_cluster, "misspelt", "ImagePullBackOff")
    carry_out(haru_cluster, misspelt, "CorrectName")
    for name in ("hungry", "misspelt", "right"):
        haru_cluster.wait_until(lambda name=name: is_ready(haru_cluster, name), timeout=120, what=f"{name} runs")


BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
"""


@pytest.mark.haru(profiles="cpu:2")
def test_command_for_an_eviction_that_a_budget_holds_up_lets_it_go_on(haru_cluster: Cluster, kubectl: str) -> None:
    haru_cluster.apply(DEPLOYMENT.format(name="web", container="image: web"), BUDGET)
    haru_cluster.wait_until(lambda: is_ready(haru_cluster, "web"), timeout=120, what="web runs")
    (pod,) = haru_cluster.list("Pod", "default", labels="app=web")
    node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
    drain = [kubectl, "--kubeconfig", str(haru_cluster.kubeconfig), "drain", node, "--ignore-daemonsets", "--timeout"]
    refused = subprocess.run([*drain, "1s"], capture_output=True, text=True, check=False, timeout=120)
    assert "violate the pod's disruption budget" in refused.stderr
    carry_out(haru_cluster, name, "ScaleUp")

    def is_allowed() -> bool:
        budget = haru_cluster.get("PodDisruptionBudget", "web") or {}
        return bool(budget.get("status", {}).get("disruptionsAllowed"))

    haru_cluster.wait_until(is_allowed, timeout=120, what="the budget allows a disruption")
    subprocess.run([*drain, "100s"], check=True, capture_output=True, timeout=150)
    assert haru_cluster.get("Pod", name) is None
