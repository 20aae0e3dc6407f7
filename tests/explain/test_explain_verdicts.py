"""Verdicts and remedies as a table: an object in some state, what is said of it, what is offered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    member_with_claim,
    node,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine import REASON_TYPES, SchedulerCache
from haru.explain import Explanation, explain, to_json, to_text


def cluster_of(*devices: int) -> list[Obj]:
    found: list[Obj] = [device_class()]
    for i, count in enumerate(devices):
        found += [node(f"n{i}"), resource_slice(f"n{i}", count)]
    return found


def holder(name: str, where: str, count: int, **kwargs: Any) -> list[Obj]:
    """A running pod that holds the first devices of its node."""
    user = pod(name, node=where, claims=[f"{name}-c"], **kwargs)
    return [user, allocated(claim(f"{name}-c", count), allocation(where, *(f"gpu-{i}" for i in range(count))), user)]


def members(group: str, how_many: int, count: int = 1, **kwargs: Any) -> list[Obj]:
    return [o for i in range(how_many) for o in member_with_claim(f"{group}-{i}", group, count, **kwargs)]


def with_status(obj: Obj, **status: Any) -> Obj:
    return {**obj, "status": {**(obj.get("status") or {}), **status}}


def gangs_off(obj: Obj) -> Obj:
    """A pod of which its scheduler says that it holds members of groups."""
    message = "gang scheduling is off in this scheduler (feature gate GenericWorkload): ..."
    told = {"type": "PodScheduled", "status": "False", "reason": "NotReadyForScheduling", "message": message}
    return with_status(obj, conditions=[told])


def deleting(obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def job(name: str, parallelism: int = 1, conditions: list[Obj] | None = None, **spec: Any) -> Obj:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-job-{name}"},
        "spec": {"parallelism": parallelism, "template": template, **spec},
        "status": {"conditions": conditions or []},
    }


def owned(obj: Obj, owner: Obj) -> Obj:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [{**reference, "controller": True}]}}


def with_finalizer(obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "finalizers": ["example.com/keep"]}}


FULL = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "full", "namespace": "default"},
    "spec": {"hard": {"pods": "2"}},
    "status": {"hard": {"pods": "2"}, "used": {"pods": "2"}},
}
TAINTED = {"name": "gpu-0", "taints": [{"key": "bad", "value": "x", "effect": "NoSchedule"}]}
NODE_TAINT = {"key": "maintenance", "value": "x", "effect": "NoExecute"}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "tmpl", "namespace": "default"},
    "spec": {"spec": claim("x", 2)["spec"]},
}


@dataclass
class Case:
    name: str
    kind: str
    objects: list[Obj]
    verdict: str
    reasons: list[str]
    subject: str = "p"
    confirmed: list[str] = field(default_factory=list)


CASES = [
    # States
    Case("running", "pod", [node("a"), pod("p", node="a")], "Runs", ["Running"]),
    Case("starting", "pod", [node("a"), with_status(pod("p", node="a"), phase="Pending")], "Starting", ["Starting"]),
    Case("completed", "pod", [node("a"), with_status(pod("p", node="a"), phase="Succeeded")], "Runs", ["Completed"]),
    Case("failed", "pod", [node("a"), with_status(pod("p", node="a"), phase="Failed")], "Runs", ["Failed"]),
    Case("failed, deleted, kept", "pod", [node("a"), with_finalizer(deleting(with_status(pod("p", node="a"),
         phase="Failed")))], "Runs", ["Failed", "Terminating"]),
    Case("terminating on its node", "pod", [node("a"), deleting(pod("p", node="a"))], "Runs", ["Terminating"]),
    Case("deleted before it was placed", "pod", [node("a"), deleting(pod("p"))], "NeverFits", ["Terminating"]),
    Case("bound to nowhere", "pod", [with_status(pod("p", node="gone"), phase="Pending")], "FitsIf",
         ["NodeNameMismatch"]),
    Case("its turn comes", "pod", [node("a"), pod("p")], "Starting", ["Waiting"]),
    # Later
    Case("devices are taken", "pod", [*cluster_of(2), *holder("h", "n0", 2), *member_with_claim("p", "")],
         "FitsLater", ["DevicesUnavailable", "DevicesTaken"], confirmed=["Evict", "AddNodes"]),
    Case("cpu is taken", "pod", [node("a", cpu="2"), pod("o", cpu="2", node="a"), pod("p")], "FitsLater",
         ["InsufficientResource"], confirmed=["Evict", "AddNodes"]),
    Case("fewer devices would do", "pod", [*cluster_of(4), *holder("h", "n0", 2), *member_with_claim("p", "", 4)],
         "FitsLater", ["DevicesUnavailable", "DevicesTaken"], confirmed=["LowerCount", "Evict", "AddNodes"]),
    Case("the claim comes from its template", "pod", [*cluster_of(2), TEMPLATE, pod("p", claims=[("g", "tmpl", "")])],
         "FitsLater", ["ClaimNotCreated"]),
    # If
    Case("cordoned", "pod", [node("a", unschedulable=True), pod("p")], "FitsIf", ["NodeUnschedulable"],
         confirmed=["Uncordon", "AddNodes"]),
    Case("tainted node", "pod", [node("a", taints=[NODE_TAINT]), pod("p")], "FitsIf", ["NodeTaints"],
         confirmed=["Tolerate", "Untaint"]),
    Case("tainted device", "pod", [device_class(), node("a"), resource_slice("a", [TAINTED]),
                                   *member_with_claim("p", "")],
         "FitsIf", ["DevicesUnavailable", "DeviceTainted"], confirmed=["TolerateDevices"]),
    Case("tainted node and device", "pod", [device_class(), node("a", taints=[NODE_TAINT]),
                                            resource_slice("a", [TAINTED]), *member_with_claim("p", "")],
         "FitsIf", ["NodeTaints", "DeviceTainted"], confirmed=["Combination"]),
    Case("a label is missing", "pod", [node("a"), pod("p", nodeSelector={"disk": "fast"})], "FitsIf",
         ["NodeAffinityMismatch", "NodeLabelMissing"], confirmed=["LabelNodes"]),
    Case("gated", "pod", [node("a"), pod("p", schedulingGates=[{"name": "x"}])], "FitsIf", ["Gated"],
         confirmed=["RemoveGates"]),
    Case("the claim does not exist", "pod", [node("a"), pod("p", claims=["c"])], "FitsIf", ["ClaimMissing"]),
    Case("the template does not exist", "pod", [node("a"), pod("p", claims=[("g", "tmpl", "")])], "FitsIf",
         ["ClaimNotCreated"]),
    Case("the class does not exist", "pod", [node("a"), claim("c"), pod("p", claims=["c"])], "FitsIf",
         ["DeviceClassMissing"]),
    Case("the group does not exist", "pod", [node("a"), pod("p", group="g")], "FitsIf", ["PodGroupMissing"],
         confirmed=["CreatePodGroup"]),
    Case("its scheduler does no gangs", "pod", [node("a"), pod_group("g", 1), gangs_off(pod("p", group="g"))], "FitsIf",
         ["GangSchedulingOff"]),
    Case("its scheduler does no gangs, and members are missing", "podgroup",
         [node("a"), pod_group("g", 2), gangs_off(pod("p", group="g"))], "FitsIf",
         ["TooFewMembers", "GangSchedulingOff"], subject="g"),
    # Never
    Case("more devices than a node has", "pod", [*cluster_of(4), *holder("h", "n0", 4), *member_with_claim("p", "", 8)],
         "NeverFits", ["DevicesUnavailable", "NoDevices"]),
    Case("more cpu than a node has", "pod", [node("a", cpu="2"), pod("p", cpu="3")], "NeverFits",
         ["InsufficientResource"]),
    Case("no nodes", "pod", [pod("p")], "NeverFits", ["NoNodes"]),
    # Groups
    Case("a gang waits for members", "podgroup", [*cluster_of(8, 8), pod_group("g", 2), *members("g", 1, 8)],
         "FitsIf", ["TooFewMembers"], subject="g", confirmed=["AddMembers", "LowerMinCount"]),
    Case("members that would not fit either", "podgroup", [*cluster_of(8), pod_group("g", 2), *members("g", 1, 9)],
         "NeverFits", ["TooFewMembers", "Quorum", "DevicesUnavailable", "NoDevices"], subject="g"),
    Case("a gang waits for devices", "podgroup",
         [*cluster_of(8, 8), *holder("h", "n0", 8), pod_group("g", 2), *members("g", 2, 8)],
         "FitsLater", ["Quorum", "DevicesUnavailable", "DevicesTaken"], subject="g",
         confirmed=["LowerCount", "LowerMinCount", "Evict", "AddNodes"]),
    Case("a gang larger than the cluster", "podgroup", [*cluster_of(8, 8), pod_group("g", 3), *members("g", 3, 8)],
         "NeverFits", ["Quorum", "DevicesUnavailable", "NoDevices"], subject="g",
         confirmed=["LowerCount", "LowerMinCount", "AddNodes"]),
    Case("a gang runs", "podgroup", [node("a"), pod_group("g", 1), pod("m", group="g", node="a")], "Runs", ["Running"],
         subject="g"),
    Case("a gang runs and extras wait", "podgroup",
         [node("a", cpu="1"), pod_group("g", 1), pod("m", group="g", node="a"), pod("x", group="g")],
         "Runs", ["Running", "Quorum", "InsufficientResource"], subject="g", confirmed=["AddNodes"]),
    Case("a group without pods", "podgroup", [pod_group("g", 1)], "FitsIf", ["PodsMissing"], subject="g"),
    Case("a member is told what its gang is told", "pod",
         [*cluster_of(8), *holder("h", "n0", 8), pod_group("g", 1), *members("g", 1, 8)],
         "FitsLater", ["Quorum", "DevicesUnavailable", "DevicesTaken"], subject="g-0", confirmed=["Evict", "AddNodes"]),
    # Jobs
    Case("a finished job", "job", [job("j", conditions=[{"type": "Complete", "status": "True"}])], "Runs",
         ["Completed"], subject="j"),
    Case("a failed job", "job", [job("j", conditions=[{"type": "Failed", "status": "True", "message": "m"}])], "Runs",
         ["Failed"], subject="j"),
    Case("a suspended job", "job", [node("a"), job("j", suspend=True)], "FitsIf", ["Suspended", "Waiting"],
         subject="j"),
    Case("a job without pods yet", "job", [node("a"), job("j")], "FitsLater", ["PodsMissing", "Waiting"], subject="j"),
    Case("a job whose pods a quota refuses", "job",
         [node("a"), FULL, pod("o", node="a"), pod("q", node="a"), job("j")], "FitsLater",
         ["QuotaExceeded", "PodsMissing", "Waiting"], confirmed=["RaiseQuota"], subject="j"),
    Case("a job that can never start", "job", [node("a", cpu="0"), job("j")], "NeverFits",
         ["PodsMissing", "InsufficientResource"], subject="j"),
    Case("a running job", "job", [node("a"), job("j"), owned(pod("w", node="a"), job("j"))], "Runs", ["Running"],
         subject="j"),
    Case("a waiting job", "job", [node("a", cpu="1"), pod("o", node="a"), job("j"), owned(pod("w"), job("j"))],
         "FitsLater", ["InsufficientResource"], subject="j", confirmed=["Evict", "AddNodes"]),
    # Claims
    Case("a claim in use", "resourceclaim", [*cluster_of(2), *holder("h", "n0", 2)], "Runs", ["Allocated"],
         subject="h-c"),
    Case("a claim without users", "resourceclaim", [*cluster_of(2), claim("c", 2)], "FitsLater", ["Unused", "Waiting"],
         subject="c"),
    Case("a claim that nothing serves", "resourceclaim", [*cluster_of(2), claim("c", 3)], "NeverFits",
         ["Unused", "DevicesUnavailable", "NoDevices"], subject="c", confirmed=["LowerCount"]),
    Case("a claim whose pod waits", "resourceclaim",
         [*cluster_of(1), *holder("h", "n0", 1), claim("c"), pod("p", claims=["c"])], "FitsLater",
         ["DevicesUnavailable", "DevicesTaken"], subject="c", confirmed=["Evict", "AddNodes"]),
    Case("a claim that goes", "resourceclaim", [deleting(claim("c"))], "FitsIf", ["Terminating"], subject="c"),
]  # fmt: skip


def told(objects: list[Obj], kind: str, name: str, now: str = "") -> Explanation:
    subject = next(o for o in objects if o["kind"].lower() == kind and o["metadata"]["name"] == name)
    return explain(SchedulerCache.of(objects).snapshot(), kind, subject, (), now)  # type: ignore[arg-type]


def test_scheduler_feature_gate_remedy_is_unconfirmed() -> None:
    explanation = told([node("a"), pod_group("g", 1), gangs_off(pod("p", group="g"))], "pod", "p")
    assert [(remedy.kind, remedy.confirmed) for remedy in explanation.remedies] == [("TurnOnGates", False)]
    assert explanation.summary == "gang scheduling is off in the scheduler, which holds what names PodGroup default/g"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    explanation = told(case.objects, case.kind, case.subject)
    assert explanation.verdict == case.verdict
    assert [reason.type for reason in explanation.reasons] == case.reasons
    confirmed = {remedy.kind for remedy in explanation.remedies if remedy.confirmed}
    assert set(case.confirmed) <= confirmed
    answer = to_json(explanation)
    assert answer["verdict"] == case.verdict
    assert {reason["type"] for reason in answer["reasons"]} <= set(REASON_TYPES)
    text = to_text(explanation)
    assert f": {case.verdict}: " in text.splitlines()[0]
    assert len(text.splitlines()) <= 26


def test_json_has_names_numbers_and_changes() -> None:
    objects = [*cluster_of(2), *holder("h", "n0", 2), *member_with_claim("p", "", 2)]
    answer = to_json(told(objects, "pod", "p"))
    assert (answer["apiVersion"], answer["kind"]) == ("haru.dev/v1alpha1", "Explanation")
    assert answer["nodes"][0]["count"] == 1
    (request,) = answer["requests"]
    assert (request["request"], request["needed"], request["free"], request["short"]) == ("gpu", 2, 0, 2)
    assert [(stage["stage"], stage["left"]) for stage in request["funnel"]] == [("devices", 2), ("free", 0)]
    taken = next(r for r in answer["reasons"] if r["type"] == "DevicesTaken")
    assert taken["workloads"] == {"pod/h": 2}
    evict = next(r for r in answer["remedies"] if r["kind"] == "Evict")
    target = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "h"}}
    assert evict["changes"] == [{"action": "delete", "object": target}]
    assert answer["remedies"] == sorted(answer["remedies"], key=lambda r: r["cost"])


def test_text_of_explanation_is_exact() -> None:
    objects = [*cluster_of(2), *holder("h", "n0", 2), *member_with_claim("p", "", 2)]
    assert to_text(told(objects, "pod", "p")) == (
        "Pod default/p: FitsLater: no device is free for request gpu, 2 are needed: 2 short\n"
        "asks     1 × gpu: 2 of gpu\n"
        "devices  gpu: 2 devices in the cluster\n"
        "           − 2 taken: pod/h 2 (priority 0)\n"
        "           = 0 free, 2 needed: 2 short\n"
        "nodes    1 node (n0): 2 devices, 2 taken, 0 free\n"
        "helps    end pod h (frees 2 devices)\n"
        "           kubectl delete pod h -n default\n"
        "           cost: 1 running pod of priority 0 lost\n"
        "         add 1 node like n0, with its devices\n"
        "           cost: 1 more machine to provide, with the 2 devices that n0 publishes\n"
    )


def test_evict_remedy_names_only_work_in_the_way() -> None:
    objects = [*cluster_of(8, 8)]
    objects += [*holder("keep", "n0", 8, priority=10), *holder("go", "n1", 8)]
    objects += member_with_claim("p", "", 8)
    evict = next(r for r in told(objects, "pod", "p").remedies if r.kind == "Evict")
    assert [change["object"]["metadata"]["name"] for change in evict.changes] == ["go"]


def test_deleting_taint_rule_is_a_confirmed_remedy() -> None:
    rule = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"driver": DRIVER},
            "taint": {"key": "bad", "value": "x", "effect": "NoSchedule"},
        },
    }
    explanation = told([*cluster_of(1), rule, *member_with_claim("p", "")], "pod", "p")
    assert explanation.verdict == "FitsIf"
    assert {"DeleteDeviceTaintRule", "TolerateDevices"} <= {r.kind for r in explanation.remedies if r.confirmed}


def test_age_of_pending_pod_is_reported() -> None:
    waiting = pod("p", schedulingGates=[{"name": "x"}])
    waiting["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert told([node("a"), waiting], "pod", "p", "2026-01-01T00:01:00Z").age_seconds == 60


def test_related_pods_passed_in_are_counted() -> None:
    snapshot = SchedulerCache.of([node("a"), pod_group("g", 2), pod("x", group="g")]).snapshot()
    explanation = explain(snapshot, "podgroup", pod_group("g", 2), [pod("y", group="g")])
    assert explanation.verdict == "Starting"


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be explained"):
        explain(SchedulerCache().snapshot(), "service", pod("p"))  # type: ignore[arg-type]
