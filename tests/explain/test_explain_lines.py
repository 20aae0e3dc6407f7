"""Scenarios and the lines that a person has to find in their explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    pod,
    pod_group,
    resource_slice,
)
from explain_schema import check_explanation

from haru.cli.main import main
from haru.engine import SchedulerCache
from haru.engine.framework import DEFAULT_PLUGINS
from haru.explain import Explanation, explain, to_json, to_text
from haru.explain.diagnosis.node_scores import SCORE_REASONS
from haru.explain.render import from_json

ANNOTATION = "simulated.haru.dev/device-taints"
ARCH = f'device.attributes["{DRIVER}"].arch'


def gpu(name: str, arch: str = "", taint: str = "", **more: Any) -> Obj:
    attributes: Obj = {"arch": {"string": arch}} if arch else {}
    taints = [{"key": taint, "value": "true", "effect": "NoSchedule"}] if taint else []
    return {"name": name, "attributes": attributes, "taints": taints, **more}


def gpus(count: int, arch: str = "") -> list[Obj]:
    return [gpu(f"gpu-{i}", arch) for i in range(count)]


def on(name: str, devices: list[Obj], **spec: Any) -> list[Obj]:
    return [node(name, **spec), resource_slice(name, devices)]


def asks(expression: str = "", count: int = 1, **more: Any) -> list[Obj]:
    selectors = [{"cel": {"expression": expression}}] if expression else []
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": selectors}
    return [{"name": "gpu", "exactly": {**exactly, **more}}]


def wants(name: str, requests: list[Obj], group: str = "", **more: Any) -> list[Obj]:
    made = pod(name, group=group, claims=[("gpu", "tmpl", f"{name}-gpu")], **more)
    return [made, claim(f"{name}-gpu", owner=made, requests=requests)]


def notebook(where: str, device: str) -> list[Obj]:
    """A pod of a Deployment with one device, since nine o'clock."""
    name = f"notebooks-5d8f-{where}{device}"
    made = pod(name, node=where, claims=[("gpu", "notebooks", name)], priority=7)
    made["metadata"]["labels"]["pod-template-hash"] = "5d8f"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "notebooks-5d8f", "uid": "rs", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    made["status"]["startTime"] = "2026-01-01T09:00:00Z"
    return [made, allocated(claim(name, owner=made), allocation(where, device), made)]


def gang(size: int, requests: list[Obj], **more: Any) -> list[Obj]:
    return [pod_group("g", size), *(o for i in range(size) for o in wants(f"g{i}", requests, "g", **more))]


CLASS = device_class("gpu", [f'device.driver == "{DRIVER}"'])
MIXED = [CLASS, node("cpu-0"), *on("old-0", gpus(4, "A")), *on("new-0", gpus(4, "H")), *on("new-1", gpus(4, "H"))]
TAKEN = [o for i in range(4) for o in notebook("new-0", f"gpu-{i}")]


def cut(name: str, parts: int) -> list[Obj]:
    """A card of which a whole and two halves are offered, and its counters, as slices of one pool."""
    counters = [{"name": "card", "counters": {"memory": {"value": "2"}}}]
    uses = lambda n: [{"counterSet": "card", "counters": {"memory": {"value": str(n)}}}]  # noqa: E731
    devices = [{"name": "whole", "consumesCounters": uses(2)}]
    devices += [{"name": f"half-{i}", "consumesCounters": uses(1)} for i in range(parts)]
    first, second = resource_slice(name, [], sharedCounters=counters), resource_slice(name, devices)
    for item in (first, second):
        item["spec"]["pool"]["resourceSliceCount"] = 2
    del first["spec"]["devices"]
    first["metadata"]["name"], second["metadata"]["name"] = f"{name}-counters", f"{name}-devices"
    return [node(name), first, second]


@dataclass
class Case:
    name: str
    objects: list[Obj]
    kind: str
    subject: str
    verdict: str
    lines: list[str]
    absent: tuple[str, ...] = ()


CASES = [
    Case("a gang one device short", [*MIXED, *TAKEN, *gang(5, asks(f'{ARCH} == "H"'))], "podgroup", "g", "FitsLater", [
        "PodGroup default/g: FitsLater: 4 devices are free for request gpu, 5 are needed: 1 short",
        "because  4 of the 5 members that it needs have a place at once",
        f'asks     5 × gpu: 1 of gpu with {ARCH} == "H"',
        "devices  gpu: 12 devices in the cluster",
        '− 4 fail arch == "H": arch is "A"',
        "− 4 taken: deployment/notebooks 4 (priority 7, since 2026-01-01T09:00:00Z)",
        "= 4 free, 5 needed: 1 short",
        "2 nodes (new-0, new-1): 8 devices, 4 taken, 4 free",
        '1 node (old-0): 4 devices, none passes arch == "H" (arch is "A")',
        "1 node (cpu-0): no device of class gpu",
        "let the gang start with 4 of the 5 members",
        "cost: 1 more machine to provide, with the 4 devices that new-0 publishes",
    ], ("default/g0", "cannot allocate all claims", "end deployment/notebooks")),
    Case("a tainted device of a simulated node",
         [CLASS, {**node("n"), "metadata": {"name": "n", "annotations": {ANNOTATION: "gpu-0=bad=true:NoSchedule"}}},
          resource_slice("n", [gpu("gpu-0", taint="bad")]), *wants("p", asks())], "pod", "p", "FitsIf", [
        "− 1 tainted bad=true:NoSchedule (gpu-0 on n)",
        "remove the taint bad=true:NoSchedule from gpu-0 on n",
        f"kubectl annotate node n {ANNOTATION}-",
        "tolerate the device taint bad=true:NoSchedule in the requests",
    ]),
    Case("no attribute to read", [CLASS, *on("n", [gpu("gpu-0", "H"), gpu("gpu-1")]),
                                  *wants("p", asks(f'{ARCH} == "H"', 2))], "pod", "p", "FitsIf", [
        'selector arch == "H" of request gpu cannot be evaluated on 1 device: CEL runtime error: no such key: arch',
    ]),
    Case("an attribute to ask for first", [CLASS, *on("n", [gpu("gpu-0"), gpu("gpu-1", "H")]),
                                           *wants("p", asks(f'{ARCH} == "H"'))], "pod", "p", "FitsIf", [
        "let the selectors ask first whether a device has what they read",
    ]),
    Case("no such devices", [*MIXED, *wants("p", asks(f'{ARCH} == "X"'))], "pod", "p", "NeverFits", [
        "the whole cluster has no device for request gpu, 1 is needed",
        '12 fail arch == "X": arch is "H" on 8; arch is "A" on 4',
    ]),
    Case("free, but not together", [CLASS, *on("a", gpus(2)), *on("b", gpus(2)), *notebook("a", "gpu-0"),
                                    *notebook("b", "gpu-0"), *wants("p", asks(count=2))], "pod", "p", "FitsLater", [
        "2 devices are free for request gpu, but no 2 of them together where a claim needs them",
        "2 nodes (a, b): 4 devices, 2 taken, 2 free, but never 2 together on one node",
    ]),
    Case("free on a cordoned node", [CLASS, *on("a", gpus(2), unschedulable=True), *wants("p", asks())], "pod", "p",
         "FitsIf", ["− 2 on nodes that the pod cannot use: cordoned 2", "1 node (a): cordoned (2 matching devices free",
                    "kubectl uncordon a"]),
    Case("a card cut in two", [CLASS, *cut("n", 2), *notebook("n", "half-0"),
                               *wants("p", asks("device.driver != ''", 2))], "pod", "p", "FitsLater", [
        "− 1 taken: deployment/notebooks 1", "− 1 used in part, short of memory: deployment/notebooks 1",
        "= 1 free, 2 needed: 1 short",
    ]),
    Case("only cpu is missing", [*on("n", gpus(2), cpu="2"), node("m", cpu="3"), CLASS, *wants("p", asks(), cpu="4")],
         "pod", "p", "NeverFits", [
        "asks     1 × gpu: 1 of gpu", "1 × pod: cpu 4",
        "insufficient cpu: 4 asked, the most is 3 on m (2 matching devices",
        "none of the 2 free devices for request gpu is on a node that the pod can use, 1 is needed (too",
        "− 2 on nodes that the pod cannot use: too little cpu left 2",
    ]),
    Case("a claim that two pods share",
         [CLASS, *on("n", gpus(1)), u := pod("u", node="n", claims=["c"]), v := pod("v", node="n", claims=["c"]),
          allocated(claim("c"), allocation("n", "gpu-0"), u, v)], "resourceclaim", "c", "Runs", [
        "ResourceClaim default/c: Runs: allocated: gpu.example.com/n/gpu-0; used by default/u, default/v",
        "claim default/c on n: 1 device", "shared by 2 pods: default/u, default/v",
    ]),
    Case("a running pod", [CLASS, *on("n", gpus(1)), *notebook("n", "gpu-0")], "pod", "notebooks-5d8f-ngpu-0", "Runs", [
        "it runs on node n, since 2026-01-01T09:00:00Z, with 1 device", "gpu: gpu.example.com/n/gpu-0",
        "what the nodes would say to it now, had it no place yet", "1 node (n): 1 device, 1 free",
        "(here); of at most 800, more is better; of 1 node that would take it",
        "PLUGIN                            SCALE       n     PREFERS",
        "NodeResourcesFit                  0–100 × 1   93    more cpu and memory left",
    ]),
    Case("an unused claim", [CLASS, *on("n", gpus(1)), claim("c")], "resourceclaim", "c", "FitsLater", [
        "no pod uses it: it is allocated when one is scheduled; devices for it are free now",
    ]),
    Case("a job of no pods", [{"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 0, "template": {}},
                               "metadata": {"name": "j", "namespace": "default", "uid": "u"}}], "job", "j", "FitsIf",
         ["it runs no pods: its parallelism is 0"]),
]  # fmt: skip


def told(case: Case) -> Explanation:
    subject = next(o for o in case.objects if o["kind"].lower() == case.kind and o["metadata"]["name"] == case.subject)
    return explain(SchedulerCache.of(case.objects).snapshot(), case.kind, subject)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_explanation_text_has_expected_lines(case: Case) -> None:
    explanation = told(case)
    check_explanation(to_json(explanation))
    text = to_text(explanation)
    assert explanation.verdict == case.verdict, text
    for line in case.lines:
        assert line in text, f"{line!r} is not in\n{text}"
    for word in case.absent:
        assert word not in text, text


def test_devices_of_shared_pool_count_once() -> None:
    nics = resource_slice("", gpus(3), pool="fabric", allNodes=True)
    objects = [CLASS, node("a"), node("b", unschedulable=True), nics, *gang(4, asks())]
    subject = next(o for o in objects if o["kind"] == "PodGroup")
    (request,) = explain(SchedulerCache.of(objects).snapshot(), "podgroup", subject).requests
    assert (request.devices, request.free, request.short) == (3, 3, 1)


@pytest.mark.parametrize("what", ["node", "device", "service/x", "training"])
def test_kind_that_cannot_be_explained_exits_with_2(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", what]) == 2
    error = capsys.readouterr().err
    assert "pod, podgroup, job, replicaset, statefulset, claim, node, device" in error or "KIND/NAME" in error


def test_running_pod_shows_scores_of_compared_nodes() -> None:
    busy = [pod(f"o{i}", cpu="2", node="b") for i in range(2)]
    objects = [node("a"), node("b"), node("c", cpu="1"), node("d", unschedulable=True), *busy, pod("p", "2", node="b")]
    subject = next(o for o in objects if o["metadata"]["name"] == "p")
    answer = explain(SchedulerCache.of(objects).snapshot(), "pod", subject)
    # The least used node is preferred, so this pod would go elsewhere today.
    assert [(score.node, score.here) for score in answer.scores] == [("a", False), ("b", True)]
    assert answer.scores[0].score > answer.scores[1].score and answer.scored == 2
    check_explanation(to_json(answer))
    text = to_text(answer)
    assert "scores   a " in text and "(here); of at most 800, more is better; of 2 nodes that would take it" in text
    assert "NodeResourcesFit                  0–100 × 1   87    62    more cpu and memory left" in text
    for score in answer.scores:
        assert sum(part.points for part in score.parts) == score.score, "the parts make up the sum"
        assert all(0 <= part.score <= 100 and part.reason for part in score.parts)
    assert from_json(to_json(answer)).scores == answer.scores


def test_every_score_plugin_has_a_reason() -> None:
    plugins = {plugin.name for plugin in DEFAULT_PLUGINS if "score" in plugin.extension_points and plugin.weight}
    assert plugins | {"HaruExpected"} <= SCORE_REASONS.keys() | {"NodeResourcesFit"}


def test_headline_names_the_node_that_a_pod_may_go_to_however_many_others_it_must_not() -> None:
    taint = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    nodes = [node("a", cpu="2"), node("b"), node("c"), *(node(name, taints=taint) for name in "de")]
    big = pod("p", cpu="4", nodeSelector={"kubernetes.io/hostname": "a"})
    first = explain(SchedulerCache.of([*nodes, big]).snapshot(), "pod", big).summary
    assert first.startswith("1 node: insufficient cpu: 4 asked, 2 left of 2; 2 nodes: ")
