"""`haru explain` on every kind in many states: exit status 0, the documented form, and what it says is so.

The verdicts are compared with what the API itself shows, and asked a second time from files, without a cluster.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from explain_schema import check_explanation
from system_cluster import claim, job, pod, pod_group, request, template

from haru.cli.main import main
from haru.engine.state import WATCHED_KINDS
from haru.kube.kinds import by_kind
from haru_process import Up, condition, haru, phase, until

Obj = dict[str, Any]
RUN, FAIL = "simulated.haru.dev/run-seconds", "simulated.haru.dev/fail"


def typo() -> Obj:
    wrong = request()
    wrong["exactly"]["selectors"][0]["cel"]["expression"] = 'device.attributes["gpu.nvidia.com"].nothing == "x"'
    return wrong


def elsewhere(name: str, device_class: str) -> Obj:
    return template(name, {"name": "gpu", "exactly": {"deviceClassName": device_class}})


def with_resources(obj: Obj, **requests: str) -> Obj:
    obj["spec"]["containers"][0].setdefault("resources", {})["requests"] = requests
    return obj


def finalized(obj: Obj) -> Obj:
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    return obj


def suspended(obj: Obj) -> Obj:
    obj["spec"]["suspend"] = True
    return obj


OBJECTS: list[Obj] = [
    template("one", request()),
    template("nine", request(count=9)),
    template("typo", typo()),
    elsewhere("foreign", "nope.example.com"),
    pod("plain"),
    pod("holder", template="one"),
    pod("done", annotations={RUN: "0"}, restartPolicy="Never"),
    pod("broken", annotations={FAIL: "Error: it broke"}, restartPolicy="Never"),
    pod("gated", schedulingGates=[{"name": "example.com/quota"}]),
    pod("no-class", template="foreign"),
    pod("typo", template="typo"),
    pod("nine", template="nine"),
    with_resources(pod("hungry"), cpu="1000"),
    pod("picky", nodeSelector={"zone": "moon"}),
    pod("no-claim", claim="absent"),
    pod("no-template", template="absent"),
    pod("lonely", group="absent"),
    pod("foreign", schedulerName="somebody-else"),
    finalized(pod("leaving")),
    pod_group("empty", 2),
    pod_group("short", 3),
    pod("short-0", group="short", template="one"),
    pod_group("whole", 2),
    pod("whole-0", group="whole", template="one"),
    pod("whole-1", group="whole", template="one"),
    claim("unused", request()),
    claim("held", request()),
    pod("user-a", claim="held"),
    pod("user-b", claim="held"),
    claim("foreign", {"name": "gpu", "exactly": {"deviceClassName": "nope.example.com"}}),
    job("train", 2, template="one"),
    job("short-lived", 2, run_seconds="0"),
    suspended(job("paused", 2, template="one")),
    job("big", 4, template="one"),
]

# KIND/NAME → the verdict, and words that the text must have.
EXPECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "pod/plain": ("Runs", ("runs on",)),
    "pod/holder": ("Runs", ("NVIDIA H100", "dgx-h100-0")),
    "pod/done": ("Runs", ("end",)),
    "pod/broken": ("Runs", ("fail",)),
    "pod/gated": ("FitsIf", ("example.com/quota",)),
    "pod/no-class": ("FitsIf", ("nope.example.com",)),
    "pod/typo": ("FitsIf", ("nothing",)),
    "pod/nine": ("NeverFits", ("9",)),
    "pod/hungry": ("NeverFits", ("cpu",)),
    "pod/picky": ("FitsIf", ("zone",)),
    "pod/no-claim": ("FitsIf", ("absent",)),
    "pod/no-template": ("FitsIf", ("absent",)),
    "pod/lonely": ("FitsIf", ("absent",)),
    "podgroup/empty": ("FitsIf", ("no living pod",)),
    "podgroup/short": ("FitsIf", ("1", "3")),
    "pod/short-0": ("FitsIf", ("short",)),
    "podgroup/whole": ("Runs", ("2",)),
    "pod/whole-0": ("Runs", ("NVIDIA H100",)),
    "claim/unused": ("", ("not allocated", "no pod", "nobody", "Unused", "unused")),
    "claim/held": ("Runs", ("user-a", "user-b", "NVIDIA H100")),
    "claim/foreign": ("", ("nope.example.com", "no pod", "nobody", "Unused", "unused")),
    "job/train": ("Runs", ("2",)),
    "job/short-lived": ("Runs", ("end",)),
    "job/paused": ("", ("suspended",)),
    "job/big": ("FitsLater", ("4", "short by", "held by", "helps", "--wide")),
    "pod/foreign": ("FitsIf", ("no scheduler somebody-else is known here", "name the scheduler default-scheduler")),
    "pod/leaving": ("", ("delet", "failed")),
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("explain")
    running = Up(home, "--ephemeral", "--profile", "dgx-h100:1,dgx-a100-80gb-mig:1,cpu:1")
    api = running.api
    for obj in OBJECTS:
        if obj["metadata"]["name"] == "big":
            # Last of all: 8 cards, of which 6 are taken by then.
            until("the first job runs", lambda: len(_running(running, "train-")) == 2)
        api.create(obj, "default")
    until("the job ended", lambda: condition(api.get("jobs", "short-lived", "default"), "Complete"))
    for name in ("plain", "holder", "user-a", "user-b", "whole-0", "whole-1", "leaving"):
        until(f"{name} runs", lambda name=name: phase(api.get("pods", name, "default")) == "Running")
    until("the big job is refused", lambda: any(_refused(g) for g in api.list("podgroups", "default")))
    api.delete("pods", "leaving", "default", gracePeriodSeconds=0)
    yield running
    assert running.stop() == 0


def _running(up: Up, prefix: str) -> list[Obj]:
    pods = [p for p in up.api.list("pods", "default") if p["metadata"]["name"].startswith(prefix)]
    return [p for p in pods if phase(p) == "Running"]


def _refused(group: Obj) -> bool:
    return condition(group, "PodGroupScheduled").get("status") == "False"


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = main(["explain", *arguments])
    out, err = capsys.readouterr()
    assert (status, err) == (0, ""), f"{arguments}: {status} {err}"
    return str(out)


@pytest.mark.parametrize("what", EXPECTED)
def test_explain_prints_expected_verdict_as_text_and_json(
    up: Up, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    verdict, words = EXPECTED[what]
    reach = ("--kubeconfig", str(up.kubeconfig))
    answer = json.loads(ask(capsys, what, "-o", "json", *reach))
    check_explanation(answer)
    assert answer["subject"]["name"] == what.split("/")[1]
    text = ask(capsys, what, *reach)
    if verdict:
        assert answer["verdict"] == verdict, text
        assert all(word in text for word in words), text
    else:
        assert any(word in text for word in words), text
    assert answer["verdict"] in text.splitlines()[0]


def test_yaml_and_json_output_are_equal(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    reach = ("--kubeconfig", str(up.kubeconfig))
    as_yaml = yaml.safe_load(ask(capsys, "job/big", "-o", "yaml", *reach))
    as_json = json.loads(ask(capsys, "job/big", "-o", "json", *reach))
    assert {**as_yaml, "ageSeconds": 0} == {**as_json, "ageSeconds": 0}


def test_verdicts_agree_with_pod_phases(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    for each in up.api.list("pods", "default"):
        name = each["metadata"]["name"]
        answer = json.loads(ask(capsys, f"po/{name}", "-o", "json", "--kubeconfig", str(up.kubeconfig)))
        check_explanation(answer)
        if phase(each) == "Running" and "deletionTimestamp" not in each["metadata"]:
            assert answer["verdict"] == "Runs", answer["summary"]
            assert answer["node"] == each["spec"]["nodeName"]
        if phase(each) == "Pending" and name != "foreign":
            assert answer["verdict"] in ("FitsIf", "FitsLater", "NeverFits"), (name, answer["summary"])


def test_explain_from_exported_files_equals_explain_from_cluster(
    up: Up, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What `kubectl get ... -o yaml` writes, list by list, takes the cluster's place."""
    files: list[str] = []
    for api_version, name in WATCHED_KINDS:
        kind = by_kind(api_version, name)
        assert kind is not None
        base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        code, listed = up.api.call("GET", f"{base}/{kind.plural}")
        assert code == 200
        items = [{"apiVersion": api_version, "kind": name, **item} for item in listed["items"]]
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
        files += ["-f", str(file)]
    for what in ("pod/nine", "pod/holder", "podgroup/short", "job/big", "claim/held"):
        live = json.loads(ask(capsys, what, "-o", "json", "--kubeconfig", str(up.kubeconfig)))
        offline = json.loads(ask(capsys, what, "-o", "json", *files))
        check_explanation(offline)
        for part in ("verdict", "requests", "nodes"):
            assert offline[part] == live[part], what


def test_explain_accepts_manifests_without_uid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    manifests = tmp_path / "work.yaml"
    manifests.write_text(yaml.safe_dump_all([template("one", request()), pod("worker", template="one"), job("j", 2)]))
    answer = json.loads(ask(capsys, "pod/worker", "-f", str(manifests), "-o", "json"))
    check_explanation(answer)
    assert answer["verdict"] in ("FitsIf", "NeverFits")
    check_explanation(json.loads(ask(capsys, "job/j", "-f", str(manifests), "-o", "json")))


def test_explain_reads_manifests_from_standard_input(tmp_path: Path) -> None:
    text = yaml.safe_dump(pod("worker"))
    answer = haru(tmp_path, "explain", "pod/worker", "-f", "-", stdin=text)
    assert (answer.returncode, answer.stderr) == (0, "") and "worker" in answer.stdout
    missing = haru(tmp_path, "explain", "pod/other", "-f", "-", stdin=text)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert 'there is no pod "other" in namespace default' in missing.stderr


def test_reader_without_permission_sees_which_kinds_were_not_read(up: Up, tmp_path: Path) -> None:
    api = up.api
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}, "default")
    group = "rbac.authorization.k8s.io"
    # Not the role `view`: with that, explain.haru.dev answers in full.
    rules = [{"apiGroups": ["", "resource.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "reader"}, "rules": rules}
    code, answer = api.call("POST", f"/apis/{group}/v1/namespaces/default/roles", role)
    assert code == 201, answer
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "reader"}}
    binding["roleRef"] = {"apiGroup": group, "kind": "Role", "name": "reader"}
    binding["subjects"] = [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]
    code, answer = api.call("POST", f"/apis/{group}/v1/namespaces/default/rolebindings", binding)
    assert code == 201, answer
    path = "/api/v1/namespaces/default/serviceaccounts/reader/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    code, answer = api.call("POST", path, body)
    assert code == 201, answer
    config = yaml.safe_load(up.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    file = tmp_path / "reader.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    told = haru(tmp_path, "explain", "pod/plain", "--kubeconfig", str(file))
    assert (told.returncode, told.stderr) == (0, "")
    assert "not allowed to read" in told.stdout and "Node" in told.stdout
    cordoned = haru(tmp_path, "whatif", "--cordon", "cpu-0", "--kubeconfig", str(file))
    assert cordoned.returncode == 2 and "not allowed to read" in cordoned.stderr and "Node" in cordoned.stderr


@pytest.mark.parametrize("what", ["pod/none", "podgroup/none", "job/none", "claim/none"])
def test_unknown_object_exits_with_2(up: Up, capsys: pytest.CaptureFixture[str], what: str) -> None:
    assert main(["explain", what, "--kubeconfig", str(up.kubeconfig)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and '"none"' in err and ("not found" in err or "there is no" in err)


def test_job_with_forbidden_pods_names_the_rejecting_admission(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    up.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}})
    up.api.create(job("denied", 1), "strict")
    until("the controller says so", lambda: up.api.list("events", "strict", "fieldSelector=reason%3DFailedCreate"))
    answer = json.loads(ask(capsys, "job/denied", "-n", "strict", "-o", "json", "--kubeconfig", str(up.kubeconfig)))
    check_explanation(answer)
    assert answer["verdict"] == "FitsIf"
    assert answer["reasons"][0]["type"] == "FailedCreate"
    assert "not made: Error creating: " in answer["summary"] and "violates PodSecurity" in answer["summary"]
    for place in (["-n", "strict"], ["--all-namespaces"]):
        listed = json.loads(ask(capsys, "--all", *place, "-o", "json", "--kubeconfig", str(up.kubeconfig)))["items"]
        (row,) = (item for item in listed if item["namespace"] == "strict")
        told = row["explanation"]
        assert told["verdict"] == "FitsIf" and "violates PodSecurity" in told["summary"]


def test_scheduler_with_a_lease_counts_as_running(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    up.api.create(pod("awaited", schedulerName="example-scheduler"), "default")
    reach = ("--kubeconfig", str(up.kubeconfig))
    assert "no scheduler example-scheduler is known" in ask(capsys, "pod/awaited", *reach)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "example-scheduler"}}
    up.api.create(lease, "kube-system")
    assert "Starting" in ask(capsys, "pod/awaited", *reach).splitlines()[0]


def test_engine_is_not_imported_by_who_asks_the_resident_answer() -> None:
    """It takes most of the time of a command that has nothing to compute."""
    code = (
        "import sys, haru.cli.explain, haru.api.explain_client, haru.api.connection, haru.cli.terminal; "
        "from haru.explain.object_names import parse_subject; parse_subject('job/training'); "
        "print([name for name in sys.modules if name.startswith(('haru.engine', 'haru.cel', 'haru.explain.render'))])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
