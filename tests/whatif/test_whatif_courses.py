"""Whatif on small clusters: who starts, who has to go and why, what becomes of them, and how full it is then."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from haru.api.decision_options import options_of
from haru.drivers.simulated.objects import node_object
from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.slices import resource_slices
from haru.engine import REASON_TYPES
from haru.engine.dra import DeviceId, Taint
from haru.kube.gates import FeatureGates
from haru.whatif import (
    AddNodes,
    Apply,
    Change,
    ChangeError,
    Comparison,
    Cordon,
    Delete,
    Objects,
    Repartition,
    TaintDevice,
    TaintNode,
    to_json,
    to_text,
    try_out,
)

Obj = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GATES = FeatureGates.accelerator_defaults().all()
GPU = "gpu.nvidia.com"
GONE = Taint("maintenance", "", "NoExecute")
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}


def node(name: str, cpu: str = "8", **spec: Any) -> Obj:
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    meta = {"name": name, "uid": f"node-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": {"allocatable": amounts}}


def gpu_node(name: str, profile: str = "dgx-h100") -> list[Obj]:
    made = node_object(load_profile(profile), name, internal_ip="", now="2026-01-01T00:00:00Z")
    made["metadata"]["uid"] = f"node-{name}"
    return [made, *resource_slices(load_profile(profile), name, f"node-{name}", {}, 1), *CLASSES]


CLASSES = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": GPU},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{GPU}'"}}]},
    }
]


def pod(name: str, on: str = "", cpu: str = "4", owner: Obj | None = None, claim: str = "", **spec: Any) -> Obj:
    container: Obj = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    meta: Obj = {"namespace": "default", "name": name, "uid": f"pod-{name}"}
    if owner is not None:
        meta["ownerReferences"] = [owner]
    status: Obj = {"phase": "Running" if on else "Pending"}
    if claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
        status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim}]
    if on:
        spec["nodeName"] = on
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], **spec},
        "status": status,
    }


def claim_of(owner: Obj, device: tuple[str, str] | None = None, tolerations: Any = ()) -> Obj:
    name = owner["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    meta = owner["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    found: Obj = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": name, "uid": f"claim-{name}", "ownerReferences": [reference]},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": GPU, "count": 1}}]}},
    }
    if device is not None:
        result: Obj = {"request": "gpu", "driver": GPU, "pool": device[0], "device": device[1]}
        if tolerations:
            result["tolerations"] = list(tolerations)
        user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        found["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    return found


def compare(objects: list[Obj], *changes: Change) -> Comparison:
    original = Objects(objects)
    kept = list(original)
    found = try_out(original, changes, options_of(GATES), "default-scheduler", NOW)
    assert list(original) == kept, "what was handed in was changed"
    document = to_json(found)
    assert (document["apiVersion"], document["kind"]) == ("haru.dev/v1alpha1", "WhatIf")
    waiting = [*document["waits"], *(d for d in document["displaced"] if d["outcome"] == "Waits")]
    assert all(entry["reasons"] and entry["reasons"][0]["type"] in REASON_TYPES for entry in waiting)
    assert to_text(found)
    return found


def fates(found: Comparison) -> dict[str, tuple[str, str, str]]:
    return {d.path.removeprefix("default/"): (d.cause.type, d.outcome, d.new_node) for d in found.displaced}


def test_added_nodes_let_waiting_pods_start() -> None:
    found = compare([node("n1", cpu="2"), pod("big")], AddNodes(load_profile("cpu"), 1))
    assert [(s.path, s.node) for s in found.starts] == [("default/big", "cpu-0")]
    assert found.harmless and found.still_waiting == 0
    assert found.usage["cpu"][0].total == 2000 and found.usage["cpu"][1].used == 4000


def test_pod_that_starts_anyway_is_not_attributed_to_change() -> None:
    found = compare([node("n1"), pod("small")], AddNodes(load_profile("cpu"), 1))
    assert not found.starts and found.anyway == (1, 0)


def test_resources_of_terminating_pod_count_as_free() -> None:
    leaving = pod("old", "n1", "8", owner=OWNER)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:00Z"
    found = compare([node("n1"), leaving, pod("next", cpu="8")], AddNodes(load_profile("cpu"), 1))
    assert (found.displaced, found.starts, found.anyway) == ((), (), (1, 1))


def test_added_nodes_bring_devices_and_classes_of_profile() -> None:
    found = compare([], AddNodes(load_profile("dgx-a100-80gb-mig"), 2))
    assert found.usage["devices gpu.nvidia.com"][1].total == 16, "eight cards each, whatever they can be divided into"


def test_pod_pending_because_of_change_has_reason() -> None:
    found = compare([node("n1"), pod("small")], Cordon("n1"))
    [wait] = found.waits
    assert (wait.path, wait.new, wait.reasons[0].type) == ("default/small", False, "NodeUnschedulable")
    assert not found.harmless


def test_cordon_does_not_displace_running_pods() -> None:
    assert compare([node("n1"), pod("a", "n1")], Cordon("n1")).displaced == ()


@pytest.mark.parametrize("change", [TaintNode("n1", GONE), Delete("Node", "n1")])
def test_pods_of_controller_restart_elsewhere_and_bare_pods_are_lost(change: Change) -> None:
    objects = [node("n1"), node("n2", cpu="4"), pod("bare", "n1", "1"), pod("web-a", "n1", owner=OWNER)]
    found = compare(objects, change)
    cause = "NodeTaint" if isinstance(change, TaintNode) else "NodeGone"
    assert fates(found) == {"bare": (cause, "Lost", ""), "web-a": (cause, "Restarts", "n2")}
    assert not found.harmless


def test_displaced_pod_without_capacity_waits_with_reason() -> None:
    found = compare([node("n1"), node("n2", cpu="1"), pod("web-a", "n1", owner=OWNER)], Delete("Node", "n1"))
    [entry] = found.displaced
    assert (entry.outcome, entry.reasons[0].type) == ("Waits", "InsufficientResource")


def test_displaced_pod_may_preempt_lower_priority() -> None:
    objects = [
        node("n1"),
        node("n2"),
        pod("web-a", "n1", "6", OWNER, priority=10),
        pod("low", "n2", "6", {**OWNER, "name": "batch"}),
    ]
    found = compare(objects, Delete("Node", "n1"))
    assert fates(found) == {"web-a": ("NodeGone", "Restarts", "n2"), "low": ("Preempted", "Waits", "")}
    [low] = [d for d in found.displaced if d.path == "default/low"]
    assert low.cause.data["for"] == ["default/replicaset/web"]


def test_daemon_set_pods_go_with_their_node() -> None:
    owner = {**OWNER, "kind": "DaemonSet"}
    found = compare([node("n1"), pod("agent", "n1", owner=owner)], Delete("Node", "n1"))
    assert fates(found) == {"agent": ("NodeGone", "GoesWithNode", "")}
    assert found.harmless


def test_toleration_seconds_delay_displacement() -> None:
    tolerates = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    objects = [node("n1"), node("n2"), pod("web-a", "n1", owner=OWNER, tolerations=[tolerates])]
    objects.append(pod("other", "n1", owner=OWNER, tolerations=[{**tolerates, "tolerationSeconds": None}]))
    del objects[-1]["spec"]["tolerations"][0]["tolerationSeconds"]
    found = compare(objects, TaintNode("n1", GONE))
    [entry] = found.displaced
    assert (entry.path, entry.after_seconds, entry.cause.type) == ("default/web-a", 300, "NodeTaint")


def test_pod_returning_to_tainted_node_waits() -> None:
    tolerates = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    found = compare([node("n1"), pod("web-a", "n1", owner=OWNER, tolerations=[tolerates])], TaintNode("n1", GONE))
    [entry] = found.displaced
    assert (entry.outcome, entry.reasons[0].type) == ("Waits", "NodeTaints")
    assert "again" in entry.reasons[0].message


def test_tainted_device_moves_its_pod_to_another_device() -> None:
    user, other = pod("web-a", "g1", owner=OWNER, claim="c-a"), pod("web-b", "g1", owner=OWNER, claim="c-b")
    objects = [*gpu_node("g1"), user, claim_of(user, ("g1", "gpu-0")), other, claim_of(other, ("g1", "gpu-1"))]
    found = compare(objects, TaintDevice(DeviceId(GPU, "g1", "gpu-0"), GONE))
    assert fates(found) == {"web-a": ("DeviceTaint", "Restarts", "g1")}
    tolerant = claim_of(user, ("g1", "gpu-0"), [{"key": "maintenance", "operator": "Exists"}])
    stays = [*gpu_node("g1"), user, tolerant]
    assert compare(stays, TaintDevice(DeviceId(GPU, "g1", "gpu-0"), GONE)).displaced == ()


def test_repartitioning_displaces_pods_of_removed_devices() -> None:
    user = pod("train", "g1", owner=OWNER, claim="c")
    objects = [*gpu_node("g1"), user, claim_of(user, ("g1", "gpu-0"))]
    found = compare(objects, Repartition("g1", load_profile("dgx-h100-mig-balanced")))
    [entry] = found.displaced
    assert (entry.cause.type, entry.outcome, entry.cause.data["devices"]) == ("DeviceGone", "Restarts", ["g1/gpu-0"])
    before, after = found.usage["devices gpu.nvidia.com"]
    assert (before.total, after.total) == (8, 8), "a card counts as one, however it is cut"
    dynamic = compare(objects, Repartition("g1", load_profile("dgx-h100-mig")))
    assert dynamic.displaced == (), "the whole card is among the partitions"
    assert dynamic.usage["devices gpu.nvidia.com"][1].used == 1


def gang(size: int, on: str) -> list[Obj]:
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"namespace": "default", "name": "g", "uid": "group"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }
    members = [pod(f"g-{n}", on, "2", schedulingGroup={"podGroupName": "g"}) for n in range(size)]
    return [group, *members]


def test_displaced_gang_members_are_recreated() -> None:
    found = compare([node("n1"), node("n2"), *gang(3, "n1")], TaintNode("n1", GONE))
    assert set(fates(found).values()) == {("NodeTaint", "Restarts", "n2")}
    short = compare([node("n1"), node("n2", cpu="4"), *gang(3, "n1")], TaintNode("n1", GONE))
    assert {d.outcome for d in short.displaced} == {"Waits"}
    assert [(g.path, g.placed, g.min_count) for g in short.gangs] == [("default/g", 0, 3)]


def test_deleted_group_deletes_its_pods() -> None:
    found = compare([node("n1"), *gang(3, "n1"), pod("next", cpu="8")], Delete("PodGroup", "default/g"))
    assert {d.outcome for d in found.displaced} == {"Deleted"}
    assert [s.path for s in found.starts] == ["default/next"] and found.harmless


def test_deleted_owner_deletes_its_pods_and_deleted_pod_is_recreated() -> None:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"namespace": "default", "name": "web", "uid": "rs"},
        "spec": {},
    }
    objects = [node("n1"), owner, pod("web-a", "n1", owner=OWNER)]
    assert fates(compare(objects, Delete("ReplicaSet", "default/web"))) == {"web-a": ("Deleted", "Deleted", "")}
    assert fates(compare(objects, Delete("Pod", "default/web-a"))) == {"web-a": ("Deleted", "Restarts", "n1")}


def test_applied_object_is_merged_into_existing() -> None:
    smaller = {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    found = compare([node("n1"), pod("small")], Apply(node("n1"), smaller))
    assert [w.reasons[0].type for w in found.waits] == ["NodeTaints"]
    assert found.usage["cpu"][1].total == 8000, "what the patch does not name has stayed"


def test_applied_pod_that_fits_nowhere_is_new_and_waits() -> None:
    found = compare([node("n1")], Apply(pod("huge", cpu="64")))
    assert [(w.path, w.new) for w in found.waits] == [("default/huge", True)] and not found.harmless


def test_pods_of_another_scheduler_are_not_predicted() -> None:
    found = compare(
        [node("n1"), node("n2"), pod("web-a", "n1", owner=OWNER, schedulerName="other")], Delete("Node", "n1")
    )
    assert [d.reasons[0].type for d in found.displaced] == ["SchedulerNameMismatch"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Cordon("n2"), 'there is no node "n2"; there are g1, n1'),
        (Delete("Pod", "default/b"), 'there is no pod "default/b"; did you mean default/a?'),
        (Delete("ResourceClaim", "default/c"), "resourceclaim default/c is in use by a: it goes once they have gone"),
        (Repartition("g1", load_profile("dgx-a100-80gb")), "node g1 cannot become dgx-a100-80gb: its cards are NVIDIA"),
        (
            Repartition("g1", load_profile("tpu-v5e")),
            "node g1 cannot become tpu-v5e: its devices are of gpu.nvidia.com",
        ),
    ],
)
def test_impossible_change_is_refused_with_reason(change: Change, text: str) -> None:
    user = pod("a", "n1", claim="c")
    objects = [node("n1"), *gpu_node("g1"), user, claim_of(user, ("g1", "gpu-0"))]
    with pytest.raises(ChangeError) as caught:
        compare(objects, change)
    assert str(caught.value).startswith(text)


WEB = [pod(f"web-{letter}", "n1", "1", OWNER) for letter in "abcdef"]


def test_text_summary_is_short_and_groups_pods() -> None:
    objects = [
        node("n1"),
        node("n2", cpu="4"),
        pod("bare", "n1", "1"),
        *[pod(f"web-{n}", "n1", "1", OWNER) for n in "abcdef"],
    ]
    text = to_text(compare(objects, Delete("Node", "n1")))
    assert text.splitlines()[:6] == [
        "change    delete node n1",
        "so        7 pods are displaced; 4 can start again; 2 cannot be placed again; 1 lost",
        "displaced default/pod/bare from n1: node n1 is gone",
        "            → 1 lost: nobody makes it again",
        "          default/replicaset/web, 6 pods from n1: node n1 is gone",
        "            → 4 start again: 4 on n2",
    ]
    assert "            → 2 cannot be placed again: FitsLater: insufficient cpu: 1 asked, 0 left of 4" in text
    assert "              short by cpu 1: 1 asked, the most left on a node is 0" in text and len(text.splitlines()) < 12
