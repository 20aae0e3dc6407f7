"""Admission of pods by a simulated kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.node_admission import (
    admission_problem,
    apparmor_problem,
    groups_problem,
    os_problem,
    placement_problem,
    sysctl_problem,
)
from haru.kube.node_features import features_problem

Obj = dict[str, Any]
GPU = "example.com/gpu"
ALLOCATABLE = {"pods": 110_000, "cpu": 8_000, "memory": 16_000}


def pod(cpu: str = "1", gpus: int = 0, claimed: str = "", **more: str) -> Obj:
    requests = {"cpu": cpu, **({GPU: str(gpus)} if gpus else {}), **more}
    made: Obj = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
    if claimed:
        entry = {"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": claimed}}
        made["status"] = {"nodeAllocatableResourceClaimStatuses": [entry]}
    return made


CASES = [
    ("it fits", pod("8"), [], {}, None),
    ("too little beside others", pod("5"), [pod("4")], {}, "OutOfcpu"),
    ("memory is told before storage", pod(memory="20", **{"ephemeral-storage": "1"}), [], {}, "OutOfmemory"),
    ("its devices take some", pod("5", claimed="3"), [], {}, None),
    ("its devices take too much", pod("5", claimed="3500m"), [], {}, "OutOfcpu"),
    ("others' devices take some", pod("5"), [pod("1", claimed="2500m")], {}, "OutOfcpu"),
    ("a plugin's resource", pod(gpus=2), [pod(gpus=1)], {GPU: 3_000}, None),
    ("too little of it", pod(gpus=2), [pod(gpus=2)], {GPU: 3_000}, f"OutOf{GPU}"),
    ("devices behind it", pod(gpus=2), [pod(gpus=2)], {}, None),
    ("huge pages that a node has not", pod(**{"hugepages-2Mi": "2Mi"}), [], {}, "OutOfhugepages-2Mi"),
]


@pytest.mark.parametrize(("what", "wanted", "others", "more", "reason"), CASES, ids=[case[0] for case in CASES])
def test_kubelet_admission_gives_expected_reason(
    what: str, wanted: Obj, others: list[Obj], more: dict[str, int], reason: str | None
) -> None:
    problem = admission_problem(wanted, others, {**ALLOCATABLE, **more})
    assert (problem[0] if problem else None) == reason


NODE = {
    "metadata": {"name": "n", "labels": {"zone": "a"}},
    "spec": {"taints": [{"key": "broken", "effect": "NoExecute"}, {"key": "full", "effect": "NoSchedule"}]},
}
TOLERANT = {"tolerations": [{"key": "broken", "operator": "Exists"}]}


def port(number: int, **more: Any) -> Obj:
    return {"containers": [{"name": "c", "ports": [{"hostPort": number, "containerPort": 1, **more}]}]}


PLACEMENTS: list[tuple[str, Obj, Obj, str | None]] = [
    ("tolerates", TOLERANT, {}, None),
    ("taint that evicts", {}, {}, "TaintToleration"),
    ("selector that fits", {**TOLERANT, "nodeSelector": {"zone": "a"}}, {}, None),
    ("selector that does not", {**TOLERANT, "nodeSelector": {"zone": "b"}}, {}, "NodeAffinity"),
    ("same port", {**TOLERANT, **port(80)}, port(80), "NodePorts"),
    ("same port of another protocol", {**TOLERANT, **port(80)}, port(80, protocol="UDP"), None),
    ("same port on other addresses", {**TOLERANT, **port(80, hostIP="10.0.0.1")}, port(80, hostIP="10.0.0.2"), None),
    ("same port on all addresses", {**TOLERANT, **port(80, hostIP="10.0.0.1")}, port(80), "NodePorts"),
]


@pytest.mark.parametrize(("what", "spec", "other", "reason"), PLACEMENTS, ids=[case[0] for case in PLACEMENTS])
def test_kubelet_checks_labels_ports_and_evicting_taints(what: str, spec: Obj, other: Obj, reason: str | None) -> None:
    problem = placement_problem({"spec": spec}, [{"spec": other}], NODE)
    assert (problem[0] if problem else None) == reason
    if problem:
        assert problem[1].startswith(f"Predicate {reason} failed: node(s) ")


def test_required_node_affinity_is_checked_with_the_name_of_the_node() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert placement_problem({"spec": {**TOLERANT, "affinity": affinity}}, [], NODE) is None
    field["values"] = ["other"]
    problem = placement_problem({"spec": {**TOLERANT, "affinity": affinity}}, [], NODE)
    assert problem is not None and problem[0] == "NodeAffinity"


def test_pod_for_windows_is_not_taken() -> None:
    problem = os_problem({"metadata": {"name": "p"}, "spec": {"os": {"name": "windows"}}})
    assert problem is not None and problem[0] == "PodOSNotSupported"
    assert os_problem({"metadata": {"name": "p"}, "spec": {"os": {"name": "linux"}}}) is None


@pytest.mark.parametrize("member", ["containers", "initContainers"])
def test_pod_that_needs_a_feature_which_the_node_does_not_declare_is_not_taken(member: str) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    pod = {"metadata": {"name": "p"}, "spec": {member: [{"name": "a", "restartPolicyRules": [rule]}]}}
    feature = "RestartAllContainersOnContainerExits"
    assert features_problem(pod, [feature]) is None
    text = f"Pod requires node features that are not available: {feature}"
    assert features_problem(pod, []) == ("PodFeatureUnsupported", text)
    rule["action"] = "Restart"
    assert features_problem(pod, []) is None


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ({"containers": [{}]}, True),
        ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, True),
        ({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}, False),
        ({"initContainers": [{"securityContext": {"appArmorProfile": {"type": "Localhost"}}}]}, False),
    ],
)
def test_pod_with_a_profile_of_apparmor_is_taken_where_the_machine_has_it(spec: Obj, taken: bool) -> None:
    assert apparmor_problem({"spec": spec}, enabled=True) is None
    text = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
    assert apparmor_problem({"spec": spec}, enabled=False) == (None if taken else ("AppArmor", text))


def test_pod_with_its_groups_alone_is_taken_where_the_runtime_can_see_to_that() -> None:
    strict = {"spec": {"securityContext": {"supplementalGroupsPolicy": "Strict"}}}
    able = {"status": {"features": {"supplementalGroupsPolicy": True}}}
    assert groups_problem(strict, able) is None
    assert groups_problem({"spec": {"securityContext": {"supplementalGroupsPolicy": "Merge"}}}, {}) is None
    text = "SupplementalGroupsPolicy=Strict is not supported in this node"
    assert groups_problem(strict, {}) == ("SupplementalGroupsPolicyNotSupported", text)


def test_sysctl_that_is_not_safe_is_rejected() -> None:
    def problem(*names: str) -> tuple[str, str] | None:
        sysctls = [{"name": name, "value": "1"} for name in names]
        return sysctl_problem({"metadata": {"name": "p"}, "spec": {"securityContext": {"sysctls": sysctls}}})

    assert problem("net.ipv4.tcp_syncookies", "net/ipv4/tcp_rmem") is None
    refused = ("SysctlForbidden", 'forbidden sysctl: "kernel.msgmax" not allowlisted')
    assert problem("kernel.shm_rmid_forced", "kernel/msgmax") == refused
