"""The system in its two arrangements, and the objects that its tests are made of.

`embedded`: everything in one `haru up`. `separate`: `haru up` serves the API and the nodes; scheduler and controllers
are processes of their own that reach it over HTTPS, each with its own identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from haru_process import ACCELERATOR_GATES, Process, Up, component, condition, devices_of, health, phase, until

Obj = dict[str, Any]
PROFILES = "dgx-h100:2,dgx-a100-80gb-mig:1,cpu:2"
H100, A100 = "Hopper", "Ampere"
_numbers = itertools.count()


class Cluster:
    """A running system."""

    def __init__(self, home: Path, arrangement: str) -> None:
        self.arrangement = arrangement
        self.components: list[Process] = []
        self.health_ports: dict[str, int] = {}
        data = home / "data"
        flags = ["--profile", PROFILES, "--data-dir", str(data)]
        if arrangement == "separate":
            flags += ["--controllers=", "--no-scheduler"]
        self.up = Up(home, *flags)
        self.api = self.up.api
        if arrangement == "separate":
            gates = ("--feature-gates", ACCELERATOR_GATES)
            self._start("scheduler", data, *gates, "--scheduler-name", "default-scheduler")
            self._start("controllers", data, *gates)
            for name, port in self.health_ports.items():
                until(f"{name} is ready", lambda port=port: health(port, "/readyz")[0] == 200)

    def _start(self, name: str, data: Path, *flags: str) -> None:
        process, port = component(self.up.home, name, data / f"{name}.kubeconfig", *flags)
        self.components.append(process)
        self.health_ports[name] = port

    def stop(self) -> None:
        """Stops every process, each of which must end cleanly; none may have asked for what it may not have."""
        try:
            assert 'authorization_attempts_total{result="no-opinion"} 0\n' in self.api.call("GET", "/metrics")[1]
            for process in self.components:
                assert process.stop() == 0, process.log.read_text()
        finally:
            status = self.up.stop()
        assert status == 0, self.up.log.read_text()

    # -- questions -----------------------------------------------------------------------------------------------------

    def pods(self, space: str, prefix: str = "") -> list[Obj]:
        """Pods of a namespace, by name."""
        found = [p for p in self.api.list("pods", space) if p["metadata"]["name"].startswith(prefix)]
        return sorted(found, key=lambda p: str(p["metadata"]["name"]))

    def running(self, space: str, prefix: str = "") -> list[Obj]:
        """Those of them that run."""
        return [p for p in self.pods(space, prefix) if phase(p) == "Running"]

    def bound(self, space: str, prefix: str = "") -> list[Obj]:
        """Those of them that have a node."""
        return [p for p in self.pods(space, prefix) if p["spec"].get("nodeName")]

    def wait_running(self, space: str, count: int, prefix: str = "", seconds: float = 30) -> list[Obj]:
        """Waits until so many pods run."""
        what = f"{count} pods {prefix}* of {space} run"
        return until(what, lambda: found if len(found := self.running(space, prefix)) == count else None, seconds) or []

    def held(self, space: str = "") -> list[tuple[str, str]]:
        """The devices that claims hold; no device twice."""
        held = [device for claim in self.api.list("resourceclaims", space) for device in devices_of(claim)]
        assert len(held) == len(set(held)), f"a device is held twice: {sorted(held)}"
        return held

    def claim_of(self, pod: Obj) -> Obj:
        """The claim that a pod uses."""
        [entry] = pod["spec"]["resourceClaims"]
        name = entry.get("resourceClaimName") or pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        return self.api.get("resourceclaims", name, pod["metadata"]["namespace"])

    def wait_rejected(self, space: str, name: str, seconds: float = 20) -> Obj:
        """Waits until a pod says that it is unschedulable; its condition."""

        def rejected() -> Obj | None:
            found = condition(self.api.get("pods", name, space), "PodScheduled")
            return found if found.get("status") == "False" and found["reason"] != "NotReadyForScheduling" else None

        return until(f"{space}/{name} is rejected", rejected, seconds) or {}


@pytest.fixture(scope="module", params=["embedded", "separate"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One system for all tests of a module, in each arrangement."""
    running = Cluster(tmp_path_factory.mktemp(request.param), request.param)
    yield running
    running.stop()


@pytest.fixture
def space(cluster: Cluster) -> Iterator[str]:
    """A namespace, emptied afterwards so that its devices are free for the next test."""
    name = cluster.api.namespace(f"test-{next(_numbers)}")
    yield name
    cluster.api.delete("namespaces", name)
    until(f"namespace {name} is gone", lambda: cluster.api.find("namespaces", name) is None)


# -- objects -----------------------------------------------------------------------------------------------------------


def request(name: str = "gpu", family: str = H100, device_class: str = "gpu.nvidia.com", **more: Any) -> Obj:
    """What a request asks exactly: devices of an architecture."""
    expression = f'device.attributes["gpu.nvidia.com"].architecture == "{family}"'
    return {
        "name": name,
        "exactly": {"deviceClassName": device_class, "selectors": [{"cel": {"expression": expression}}], **more},
    }


def selected(expression: str, device_class: str = "gpu.nvidia.com") -> Obj:
    """A request for one device by an expression of its own."""
    return {
        "name": "gpu",
        "exactly": {"deviceClassName": device_class, "selectors": [{"cel": {"expression": expression}}]},
    }


def template(name: str, *requests: Obj) -> Obj:
    """A ResourceClaimTemplate."""
    spec = {"spec": {"devices": {"requests": list(requests)}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": spec,
    }


def claim(name: str, *requests: Obj) -> Obj:
    """A ResourceClaim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(requests)}},
    }


def pod_spec(template: str = "", claim: str = "", **more: Any) -> Obj:
    """The spec of a pod with one container, and a claim if one is named."""
    container: Obj = {"name": "main", "image": "registry.example.com/work:1"}
    spec: Obj = {"terminationGracePeriodSeconds": 1, "containers": [container], **more}
    if template or claim:
        source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
        spec["resourceClaims"] = [{"name": "gpu", **source}]
        container["resources"] = {"claims": [{"name": "gpu"}]}
    return spec


def pod(name: str, group: str = "", annotations: dict[str, str] | None = None, **spec: Any) -> Obj:
    """A pod."""
    body = pod_spec(**spec)
    if group:
        body["schedulingGroup"] = {"podGroupName": group}
    metadata = {"name": name, "labels": {"app": name}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def deployment(name: str, replicas: int, **spec: Any) -> Obj:
    """A Deployment."""
    labels = {"app": name}
    pods = {"metadata": {"labels": labels}, "spec": pod_spec(**spec)}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pods}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def replica_set(name: str, replicas: int) -> Obj:
    """A ReplicaSet."""
    return {**deployment(name, replicas), "kind": "ReplicaSet"}


def job(name: str, workers: int, run_seconds: str = "", **spec: Any) -> Obj:
    """An indexed job whose workers all run at once."""
    annotations = {"simulated.haru.dev/run-seconds": run_seconds} if run_seconds else {}
    pods = {"metadata": {"annotations": annotations}, "spec": pod_spec(restartPolicy="Never", **spec)}
    body = {"completionMode": "Indexed", "parallelism": workers, "completions": workers, "template": pods}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def pod_group(name: str, min_count: int) -> Obj:
    """A gang."""
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
    }


def gone(find: Callable[[], Any]) -> Callable[[], bool]:
    """Turns a finder into a question: is it gone?"""
    return lambda: find() is None
