"""A DaemonSet on nodes that can never run its pods: the nodeSelector that is offered, and where none is."""

from __future__ import annotations

from typing import Any

import pytest
from explain_schema import check_explanation

from haru import Snapshot
from haru.explain import Explanation

Obj = dict[str, Any]
GPU = "nvidia.com/gpu"
PRESENT = {"nvidia.com/gpu.present": "true"}
CARDS, PLAIN = {"pool": "cards", **PRESENT}, {"pool": "plain"}


def node(name: str, labels: Obj, cards: int = 0, **spec: Any) -> Obj:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **({GPU: str(cards)} if cards else {})}
    metadata = {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    status = {"allocatable": amounts, "capacity": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def agent(node: str, *, runs: bool = False, cards: str = "1", owner: str = "DaemonSet") -> Obj:
    """The pod of the DaemonSet for a node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": "agent", "uid": "ds", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"agent-{node}", "namespace": "default", "uid": node, "ownerReferences": [reference]},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {GPU: cards}, "limits": {GPU: cards}}}
            ],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            **({"nodeName": node} if runs else {}),
        },
        "status": {"phase": "Running" if runs else "Pending"},
    }


def holder(node: str, cards: int) -> Obj:
    """Another pod that has cards of a node."""
    pod = agent(node, runs=True, cards=str(cards))
    return {**pod, "metadata": {"name": "other", "namespace": "default", "uid": "other"}}


def offered(*objects: Obj, about: str = "pod/agent-plain-0") -> list[tuple[str, bool]]:
    told = Snapshot.of(objects).explain(about)
    assert isinstance(told, Explanation)
    check_explanation(told.as_dict())
    found = [(remedy, remedy.changes[0]["patch"]) for remedy in told.remedies if remedy.kind == "AddNodeSelector"]
    return [
        (f"{key}={value}", remedy.confirmed)
        for remedy, patch in found
        for key, value in patch["spec"]["template"]["spec"]["nodeSelector"].items()
    ]


RUNS = [node("cards-0", CARDS, 8), agent("cards-0", runs=True)]
WRONG = [node("plain-0", PLAIN), agent("plain-0")]
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
OPERATED: Obj = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {
        "name": "agent",
        "namespace": "default",
        "uid": "ds",
        "ownerReferences": [{"kind": "ClusterPolicy", "name": "policy", "uid": "cp", "controller": True}],
    },
    "spec": {"template": {"spec": {}}},
}


@pytest.mark.parametrize(
    ("what", "objects", "label"),
    [
        ("the vendor's label of what is asked for", [*RUNS, *WRONG], "nvidia.com/gpu.present=true"),
        (
            "a label that leaves out more of what waits",
            [*RUNS, *WRONG, node("plain-1", {"pool": "plain", **PRESENT}), agent("plain-1")],
            "pool=cards",
        ),
        (
            "a label of all nodes that run it",
            [*RUNS, *WRONG, node("old-0", {"pool": "cards"}, 4), agent("old-0", runs=True)],
            "pool=cards",
        ),
        (
            "what waits for running work may go on waiting",
            [*RUNS, *WRONG, node("cards-1", CARDS, 4), agent("cards-1"), holder("cards-1", 4)],
            "nvidia.com/gpu.present=true",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_daemon_set_gets_label_of_nodes_that_serve_it(what: str, objects: list[Obj], label: str) -> None:
    assert offered(*objects) == [(label, True)]


@pytest.mark.parametrize(
    ("what", "objects"),
    [
        ("no label sets the nodes apart but their names", [node("cards-0", PLAIN, 8), RUNS[1], *WRONG]),
        ("it runs nowhere", [RUNS[0], *WRONG]),
        ("an operator writes the DaemonSet", [*RUNS, *WRONG, OPERATED]),
        ("the node only lacks what others hold", [*RUNS, node("plain-0", PLAIN, 1), holder("plain-0", 1), WRONG[1]]),
        ("the pod is of something else", [*RUNS, WRONG[0], agent("plain-0", owner="NodeSet")]),
        (
            "a running pod that is made again would not come back",
            [node("cards-0", CARDS, 8, taints=[TAINT]), RUNS[1], *WRONG],
        ),
        (
            "every label is also on a node that cannot run it",
            [*RUNS, *WRONG, node("plain-1", CARDS), agent("plain-1")],
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_no_node_selector_is_offered_where_it_would_not_help(what: str, objects: list[Obj]) -> None:
    assert offered(*objects) == []


def test_list_has_one_row_for_all_wrong_nodes_and_none_of_their_pods_starts() -> None:
    two = [node("plain-1", PLAIN), agent("plain-1")]
    (row,) = Snapshot.of([*RUNS, *WRONG, *two]).explain_pending().rows
    assert (row.what, row.pods, row.starts) == ("daemonset/agent", 2, 0)
    assert row.remedy is not None and row.remedy.summary == (
        "leave plain-0, plain-1 out of daemonset/agent by the nodeSelector nvidia.com/gpu.present=true"
    )
    assert row.remedy.command.startswith("kubectl patch daemonset agent -n default --type=merge -p ")
