"""Every example does what its first lines say, on a cluster of the profiles that it names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from system_cluster import deployment, template

from haru_process import Up, devices_of, environment, phase, until

Obj = dict[str, Any]
EXAMPLES = Path(__file__).parents[2] / "examples"
PROFILES = "dgx-h100:2,dgx-a100-80gb-mig:1,dgx-a100-80gb-shared:1,cpu:1"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("examples"), "--ephemeral", "--profile", PROFILES)
    yield running
    assert running.stop() == 0


@pytest.fixture
def clean(up: Up, kubectl: str) -> Iterator[Up]:
    """Nothing in the default namespace, before and after."""
    yield up
    kinds = "deployments,jobs,pods,podgroups,resourceclaims,resourceclaimtemplates"
    up.kubectl(kubectl, "delete", kinds, "--all", "--grace-period=1", "--wait=false")
    up.kubectl(kubectl, "delete", "devicetaintrules", "--all")
    until(
        "nothing is left", lambda: not up.api.list("pods", "default") and not up.api.list("resourceclaims", "default")
    )


def apply(up: Up, binary: str, name: str) -> list[Obj]:
    """Applies an example twice: the second time changes nothing."""
    file = EXAMPLES / name
    first = up.kubectl(binary, "apply", "-f", str(file))
    assert (first.returncode, first.stderr) == (0, ""), first.stderr
    again = up.kubectl(binary, "apply", "-f", str(file), "-o", "json")
    assert again.returncode == 0, again.stderr
    applied = json.loads(again.stdout)
    assert {o["metadata"].get("generation", 1) for o in applied.get("items", [applied])} == {1}
    return [obj for obj in yaml.safe_load_all(file.read_text()) if obj]


def running(up: Up, count: int, prefix: str = "", namespace: str = "default") -> list[Obj]:
    def found() -> list[Obj] | None:
        pods = [p for p in up.api.list("pods", namespace) if p["metadata"]["name"].startswith(prefix)]
        alive = [p for p in pods if phase(p) == "Running"]
        return alive if len(alive) == count else None

    return until(f"{count} pods {prefix}* run", found) or []


def held(up: Up) -> dict[str, list[tuple[str, str]]]:
    """Claim → devices."""
    return {c["metadata"]["name"]: devices_of(c) for c in up.api.list("resourceclaims", "default")}


def test_gang_example_places_each_gang_on_one_node_half(clean: Up, kubectl: str) -> None:
    apply(clean, kubectl, "gang.yaml")
    running(clean, 4, "finetune-")
    groups = [sorted(devices) for devices in held(clean).values()]
    assert [len(g) for g in groups] == [4, 4, 4]
    # All four of a worker are on one socket.
    assert all({d for _, d in g} in ({f"gpu-{i}" for i in range(4)}, {f"gpu-{i}" for i in range(4, 8)}) for g in groups)


def test_gpu_limits_example_runs_pods_with_claims(clean: Up, kubectl: str) -> None:
    apply(clean, kubectl, "gpu-limits.yaml")
    pods = running(clean, 4, "pretrain-")
    names = {p["status"]["extendedResourceClaimStatus"]["resourceClaimName"] for p in pods}
    assert {name: len(devices) for name, devices in held(clean).items()} == dict.fromkeys(names, 4)
    assert len(names) == 4


def test_mig_example_places_partitions_of_one_card_together(clean: Up, kubectl: str) -> None:
    apply(clean, kubectl, "mig.yaml")
    running(clean, 2, "rag-")
    for devices in held(clean).values():
        large, small = (name for _, name in devices)
        assert "-mig-3g40gb-" in large and "-mig-1g10gb-" in small
        assert large.split("-mig-")[0] == small.split("-mig-")[0]


def test_shared_memory_example_places_three_pods_on_one_card(clean: Up, kubectl: str) -> None:
    apply(clean, kubectl, "shared-memory.yaml")
    running(clean, 3, "assistants-")
    claims = clean.api.list("resourceclaims", "default")
    results = [r for c in claims for r in c["status"]["allocation"]["devices"]["results"]]
    assert {(r["pool"], r["device"]) for r in results} == {("dgx-a100-80gb-shared-0", "gpu-0")}
    assert [r["consumedCapacity"] for r in results] == [{"memory": "20Gi"}] * 3
    assert len({r["shareID"] for r in results}) == 3


def test_maintenance_example_moves_pod_off_tainted_card(clean: Up, kubectl: str) -> None:
    card = ("dgx-h100-0", "gpu-3")
    apply(clean, kubectl, "maintenance.yaml")
    running(clean, 1, "diagnosis")
    assert held(clean) == {"card-to-test": [card]}
    # Others are kept away from it, also once the diagnosis is over, until the rule is gone.
    clean.kubectl(kubectl, "delete", "pod", "diagnosis")
    apply(clean, kubectl, "demo/10-notebooks.yaml")
    clean.kubectl(kubectl, "scale", "deployment", "notebooks", "--replicas=16")
    running(clean, 15, "notebooks-")
    taken = {device for devices in held(clean).values() for device in devices}
    assert card not in taken and len(taken) == 15
    clean.kubectl(kubectl, "delete", "devicetaintrule", "gpu-3-maintenance")
    running(clean, 16, "notebooks-")


def test_monitoring_example_runs_agents_beside_workloads(tmp_path: Path, kubectl: str) -> None:
    """Agents run on every GPU node while all cards are taken, see all cards of their node, and take none away."""
    up = Up(tmp_path, "--ephemeral", "--profile", "dgx-h100:2,t4:1,cpu:1")
    try:
        cards = {"dgx-h100-0": 8, "dgx-h100-1": 8, "t4-0": 4}
        everything = {(node, f"gpu-{i}") for node, count in cards.items() for i in range(count)}
        up.api.create(template("any-card", plain_request()), "default")
        up.api.create(deployment("work", 20, template="any-card"), "default")
        running(up, 20, "work-")
        assert {device for devices in held(up).values() for device in devices} == everything
        apply(up, kubectl, "monitoring/namespace.yaml")
        apply(up, kubectl, "monitoring/agents.yaml")
        label = "nvidia.com/gpu.present=true"
        assert up.kubectl(kubectl, "label", "node", *cards, label).returncode == 0
        agents = running(up, 3, "agent-", "gpu-monitoring")
        assert {agent["spec"]["nodeName"] for agent in agents} == set(cards)
        for agent in agents:
            [status] = agent["status"]["resourceClaimStatuses"]
            claim = up.api.get("resourceclaims", status["resourceClaimName"], "gpu-monitoring")
            node = agent["spec"]["nodeName"]
            assert sorted(devices_of(claim)) == [(node, f"gpu-{i}") for i in range(cards[node])]
            assert all(r["adminAccess"] for r in claim["status"]["allocation"]["devices"]["results"])
            assert [user["uid"] for user in claim["status"]["reservedFor"]] == [agent["metadata"]["uid"]]
        # Nothing counts as taken by them: not in what pools tell, and not for the work that comes next.
        assert allocated(up) == {"dgx-h100-0": (8, 0), "dgx-h100-1": (8, 0), "t4-0": (4, 0)}
        up.api.patch("deployments", "work", {"spec": {"replicas": 0}}, "default")
        until("the cards are given back", lambda: not up.api.list("resourceclaims", "default"))
        free = {"dgx-h100-0": (0, 8), "dgx-h100-1": (0, 8), "t4-0": (0, 4)}
        until("the pools are free", lambda: allocated(up) == free)
        up.api.patch("deployments", "work", {"spec": {"replicas": 20}}, "default")
        running(up, 20, "work-")
        assert {device for devices in held(up).values() for device in devices} == everything
        assert len(running(up, 3, "agent-", "gpu-monitoring")) == 3
    finally:
        assert up.stop() == 0


def plain_request() -> Obj:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}


def allocated(up: Up) -> dict[str, tuple[int, int]]:
    """Pool → devices allocated and available, as a ResourcePoolStatusRequest tells."""
    request: Obj = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest"}
    up.api.create({**request, "metadata": {"name": "ask"}, "spec": {"driver": "gpu.nvidia.com"}})
    status = until("it is answered", lambda: up.api.get("resourcepoolstatusrequests", "ask").get("status")) or {}
    up.api.delete("resourcepoolstatusrequests", "ask")
    return {p["poolName"]: (p["allocatedDevices"], p["availableDevices"]) for p in status["pools"]}


def test_admin_access_is_refused_without_the_label(clean: Up, kubectl: str) -> None:
    text = (
        (EXAMPLES / "monitoring" / "agents.yaml").read_text().replace("namespace: gpu-monitoring", "namespace: default")
    )
    answer = clean.kubectl(kubectl, "apply", "-f", "-", stdin=text.split("---")[0])
    assert answer.returncode == 1
    assert "requires the `resource.kubernetes.io/admin-access: true` label" in answer.stderr


MANIFESTS = sorted(file for file in EXAMPLES.rglob("*.yaml") if "UpConfiguration" not in file.read_text())


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_every_manifest_is_accepted_by_client_and_server_side_apply(up: Up, kubectl: str, file: Path) -> None:
    for namespace in file.parent.glob("namespace.yaml"):  # what is only tried makes no namespace for the rest
        assert up.kubectl(kubectl, "apply", "-f", str(namespace)).returncode == 0
    for obj in yaml.safe_load_all(file.read_text()):
        if obj and obj["kind"] == "Namespace":  # nothing can be tried in a namespace that is only tried itself
            made = up.kubectl(kubectl, "apply", "-f", "-", stdin=json.dumps(obj))
            assert made.returncode == 0, made.stderr
    for definitions in file.parent.glob("definitions.yaml"):
        if definitions != file:
            assert up.kubectl(kubectl, "apply", "-f", str(definitions)).returncode == 0
            up.kubectl(kubectl, "wait", "--for=condition=Established", "-f", str(definitions))
    # As the manager kubectl it would go on from what was applied above, and warn that a dry run has not written that.
    for flags in (("--dry-run=server",), ("--server-side", "--field-manager=test", "--dry-run=server")):
        answer = up.kubectl(kubectl, "apply", "--validate=strict", *flags, "-f", str(file))
        assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr


def test_haru_up_configuration_example_is_applied(tmp_path: Path) -> None:
    up = Up(tmp_path, "--config", str(EXAMPLES / "up.yaml"))
    try:
        names = [n["metadata"]["name"] for n in up.api.list("nodes")]
        assert sorted(names) == ["cpu-0", "dgx-a100-80gb-mig-0", "dgx-h100-0", "dgx-h100-1"]
        assert up.api.call("GET", "/apis/resource.k8s.io/v1beta1")[0] == 404
    finally:
        assert up.stop() == 0


def test_demo_succeeds_and_cleans_up(tmp_path: Path) -> None:
    env = {**environment(tmp_path), "PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    demo = [sys.executable, str(EXAMPLES / "demo" / "demo.py")]
    answer = subprocess.run(demo, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=360)
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-3000:]
    assert answer.stdout.count("\n  ok  ") == 9
    assert "All steps succeeded" in answer.stdout
    assert list(tmp_path.glob("haru-*")) == [], "the demo left something behind"
