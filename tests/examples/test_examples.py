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


def running(up: Up, count: int, prefix: str = "") -> list[Obj]:
    def found() -> list[Obj] | None:
        pods = [p for p in up.api.list("pods", "default") if p["metadata"]["name"].startswith(prefix)]
        alive = [p for p in pods if phase(p) == "Running"]
        return alive if len(alive) == count else None

    return until(f"{count} pods {prefix}* run", found) or []


def held(up: Up) -> dict[str, list[tuple[str, str]]]:
    """Claim → devices."""
    return {c["metadata"]["name"]: devices_of(c) for c in up.api.list("resourceclaims", "default")}


def test_gang(clean: Up, kubectl: str) -> None:
    apply(clean, kubectl, "gang.yaml")
    running(clean, 4, "finetune-")
    groups = [sorted(devices) for devices in held(clean).values()]
    assert [len(g) for g in groups] == [4, 4, 4]
    # All four of a worker are on one socket.
    assert all({d for _, d in g} in ({f"gpu-{i}" for i in range(4)}, {f"gpu-{i}" for i in range(4, 8)}) for g in groups)


def test_mig(clean: Up, kubectl: str) -> None:
    apply(clean, kubectl, "mig.yaml")
    running(clean, 2, "rag-")
    for devices in held(clean).values():
        large, small = (name for _, name in devices)
        assert "-mig-3g40gb-" in large and "-mig-1g10gb-" in small
        assert large.split("-mig-")[0] == small.split("-mig-")[0]


def test_shared_memory(clean: Up, kubectl: str) -> None:
    apply(clean, kubectl, "shared-memory.yaml")
    running(clean, 3, "assistants-")
    claims = clean.api.list("resourceclaims", "default")
    results = [r for c in claims for r in c["status"]["allocation"]["devices"]["results"]]
    assert {(r["pool"], r["device"]) for r in results} == {("dgx-a100-80gb-shared-0", "gpu-0")}
    assert [r["consumedCapacity"] for r in results] == [{"memory": "20Gi"}] * 3
    assert len({r["shareID"] for r in results}) == 3


def test_maintenance(clean: Up, kubectl: str) -> None:
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


MANIFESTS = sorted(file for file in EXAMPLES.rglob("*.yaml") if "UpConfiguration" not in file.read_text())


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_every_manifest_is_accepted_by_both_ways_of_applying(up: Up, kubectl: str, file: Path) -> None:
    for flags in (("--dry-run=server",), ("--server-side", "--dry-run=server")):
        answer = up.kubectl(kubectl, "apply", "--validate=strict", *flags, "-f", str(file))
        assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr


def test_the_configuration_of_haru_up(tmp_path: Path) -> None:
    up = Up(tmp_path, "--config", str(EXAMPLES / "up.yaml"))
    try:
        names = [n["metadata"]["name"] for n in up.api.list("nodes")]
        assert sorted(names) == ["cpu-0", "dgx-a100-80gb-mig-0", "dgx-h100-0", "dgx-h100-1"]
        assert up.api.call("GET", "/apis/resource.k8s.io/v1beta1")[0] == 404
    finally:
        assert up.stop() == 0


def test_the_demo(tmp_path: Path) -> None:
    env = {**environment(tmp_path), "PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    demo = [sys.executable, str(EXAMPLES / "demo" / "demo.py")]
    answer = subprocess.run(demo, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=360)
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-3000:]
    assert answer.stdout.count("\n  ok  ") == 9
    assert "All of it happened" in answer.stdout
    assert list(tmp_path.glob("haru-*")) == [], "the demo left something behind"
