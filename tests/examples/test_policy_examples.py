"""The policies under examples/policies do what their first lines say, on a running cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haru_process import Up, devices_of, phase, until

pytestmark = pytest.mark.nightly  # the page docs/how-to/change-pods-by-policy.md runs most of it by day

Obj = dict[str, Any]
POLICIES = Path(__file__).parents[2] / "examples" / "policies"
CONTAINER = {"name": "main", "image": "registry.example.com/work:1"}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    names = ("--scheduler-name", "default-scheduler", "--scheduler-name", "haru")
    running = Up(tmp_path_factory.mktemp("policies"), "--ephemeral", "--profile", "dgx-h100:1,cpu:1", *names)
    yield running
    assert running.stop() == 0


def apply(up: Up, binary: str, name: str) -> None:
    """Applies a file twice: the second time changes nothing."""
    for _ in range(2):
        answer = up.kubectl(binary, "apply", "-f", str(POLICIES / name), "-o", "json")
        assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr
        applied = json.loads(answer.stdout)["items"]
        assert {each["metadata"].get("generation", 1) for each in applied} == {1}


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    metadata: Obj = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [CONTAINER], **spec}}


def runs(up: Up, name: str) -> Obj:
    def found() -> Obj | None:
        now = up.api.get("pods", name, "default")
        return now if phase(now) == "Running" else None

    return until(f"{name} runs", found) or {}


def test_policy_example_sets_scheduler_name_of_pods_with_claims(up: Up, kubectl: str) -> None:
    apply(up, kubectl, "scheduler-of-claims.yaml")
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one"}}
    up.api.create({**claim, "spec": {"devices": {"requests": [request]}}}, "default")
    uses = [{"name": "gpu", "resourceClaimName": "one"}]
    made = up.api.create(pod("with", resourceClaims=uses), "default")
    assert made["spec"]["schedulerName"] == "haru"
    assert up.api.create(pod("without"), "default")["spec"]["schedulerName"] == "default-scheduler"
    other = up.api.create(pod("other", resourceClaims=uses, schedulerName="mine"), "default")
    assert other["spec"]["schedulerName"] == "mine"
    runs(up, "with")
    runs(up, "without")


def test_policy_example_adds_tolerations_by_class(up: Up, kubectl: str) -> None:
    apply(up, kubectl, "tolerations-of-classes.yaml")
    mine = {"key": "example.com/training", "operator": "Exists", "effect": "NoSchedule"}
    made = up.api.create(pod("training", {"workload-class": "training"}), "default")
    assert made["spec"]["tolerations"].count(mine) == 1
    assert len(made["spec"]["tolerations"]) == 3, "beside those that every pod gets"
    assert mine not in up.api.create(pod("serving", {"workload-class": "serving"}), "default")["spec"]["tolerations"]
    own = {"key": "example.com/training", "operator": "Equal", "value": "mine", "effect": "NoSchedule"}
    kept = up.api.create(pod("own", {"workload-class": "training"}, tolerations=[own]), "default")
    assert kept["spec"]["tolerations"][0] == own and mine not in kept["spec"]["tolerations"]
    up.api.patch("nodes", "cpu-0", {"spec": {"taints": [{"key": mine["key"], "effect": "NoSchedule"}]}})
    up.api.create(
        pod("training-2", {"workload-class": "training"}, nodeSelector={"kubernetes.io/hostname": "cpu-0"}), "default"
    )
    runs(up, "training-2")


def test_policy_example_turns_limits_into_claims(up: Up, kubectl: str) -> None:
    apply(up, kubectl, "claims-for-limits.yaml")
    asking = {**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "1"}}}
    second = {**CONTAINER, "name": "second", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    plain = {**CONTAINER, "name": "plain"}
    untouched = up.api.create(pod("before", containers=[asking], nodeSelector={"none": "such"}), "default")
    assert untouched["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    up.api.patch("namespaces", "default", {"metadata": {"labels": {"claims-for-limits": "true"}}})
    made = up.api.create(pod("moved", containers=[asking, plain, second]), "default")
    first, other, last = (container.get("resources") or {} for container in made["spec"]["containers"])
    assert first == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}, "claims": [{"name": "gpus-of-main"}]}
    assert other == {}
    assert last["claims"] == [{"name": "gpus-of-second"}] and not last.get("limits")
    assert made["spec"]["resourceClaims"] == [
        {"name": "gpus-of-main", "resourceClaimTemplateName": "nvidia-gpus-2"},
        {"name": "gpus-of-second", "resourceClaimTemplateName": "nvidia-gpus-1"},
    ]
    statuses = runs(up, "moved")["status"]["resourceClaimStatuses"]
    taken = {
        each["name"]: len(devices_of(up.api.get("resourceclaims", each["resourceClaimName"], "default")))
        for each in statuses
    }
    assert taken == {"gpus-of-main": 2, "gpus-of-second": 1}
