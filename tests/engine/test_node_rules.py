"""What a node must satisfy, as tables: one rule each, with the message that users know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from engine_objects import Obj, decide_all, node, pod
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.engine.framework.interfaces import FilterFailure, refuse, unavailable_message, weighed
from haru.engine.state.decision import Decision

ZONE = "topology.kubernetes.io/zone"


def zoned(name: str, zone: str, **kwargs: Any) -> Obj:
    return node(name, labels={ZONE: zone}, **kwargs)


def taint(effect: str, key: str = "k", value: str = "v") -> Obj:
    return {"key": key, "value": value, "effect": effect}


def required(*terms: Obj) -> Obj:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(key: str, operator: str, *values: str) -> Obj:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def company(kind: str, app: str, **term: Any) -> Obj:
    selector = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{**selector, **term}]}}


def labelled(obj: Obj, **labels: str) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def spread(max_skew: int = 1, **constraint: Any) -> Obj:
    base = {"maxSkew": max_skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**base, "labelSelector": {"matchLabels": {"app": "x"}}, **constraint}]}


def with_port(obj: Obj, port: int, **kwargs: Any) -> Obj:
    container = {"name": "c", "ports": [{"containerPort": port, "hostPort": port, **kwargs}]}
    return {**obj, "spec": {**obj["spec"], "containers": [container]}}


@dataclass
class Case:
    name: str
    objects: list[Obj]
    nodes: set[str]
    message: str = ""


UNTOLERATED = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
AFFINITY = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
CASES = [
    Case("cordoned", [node("a", unschedulable=True), pod("p")], set(),
         "0/1 nodes are available: 1 node(s) were unschedulable."),
    Case("cordon tolerated",
         [node("a", unschedulable=True), pod("p", tolerations=[{"operator": "Exists"}])], {"a"}),
    Case("NoSchedule", [node("a", taints=[taint("NoSchedule")]), pod("p")], set(), UNTOLERATED),
    Case("NoExecute filters too", [node("a", taints=[taint("NoExecute")]), pod("p")], set(), UNTOLERATED),
    Case("PreferNoSchedule does not filter", [node("a", taints=[taint("PreferNoSchedule")]), pod("p")], {"a"}),
    Case("tolerated",
         [node("a", taints=[taint("NoSchedule")]), pod("p", tolerations=[{"key": "k", "value": "v"}])], {"a"}),
    Case("tolerated with another value",
         [node("a", taints=[taint("NoSchedule")]), pod("p", tolerations=[{"key": "k", "value": "w"}])],
         set(), UNTOLERATED),
    Case("soft taints are avoided",
         [node("a", taints=[taint("PreferNoSchedule")]), node("b"), pod("p")], {"b"}),
    Case("nodeSelector", [zoned("a", "z1"), zoned("b", "z2"), pod("p", nodeSelector={ZONE: "z2"})], {"b"}),
    Case("nodeSelector without match", [zoned("a", "z1"), pod("p", nodeSelector={ZONE: "z2"})], set(), AFFINITY),
    Case("terms are alternatives",
         [zoned("a", "z1"), pod("p", affinity=required(expression(ZONE, "In", "z2"), expression(ZONE, "Exists")))],
         {"a"}),
    Case("NotIn matches a node without the key",
         [node("a"), pod("p", affinity=required(expression(ZONE, "NotIn", "z2")))], {"a"}),
    Case("an empty term matches nothing", [node("a"), pod("p", affinity=required({}))], set(), AFFINITY),
    Case("by name",
         [node("a"), node("b"),
          pod("p", affinity=required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}))],
         {"b"}),
    Case("cpu and memory are told apart",
         [node("a", cpu="1"), pod("p", containers=[{"resources": {"requests": {"cpu": "2", "memory": "99Gi"}}}])],
         set(), "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."),
    Case("exactly what is left", [node("a", cpu="3"), pod("o", cpu="1", node="a"), pod("p", cpu="2")], {"a"}),
    Case("others' pods count", [node("a", cpu="3"), pod("o", cpu="2", node="a"), pod("p", cpu="2")], set(),
         "0/1 nodes are available: 1 Insufficient cpu."),
    Case("terminating pods count",
         [node("a", cpu="3"),
          {**pod("o", cpu="2", node="a"),
           "metadata": {**pod("o")["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
          pod("p", cpu="2")],
         set(), "0/1 nodes are available: 1 Insufficient cpu."),
    Case("a sidecar's request counts",
         [node("a", cpu="2"),
          pod("p", initContainers=[{"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}])],
         set(), "0/1 nodes are available: 1 Insufficient cpu."),
    Case("a zero request never fails", [node("a", cpu="1"), pod("o", cpu="2", node="a"), pod("p", cpu="0")], {"a"}),
    Case("ports clash", [node("a"), with_port(pod("o", node="a"), 80), with_port(pod("p"), 80)], set(),
         "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."),
    Case("ports of other protocols do not",
         [node("a"), with_port(pod("o", node="a"), 80, protocol="UDP"), with_port(pod("p"), 80)], {"a"}),
    Case("ports on distinct addresses do not",
         [node("a"), with_port(pod("o", node="a"), 80, hostIP="10.0.0.1"), with_port(pod("p"), 80, hostIP="10.0.0.2")],
         {"a"}),
    Case("affinity to a pod",
         [zoned("a", "z1"), zoned("b", "z2"), labelled(pod("o", node="b"), app="x"),
          pod("p", affinity=company("podAffinity", "x"))],
         {"b"}),
    Case("affinity to nobody", [zoned("a", "z1"), pod("p", affinity=company("podAffinity", "x"))], set(),
         "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."),
    Case("affinity to itself", [zoned("a", "z1"), labelled(pod("p", affinity=company("podAffinity", "x")), app="x")],
         {"a"}),
    Case("affinity of another namespace",
         [zoned("a", "z1"), labelled(pod("o", node="a"), app="x"),
          pod("p", affinity=company("podAffinity", "x", namespaces=["other"]))],
         set(), "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."),
    Case("every namespace",
         [zoned("a", "z1"), labelled(pod("o", node="a"), app="x"),
          pod("p", affinity=company("podAffinity", "x", namespaceSelector={}))],
         {"a"}),
    Case("anti-affinity",
         [zoned("a", "z1"), zoned("b", "z2"), labelled(pod("o", node="b"), app="x"),
          pod("p", affinity=company("podAntiAffinity", "x"))],
         {"a"}),
    Case("anti-affinity everywhere",
         [zoned("b", "z2"), labelled(pod("o", node="b"), app="x"), pod("p", affinity=company("podAntiAffinity", "x"))],
         set(), "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."),
    Case("others' anti-affinity",
         [zoned("b", "z2"), pod("o", node="b", affinity=company("podAntiAffinity", "x")), labelled(pod("p"), app="x")],
         set(), "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."),
    Case("spread over zones",
         [zoned("a", "z1"), zoned("b", "z2"), labelled(pod("o", node="a"), app="x"),
          labelled(pod("p", **spread()), app="x")],
         {"b"}),
    Case("spread: no room but where it is full",
         [zoned("a", "z1"), zoned("b", "z2", unschedulable=True), labelled(pod("o", node="a"), app="x"),
          labelled(pod("p", **spread()), app="x")],
         set(),
         "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, "
         "1 node(s) were unschedulable."),
    Case("spread: minDomains",
         [zoned("a", "z1"), labelled(pod("o", node="a"), app="x"), labelled(pod("p", **spread(minDomains=2)), app="x")],
         set(), "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."),
    # As in 1.36, where it stands for no pods rather than for all.
    Case("spread: an empty selector counts nobody",
         [zoned("a", "z1"), zoned("b", "z2", unschedulable=True), labelled(pod("o", node="a"), app="x"),
          labelled(pod("p", **spread(labelSelector={})), app="x")],
         {"a"}),
    Case("spread: the label is missing", [node("a"), pod("p", **spread())], set(),
         "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label)."),
    Case("nominated pods keep their room",
         [node("a", cpu="2"), {**pod("o", cpu="2", priority=5), "status": {"nominatedNodeName": "a"}},
          pod("p", cpu="2", schedulerName="default-scheduler")],
         set(), "0/1 nodes are available: 1 Insufficient cpu."),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pod_is_placed_only_on_feasible_nodes(case: Case) -> None:
    pods = [o for o in case.objects if o["kind"] == "Pod" and o["metadata"]["name"] == "p"]
    for seed in range(3):
        decision: Decision = decide_all(case.objects, seed=seed, only=pods)
        assert {m.node for m in decision.placed} <= case.nodes
        assert bool(decision.placed) == bool(case.nodes)
        assert decision.message == case.message


def test_least_allocated_node_is_preferred() -> None:
    objects = [node("a"), node("b"), pod("o", cpu="4", node="a"), pod("p", cpu="1")]
    decision: Decision = decide_all(objects, only=[objects[-1]])
    assert decision.placed[0].node == "b"


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from(["x", "y", "z"]), max_size=2), max_size=5))
def test_message_counts_reasons_as_kube_scheduler(refusals: list[list[str]]) -> None:
    failures: list[list[FilterFailure]] = [[refuse("P", "NodeTaints", text) for text in row] for row in refusals]
    message = unavailable_message(len(refusals), weighed(failures))
    if not refusals:
        assert message == "no nodes available to schedule pods"
        return
    flat = [text for row in refusals for text in row]
    entries = sorted(f"{flat.count(text)} {text}" for text in set(flat))
    tail = f": {', '.join(entries)}." if entries else "."
    assert message == f"0/{len(refusals)} nodes are available{tail}"
