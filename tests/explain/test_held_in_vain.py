"""A pod that asks for a place where it can never be, while all cards are held: what holds them is not why."""

from __future__ import annotations

import pytest
from engine_objects import Obj, allocated, allocation, claim, device_class, node, pod, pod_group, resource_slice

from haru.engine import SchedulerCache
from haru.explain import Explanation, explain


def told(cpu: str = "1", **spec: object) -> Explanation:
    """What is said of a pod for one card; the only card is held on node a, and node b has none."""
    holder = pod("h", node="a", claims=["held"])
    there: list[Obj] = [
        *(node("a"), node("b"), device_class(), resource_slice("a", 1), holder),
        allocated(claim("held"), allocation("a", "gpu-0"), holder),
    ]
    waiting = pod("p", claims=["c"], cpu=cpu, **spec)
    return explain(SchedulerCache.of([*there, claim("c"), waiting]).snapshot(), "pod", waiting)


def test_verdict_names_the_node_that_is_asked_for_and_its_selector_is_left_out() -> None:
    found = told(nodeSelector={"kubernetes.io/hostname": "b"})
    assert (found.verdict, found.summary.partition(" (")[0]) == ("NeverFits", "no device of class gpu")
    first = found.remedies[0]
    assert (first.kind, first.confirmed) == ("RelaxNodeSelector", False)
    assert first.costs.endswith("only once running work has ended or is preempted")


@pytest.mark.parametrize("remedies", (True, False))
def test_label_that_no_node_has_can_be_set_though_the_cards_are_held(remedies: bool) -> None:
    waiting = pod("p", claims=["c"], nodeSelector={"pool": "a"})
    holder = pod("h", node="a", claims=["held"])
    held = allocated(claim("held"), allocation("a", "gpu-0"), holder)
    there = [node("a"), device_class(), resource_slice("a", 1), holder, held, claim("c"), waiting]
    found = explain(SchedulerCache.of(there).snapshot(), "pod", waiting, remedies=remedies)
    assert found.verdict == "FitsIf", "the same as if the card were free"
    label = [remedy for remedy in found.remedies if remedy.kind == "LabelNodes"]
    assert [(way.summary, way.confirmed) for way in label] == ([("label a with pool=a", False)] if remedies else [])


def test_too_much_cpu_is_the_reason_whoever_holds_the_cards() -> None:
    found = told(cpu="9999")
    assert found.verdict == "NeverFits" and found.summary.startswith("insufficient cpu: 9999 asked")


def test_volume_is_named_with_the_nodes_that_can_reach_it() -> None:
    affinity = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}
    meta, version = {"name": "v1"}, {"apiVersion": "v1"}
    volume = {"kind": "PersistentVolume", "metadata": meta, "spec": {"nodeAffinity": {"required": affinity}}}
    bound = {"name": "data", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    claimed = {"kind": "PersistentVolumeClaim", "metadata": bound, "spec": {"volumeName": "v1"}}
    waiting = pod("p", claims=["c"], volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    there = [node("a"), node("b"), device_class(), resource_slice("a", 1), claim("c"), waiting]
    found = explain(
        SchedulerCache.of([*there, {**version, **volume}, {**version, **claimed}]).snapshot(), "pod", waiting
    )
    assert found.verdict == "NeverFits" and "volume v1 is elsewhere" in found.summary
    text = "PersistentVolumeClaim data is bound to volume v1, which only b can reach"
    assert text in str(found), "kube-scheduler names neither"
    assert [one.data["reachable"] for one in found.reasons if one.message == text] == [["b"]]


def test_work_is_not_short_of_what_a_node_without_cards_lacks() -> None:
    waiting = pod("p", claims=["c"], cpu="6")
    there = [
        node("a", unschedulable=True),
        node("b", cpu="2"),
        device_class(),
        resource_slice("a", 1),
        claim("c"),
        waiting,
    ]
    found = explain(SchedulerCache.of(there).snapshot(), "pod", waiting)
    assert "cordoned" in found.summary
    assert "short by" not in found.short(), "cpu is enough where the card is"


@pytest.mark.parametrize(
    ("count", "summary"),
    [
        (2, "request gpu asks for 2 devices on one node: no node has more than 1"),
        (1, "the whole cluster has 1 device for request gpu, 2 are needed"),
    ],
)
def test_devices_that_nobody_has_are_the_reason_whatever_else_is_held(count: int, summary: str) -> None:
    holder = pod("h", node="a", claims=["held"], cpu="3")
    held = allocated(claim("held"), allocation("a", "gpu-0"), holder)
    members = [pod(f"p{i}", claims=[f"c{i}"], group="g", cpu="2") for i in range(2)]
    claims = [claim(f"c{i}", count=count) for i in range(2)]
    there = [node("a", cpu="4"), device_class(), resource_slice("a", 1), holder, held, pod_group("g", 2)]
    found = explain(SchedulerCache.of([*there, *claims, *members]).snapshot(), "pod", members[0])
    assert (found.verdict, found.summary) == ("NeverFits", summary)
