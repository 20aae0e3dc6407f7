"""`haru device taint` and `untaint` on a running cluster: what they write, what they say, and that it comes true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from system_cluster import deployment, pod, request, template

from haru.cli.main import main
from haru.client import discovery
from haru.kube.kinds import Kind, known_kind
from haru_process import Up, condition, devices_of, phase, until

Obj = dict[str, Any]
NODE, DRIVER = "dgx-h100-0", "gpu.nvidia.com"
KEY = "example.com/maintenance"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
# The slots of gpu-0 to gpu-7.
SLOTS = ("17", "3d", "4d", "5d", "97", "bd", "cd", "dd")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("device"), "--ephemeral", "--profile", "dgx-h100:1,cpu:1")
    yield running
    assert running.stop() == 0


@pytest.fixture
def clean(up: Up) -> Iterator[Up]:
    """No rule and no work is left behind."""
    yield up
    up.api.call("DELETE", RULES)
    for plural in ("deployments", "pods", "resourceclaimtemplates"):
        for obj in up.api.list(plural, "default"):
            up.api.delete(plural, obj["metadata"]["name"], "default")
    until("all is gone", lambda: not up.api.list("pods", "default") and not up.api.list("resourceclaims", "default"))


def device(up: Up, capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What the command prints: its result, or its message where it fails."""
    answer = main(["device", *arguments, "--kubeconfig", str(up.kubeconfig)])
    out, err = capsys.readouterr()
    assert answer == status, out + err
    assert (out == "") is (status == 2) and (err == "") is (status != 2)
    return out + err


def told(up: Up, capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Obj:
    """The same as data."""
    answer: Obj = json.loads(device(up, capsys, *arguments, "-o", "json", status=status))
    assert (answer["apiVersion"], answer["kind"]) == ("haru.dev/v1alpha1", "DeviceTaintChange")
    return answer


def card(number: int, **more: Any) -> Obj:
    """A request for a certain card."""
    of_slot = request(**more)
    expression = f'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:{SLOTS[number]}"'
    of_slot["exactly"]["selectors"].append({"cel": {"expression": expression}})
    return of_slot


def users(up: Up, name: str) -> list[Obj]:
    """The pods of that label that are not being deleted."""
    pods = up.api.list("pods", "default", f"labelSelector=app%3D{name}")
    return [p for p in pods if "deletionTimestamp" not in p["metadata"]]


def running(up: Up, name: str) -> Obj:
    def found() -> Obj | None:
        return next((p for p in users(up, name) if phase(p) == "Running"), None)

    return until(f"a pod of {name} runs", found) or {}


def rules(up: Up) -> list[Obj]:
    return list(up.api.call("GET", RULES)[1]["items"])


def test_no_execute_taint_evicts_pod_and_untainted_device_is_allocated_again(
    clean: Up, capsys: pytest.CaptureFixture[str]
) -> None:
    clean.api.create(template("slot-3", card(3)), "default")
    clean.api.create(deployment("trainer", 1, template="slot-3"), "default")
    first = running(clean, "trainer")
    answer = told(clean, capsys, "taint", f"{NODE}/gpu-3", f"{KEY}=fan:NoExecute")
    assert answer["action"] == "Created"
    [rule], [claim] = answer["rules"], answer["claims"]
    assert (
        rule["apiVersion"] == "resource.k8s.io/v1beta2"
        and rule["metadata"]["name"] == rules(clean)[0]["metadata"]["name"]
    )
    assert rule["spec"]["deviceSelector"] == {"driver": DRIVER, "pool": NODE, "device": "gpu-3"}
    [evicted] = claim["pods"]
    assert claim["barred"] and (evicted["name"], evicted["outcome"]) == (first["metadata"]["name"], "Evicted")
    until("the pod goes", lambda: clean.api.find("pods", evicted["name"], "default") is None)
    of_pod = f"fieldSelector=involvedObject.name%3D{evicted['name']}"
    reasons = lambda: {e["reason"] for e in clean.api.list("events", "default", of_pod)}  # noqa: E731
    until("an event says why", lambda: "DeviceTaintManagerEviction" in reasons())
    # Its successor asks for the same card and does not get it...
    waits = (
        until("the successor is refused", lambda: next((p for p in users(clean, "trainer") if refused(p)), None)) or {}
    )
    assert "nodeName" not in waits["spec"]
    # ... until the taint is gone.
    text = device(clean, capsys, "untaint", f"{NODE}/gpu-3", KEY)
    assert text.splitlines()[1:] == ["no taint remains on it"] and rules(clean) == []
    again = running(clean, "trainer")
    assert again["metadata"]["name"] == waits["metadata"]["name"]
    assert [devices_of(c) for c in clean.api.list("resourceclaims", "default")] == [[(NODE, "gpu-3")]]


def refused(obj: Obj) -> bool:
    return condition(obj, "PodScheduled").get("reason") == "Unschedulable"


def test_taint_prints_which_pods_it_evicts(clean: Up, capsys: pytest.CaptureFixture[str]) -> None:
    patience = {"key": KEY, "operator": "Exists", "tolerationSeconds": 3600}
    for number, tolerations in ((0, []), (1, [patience]), (2, [{"operator": "Exists"}])):
        clean.api.create(template(f"slot-{number}", card(number, tolerations=tolerations)), "default")
        clean.api.create(pod(f"user-{number}", template=f"slot-{number}"), "default")
        running(clean, f"user-{number}")
    stays = device(clean, capsys, "taint", f"{NODE}/gpu-0", f"{KEY}:NoSchedule").splitlines()
    assert stays[0].startswith(
        f"{DRIVER}/{NODE}/gpu-0: {KEY}:NoSchedule by DeviceTaintRule {NODE}-gpu-0-example-com-maint"
    )
    assert stays[0].endswith(": created")
    assert stays[1].startswith("claim default/user-0-gpu-") and stays[1].endswith(" does not get this device again")
    assert stays[2:] == ["  pod default/user-0 stays"]
    later = told(clean, capsys, "taint", f"{NODE}/gpu-1", f"{KEY}:NoExecute")
    [use] = later["claims"]
    [one] = use["pods"]
    assert not use["barred"] and one["outcome"] == "EvictedLater"
    assert one["at"] > later["rules"][0]["spec"]["taint"]["timeAdded"]
    tolerant = device(clean, capsys, "taint", f"{NODE}/gpu-2", f"{KEY}:NoExecute")
    assert "may get this device again" in tolerant and "pod default/user-2 stays: it tolerates the taint" in tolerant
    assert device(clean, capsys, "taint", f"{NODE}/gpu-7", f"{KEY}:NoExecute").endswith("\nno claim uses it\n")
    assert all(phase(clean.api.get("pods", f"user-{n}", "default")) == "Running" for n in range(3))


def test_repeated_changed_and_missing_taint_are_reported(clean: Up, capsys: pytest.CaptureFixture[str]) -> None:
    where = f"{NODE}/gpu-5"
    dry = told(clean, capsys, "taint", where, f"{KEY}=fan:NoSchedule", "--dry-run")
    assert (dry["action"], dry["dryRun"], rules(clean)) == ("Created", True, [])
    made = told(clean, capsys, "taint", where, f"{KEY}=fan:NoSchedule")["rules"][0]
    same = told(clean, capsys, "taint", f"{DRIVER}/{where}", f"{KEY}=fan:NoSchedule")
    assert (same["action"], same["rules"][0]["metadata"]["uid"]) == ("Unchanged", made["metadata"]["uid"])
    dry = told(clean, capsys, "taint", where, f"{KEY}:NoExecute", "--dry-run")
    assert dry["action"] == "Updated" and rules(clean)[0]["spec"] == made["spec"]
    changed = yaml.safe_load(device(clean, capsys, "taint", where, f"{KEY}:NoExecute", "-o", "yaml"))
    assert changed["action"] == "Updated"
    [stored] = rules(clean)
    assert stored["metadata"]["uid"] == made["metadata"]["uid"]
    assert {k: v for k, v in stored["spec"]["taint"].items() if k != "timeAdded"} == {"key": KEY, "effect": "NoExecute"}
    other = told(clean, capsys, "taint", where, "example.com/other:None")["rules"][0]
    assert {r["metadata"]["name"] for r in rules(clean)} == {made["metadata"]["name"], other["metadata"]["name"]}
    assert told(clean, capsys, "untaint", where, f"{KEY}:NoSchedule", status=1)["action"] == "NotFound"
    dry = told(clean, capsys, "untaint", where, f"{KEY}:NoExecute", "--dry-run")
    assert (dry["action"], len(rules(clean))) == ("Deleted", 2)
    gone = told(clean, capsys, "untaint", where, f"{KEY}:NoExecute")
    assert gone["action"] == "Deleted" and [r["rule"] for r in gone["remaining"]] == [other["metadata"]["name"]]
    text = device(clean, capsys, "untaint", where, KEY, status=1)
    assert text.splitlines() == [
        f"{DRIVER}/{where}: `haru device taint` put no such taint there",
        f"remains example.com/other:None, by DeviceTaintRule {other['metadata']['name']}",
    ]


def test_taints_by_others_are_kept_and_named(clean: Up, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": KEY, "value": "x", "effect": "NoSchedule"}}
    foreign = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "wide"}}
    clean.api.create({**foreign, "spec": spec})
    annotation = "simulated.haru.dev/device-taints"
    clean.api.patch("nodes", NODE, {"metadata": {"annotations": {annotation: "gpu-6=xid=79:NoExecute"}}})
    slices = lambda: json.dumps(clean.api.list("resourceslices"))  # noqa: E731
    until("the driver taints it", lambda: '"key": "xid"' in slices())
    device(clean, capsys, "taint", f"{NODE}/gpu-6", f"{KEY}:NoExecute")
    gone = device(clean, capsys, "untaint", f"{NODE}/gpu-6", KEY).splitlines()
    assert gone[1:] == [
        f"remains xid=79:NoExecute, by its driver {DRIVER}",
        f"remains {KEY}=x:NoSchedule, by DeviceTaintRule wide",
    ]
    assert [r["metadata"]["name"] for r in rules(clean)] == ["wide"]
    clean.api.patch("nodes", NODE, {"metadata": {"annotations": {annotation: None}}})
    until("the driver takes it back", lambda: '"key": "xid"' not in slices())


def test_device_no_longer_published_can_be_untainted(clean: Up, capsys: pytest.CaptureFixture[str]) -> None:
    made = told(clean, capsys, "taint", f"{NODE}/gpu-4", f"{KEY}:NoExecute")["rules"][0]
    selector = {**made["spec"]["deviceSelector"], "device": "gpu-9"}
    broken = {**made, "metadata": {"name": "of-a-broken-card", "labels": made["metadata"]["labels"]}}
    clean.api.create({**broken, "spec": {**made["spec"], "deviceSelector": selector}})
    assert told(clean, capsys, "untaint", f"{NODE}/gpu-9", KEY)["rules"][0]["metadata"]["name"] == "of-a-broken-card"
    assert "did you mean gpu-" in device(clean, capsys, "untaint", f"{NODE}/gpu-9", KEY, status=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("taint", f"{NODE}/gpu-3", f"{KEY}:NoExcute"), 'unknown effect "NoExcute"; did you mean NoExecute?'),
        (("taint", f"{NODE}/gpu-3", KEY), "write KEY[=VALUE]:EFFECT"),
        (("taint", f"{NODE}/gpu-33", "k:None"), f'{NODE} has no device "gpu-33"; did you mean gpu-3?'),
        (("taint", "dgx-h100-1/gpu-3", "k:None"), 'no node or pool "dgx-h100-1"; did you mean dgx-h100-0?'),
        (("taint", "cpu-0/gpu-3", "k:None"), "node cpu-0 has no devices; dgx-h100-0 has"),
        (("taint", "gpu-3", "k:None"), "write NODE/DEVICE or POOL/DEVICE"),
        (("untaint", f"{NODE}/gpu-3", "=v"), "write KEY, KEY:EFFECT or KEY=VALUE:EFFECT"),
    ],
)
def test_invalid_device_taint_input_is_refused_without_creating_rules(
    up: Up, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    text = device(up, capsys, *arguments, status=2)
    assert text.startswith("haru device: ") and message in text and text.count("\n") == 1
    assert rules(up) == []


def test_unknown_device_action_exits_with_usage_error(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["device", "drain", f"{NODE}/gpu-3", "k:None"])
    assert caught.value.code == 2 and "choose from" in capsys.readouterr().err


def test_rule_by_another_manager_with_our_name_is_not_changed(clean: Up, capsys: pytest.CaptureFixture[str]) -> None:
    made = told(clean, capsys, "taint", f"{NODE}/gpu-4", f"{KEY}:NoSchedule")["rules"][0]
    clean.api.call(
        "PATCH", f"{RULES}/{made['metadata']['name']}", {"metadata": {"labels": None}}, "application/merge-patch+json"
    )
    text = device(clean, capsys, "taint", f"{NODE}/gpu-4", f"{KEY}:NoExecute", status=2)
    assert f'"{made["metadata"]["name"]}" already exists' in text
    assert rules(clean)[0]["spec"] == made["spec"]


@pytest.mark.parametrize("version", ["v1beta2", "v1alpha3"])
def test_device_taint_rule_uses_the_served_version(
    clean: Up, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    kind = known_kind(f"resource.k8s.io/{version}", "DeviceTaintRule")
    monkeypatch.setattr(discovery, "newest_kind", answering(kind))
    made = told(clean, capsys, "taint", f"{NODE}/gpu-0", "k:NoSchedule")["rules"][0]
    assert made["apiVersion"] == f"resource.k8s.io/{version}"
    assert told(clean, capsys, "untaint", f"{NODE}/gpu-0", "k")["action"] == "Deleted"


def test_server_without_device_taint_rules_names_the_feature_gate(
    up: Up, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "newest_kind", answering(None))
    text = device(up, capsys, "taint", f"{NODE}/gpu-0", "k:NoSchedule", status=2)
    assert "serves no DeviceTaintRule: turn on its feature gate DRADeviceTaintRules" in text


def answering(kind: Kind | None) -> Any:
    async def newest_kind(*_: Any) -> Kind | None:
        return kind

    return newest_kind
