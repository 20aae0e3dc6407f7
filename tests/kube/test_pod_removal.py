"""The order in which controllers let pods go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haru.kube.meta import Obj
from haru.kube.pod_removal import DELETION_COST, job_removal_rank, replica_removal_order

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(name: str, node: str = "", phase: str = "", *, ready: float | None = None, **more: Any) -> Obj:
    """`ready`, `age`: seconds ago; `ready=0` at a time that nobody wrote down."""
    metadata: Obj = {"name": name, "uid": more.get("uid", name), "creationTimestamp": ago(more.get("age", 64))}
    if "cost" in more:
        metadata["annotations"] = {DELETION_COST: more["cost"]}
    status: Obj = {"containerStatuses": [{"name": "c", "restartCount": count} for count in more.get("restarts", [0])]}
    status["initContainerStatuses"] = [{"name": "init", "restartCount": 9}]
    status["initContainerStatuses"] += [{"name": "side", "restartCount": more.get("sidecar", 0)}]
    if phase:
        status["phase"] = phase
    if ready is not None:
        since = {"lastTransitionTime": ago(ready)} if ready else {}
        status["conditions"] = [{"type": "Ready", "status": "True", **since}]
    init = [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}]
    return {
        "metadata": metadata,
        "spec": {"initContainers": init} | ({"nodeName": node} if node else {}),
        "status": status,
    }


def running(name: str, **more: Any) -> Obj:
    return pod(name, "n", "Running", **{"ready": 64, **more})


BOTH = [
    [pod("first"), pod("then", "n")],
    [pod("first", "", "Running"), pod("then", "n", "Pending")],
    [pod("first", "n"), pod("then", "n", "Unknown")],
    [pod("first", "n", "Unknown"), pod("then", "n", "Running")],
    [pod("first", "n", "Running"), running("then")],
    [running("first", ready=0), running("then", ready=1)],
    [running("first", ready=9), running("then", ready=64, age=1, restarts=[5])],
    [running("first", restarts=[2]), running("then", restarts=[1, 1])],
    [running("first", restarts=[2]), running("then", restarts=[1], sidecar=5)],
    [running("first", sidecar=1), running("then", age=1)],
    [running("first", age=9), running("then", age=64)],
]


@pytest.mark.parametrize(
    "pods", [*BOTH, [running("first", ready=33), running("then", ready=63, cost="-5", age=1, restarts=[5])]]
)
def test_job_lets_pod_go_first_that_got_least_far_whatever_its_deletion_cost(pods: list[Obj]) -> None:
    for given in (pods, pods[::-1]):
        assert [pod["metadata"]["name"] for pod in sorted(given, key=job_removal_rank)] == ["first", "then"]


@pytest.mark.parametrize(
    "pods",
    [
        *BOTH,
        [running("first", cost="-5"), running("then")],
        [running("first", cost="bad"), running("then", cost="1")],
        [pod("first", "n", "Running", cost="9"), running("then", cost="1")],
        [running("first", cost="-1", ready=64), running("then", ready=1)],
        # Ages of one power of two (nanoseconds): the uid decides, which is chance.
        [running("first", ready=60, uid="a"), running("then", ready=40, uid="b", restarts=[5])],
        [running("first", age=60, uid="a"), running("then", age=40, uid="b")],
    ],
)
def test_replica_set_lets_pod_go_first_whose_loss_matters_least(pods: list[Obj]) -> None:
    for given in (pods, pods[::-1]):
        ordered = replica_removal_order(given, [], NOW)
        assert [pod["metadata"]["name"] for pod in ordered] == ["first", "then"]


def test_pods_that_share_a_node_with_others_of_their_deployment_go_first() -> None:
    alone, beside, other = pod("alone", "n1", age=1), pod("beside", "n2"), pod("other", "n2")
    assert replica_removal_order([alone, beside], [alone, beside, other], NOW) == [beside, alone]
    assert replica_removal_order([alone, beside], [alone, beside], NOW) == [alone, beside]
    # A ReplicaSet that nobody made has no related pods.
    assert replica_removal_order([alone, beside], [], NOW) == [alone, beside]
