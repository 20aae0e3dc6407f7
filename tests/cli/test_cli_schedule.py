"""`haru schedule`: the reference's scheduling cases, manifests in and decisions out, and lines that are no cases."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from haru.cli.main import main

Obj = dict[str, Any]

CLUSTER = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpu}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: old}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
status:
  allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: n1, device: gpu-0}]}}
  reservedFor: [{resource: pods, name: old, uid: Pod/default/old}]
---
apiVersion: v1
kind: Pod
metadata: {name: old}
spec:
  nodeName: n1
  containers: [{name: c, image: x, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: old}]
status: {phase: Running}
"""
GANG = """
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: g}
spec: {priorityClassName: urgent, schedulingPolicy: {gang: {minCount: 2}}}
"""
MEMBER = """
---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  priorityClassName: urgent
  schedulingGroup: {podGroupName: g}
  containers: [{name: c, image: x, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
"""
PLAIN = """
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers: [{name: c, image: x, resources: {requests: {cpu: "%s"}}}]
"""


@pytest.mark.parametrize("name", ["scenarios", "random"])
def test_scheduling_reference_cases_agree(
    reference_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = reference_data / "vectors" / "scheduling"
    assert main(["schedule", "--cases", str(folder / f"{name}.jsonl")]) == 0
    answers = tmp_path / "answers.jsonl"
    answers.write_text(capsys.readouterr().out)
    command = [sys.executable, str(folder / "check.py"), str(folder / f"{name}.jsonl"), str(answers)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    count = len((folder / f"{name}.jsonl").read_text().splitlines())
    assert checked.stdout == f"{count} of {count} scheduling cases agree\n"
    assert count > 100


def files(folder: Path, *texts: str) -> list[str]:
    for number, text in enumerate(texts):
        (folder / f"{number}.yaml").write_text(text)
    return ["-f", *(str(folder / f"{number}.yaml") for number in range(len(texts)))]


def test_manifests_with_templates_and_priority_classes_are_scheduled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = files(tmp_path, CLUSTER, GANG + MEMBER % "g-0" + MEMBER % "g-1", PLAIN % ("small", "2"))
    assert main(["schedule", *given, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["apiVersion"], answer["kind"]) == ("haru.dev/v1alpha1", "SchedulingRound")
    assert answer["bindings"] == {"default/small": "n1"}
    assert answer["nominations"] == {"default/g-0": "n1", "default/g-1": "n1"}
    assert answer["evictions"] == ["default/old"]
    assert answer["groups"] == {"default/g": "WaitingOnPreemption"}
    devices = [r["device"] for a in answer["allocations"].values() for r in a["devices"]["results"]]
    assert sorted(devices) == ["gpu-0", "gpu-1"]
    assert answer["pending"] == {}


WORKLOADS = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      priorityClassName: urgent
      containers: [{name: c, image: x, resources: {claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: x, resources: {requests: {cpu: "1"}}}]}
"""


def test_workloads_are_expanded_to_the_pods_of_their_controllers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", *files(tmp_path, CLUSTER, WORKLOADS), "-o", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert sorted(answer["bindings"]) == ["default/web-0", "default/web-1"]
    # One card is taken, and a Job's group has no priority, whatever its pods have.
    assert sorted(answer["pending"]) == ["default/train-0-0", "default/train-1-1"]
    assert list(answer["groups"].values()) == ["Unschedulable"]
    fewer = WORKLOADS.replace("completions: 2", "completions: 1").replace("parallelism: 2", "parallelism: 1")
    assert main(["schedule", *files(tmp_path, CLUSTER, fewer), "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sorted(answer["bindings"]) == ["default/train-0-0", "default/web-0", "default/web-1"]


@pytest.mark.parametrize(
    "there",
    [
        "metadata: {name: web, uid: d-1}",
        "metadata: {name: web}\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: web-x\n  ownerReferences:\n"
        "  - {apiVersion: apps/v1, kind: Deployment, name: web, uid: Deployment/default/web, controller: true}\n"
        "spec: {nodeName: n1, containers: [{name: c, image: x}]}\nstatus: {phase: Running}\n---\n"
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: other}",
    ],
)
def test_exported_workloads_keep_their_existing_pods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    text = WORKLOADS.split("---")[1]
    before, _, after = text.partition("metadata: {name: web}")
    deployment, _, pod = there.partition("\n---\n")
    given = f"{before}{deployment}{after}" + (f"\n---\n{pod}" if pod else "")
    assert main(["schedule", *files(tmp_path, CLUSTER, given)]) == 0
    assert capsys.readouterr().out == "no pod waits\n"


def test_unschedulable_pod_exits_with_1_and_names_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", *files(tmp_path, CLUSTER, PLAIN % ("big", "20"))]) == 1
    assert capsys.readouterr().out == (
        "pending:\n"
        "  default/big  InsufficientResources: 0/1 nodes are available: 1 Insufficient cpu. "
        "no new claims to deallocate, preemption: 0/1 nodes are available: "
        "1 Preemption is not helpful for scheduling.\n"
    )


def test_text_output_has_a_table_per_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", *files(tmp_path, CLUSTER, GANG + MEMBER % "g-0" + MEMBER % "g-1")]) == 0
    assert capsys.readouterr().out == (
        "nominated, once the evicted are gone:\n"
        "  default/g-0  n1\n"
        "  default/g-1  n1\n"
        "evicted:\n"
        "  default/old\n"
        "devices:\n"
        "  default/g-0-gpu  gpu: gpu.example.com/n1/gpu-0\n"
        "  default/g-1-gpu  gpu: gpu.example.com/n1/gpu-1\n"
        "groups:\n"
        "  default/g  WaitingOnPreemption\n"
    )


def test_no_pending_pod_prints_no_pod_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", *files(tmp_path, CLUSTER)]) == 0
    assert capsys.readouterr().out == "no pod waits\n"


def test_yaml_output_has_same_fields_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = files(tmp_path, CLUSTER, PLAIN % ("small", "2"))
    main(["schedule", *given, "-o", "yaml"])
    assert "bindings:\n  default/small: n1\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gates", "nominated"), [("", True), ("WorkloadAwarePreemption=false", False), ("GangScheduling=false", False)]
)
def test_feature_gates_control_group_preemption_and_gang_scheduling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gates: str, nominated: bool
) -> None:
    """Without the gate (or what it depends on) a group evicts nobody; without quorum one member starts alone."""
    given = files(tmp_path, CLUSTER, GANG + MEMBER % "g-0" + MEMBER % "g-1")
    main(["schedule", *given, "-o", "json", "--feature-gates", gates])
    answer = json.loads(capsys.readouterr().out)
    assert bool(answer["nominations"]) == bool(answer["evictions"]) == nominated
    assert len(answer["bindings"]) == (1 if gates == "GangScheduling=false" else 0)


def test_scheduler_name_selects_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = files(tmp_path, CLUSTER, PLAIN % ("small", "2") + "  schedulerName: mine\n")
    assert main(["schedule", *given]) == 0
    assert capsys.readouterr().out == "no pod waits\n"
    assert main(["schedule", *given, "--scheduler-name", "mine"]) == 0
    assert capsys.readouterr().out == "bound:\n  default/small  n1\n"


def test_unknown_priority_class_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = files(tmp_path, PLAIN % ("p", "1") + "  priorityClassName: nope\n")
    assert main(["schedule", *given]) == 2
    assert capsys.readouterr().err == (
        'haru schedule: Pod p: spec.priorityClassName: no PriorityClass "nope" in the files: '
        "add it, or write spec.priority\n"
    )


def test_global_default_priority_class_applies_to_pods_without_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pod without a class is as important as the default says: it evicts what says it is less."""
    default = (
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: d}\nvalue: 5\nglobalDefault: true\n"
    )
    running = (PLAIN % ("low", "8")).replace("spec:", "spec:\n  nodeName: n1\n  priority: 1")
    main(["schedule", *files(tmp_path, CLUSTER, default, running, PLAIN % ("p", "8")), "-o", "json"])
    answer = json.loads(capsys.readouterr().out)
    assert (answer["nominations"], answer["evictions"]) == ({"default/p": "n1"}, ["default/low"])


ODD = """
apiVersion: v1
kind: Pod
metadata: {name: odd}
spec:
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: DoNotSchedule
    labelSelector: {matchExpressions: [{key: a, operator: Nope, values: [b]}]}
  containers: [{name: c, image: x}]
"""


def test_malformed_object_exits_with_2_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", *files(tmp_path, CLUSTER, ODD)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("haru schedule: nothing can be decided: an object is malformed:")
    assert err.count("\n") == 1


def test_group_claim_from_template_is_created_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = GANG.replace("spec: {", "spec: {resourceClaims: [{name: gpu, resourceClaimTemplateName: one}], ")
    main(["schedule", *files(tmp_path, CLUSTER, shared + MEMBER % "g-0" + MEMBER % "g-1"), "-o", "json"])
    answer = json.loads(capsys.readouterr().out)
    assert set(answer["bindings"]) == {"default/g-0", "default/g-1"}
    assert list(answer["allocations"]) == ["default/g-gpu"]


BROKEN = [
    ("{", "line 1", "this is no JSON"),
    ("[]", "line 1", "a case is a JSON object with a name"),
    ('{"name": 3}', "line 1", "a case is a JSON object with a name"),
    ('{"name": "a"}', "a", "'objects' is missing"),
    ('{"name": "a", "objects": [{"kind": "Pod"}]}', "a", "'metadata' is missing"),
    ('{"name": "a", "objects": 3}', "a", "TypeError"),
    ('{"name": "a", "objects": [{"kind": "Node", "metadata": {"name": "n"}, "spec": 7}]}', "a", "Error"),
]


@pytest.mark.parametrize(("line", "name", "what"), BROKEN)
def test_malformed_case_line_gives_error_answer_and_next_case_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, name: str, what: str
) -> None:
    good = '{"name": "good", "objects": []}'
    path = tmp_path / "cases.jsonl.gz"
    path.write_bytes(gzip.compress(f"{line}\n\n{good}\n".encode()))
    assert main(["schedule", "--cases", str(path)]) == 1
    out, err = capsys.readouterr()
    first, second = map(json.loads, out.splitlines())
    assert first["name"] == name
    assert what in first["error"]
    assert "line 1" in first["error"]
    assert second == {
        "name": "good",
        "bindings": {},
        "allocations": {},
        "nominations": {},
        "evictions": [],
        "pending": {},
        "groups": {},
    }
    assert not err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cases", "x", "-f", "y"], "--cases brings its own objects: leave -f out"),
        (["--cases", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["-f", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["--feature-gates", "Nope=true"], "--feature-gates"),
    ],
)
def test_invalid_arguments_exit_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str], text: str) -> None:
    assert main(["schedule", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert text in err
