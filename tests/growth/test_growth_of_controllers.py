"""What controllers do for an event does not depend on how many objects there are."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from counted_calls import SIZES, Steps, assert_all_flat, assert_flat
from growing_controllers import MAKERS, GrowingController, Steady, events_of, make, named, owned, pod, settle

import virtual_time
from haru.client.api import ApiClient
from haru.controllers.manager import CONTROLLERS
from haru.controllers.objects import (
    CLAIMS,
    DAEMON_SETS,
    JOBS,
    NODES,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from haru.kube.kinds import Kind

Costs = dict[str, Steps]

ABOUT_ALL = {
    "daemonset-controller: new daemonsets": "a look at a DaemonSet is a look at every node",
    "daemonset-controller: changed daemonsets": "a look at a DaemonSet is a look at every node",
    "resourcepoolstatusrequest-controller: new resourcepoolstatusrequests": "the answer counts every pool of a driver",
    "resourcepoolstatusrequest-controller: changed resourcepoolstatusrequests": "the answer counts every pool",
}
"""Events that are about all objects of another kind, each with its reason."""

FOLLOWERS = [
    ("job-controller", JOBS),
    ("replicaset-controller", REPLICA_SETS),
    ("replicationcontroller-controller", REPLICATION_CONTROLLERS),
    ("statefulset-controller", STATEFUL_SETS),
    ("daemonset-controller", DAEMON_SETS),
    ("stale-gang-controller", None),
    ("endpoints-controller", None),
    ("endpointslice-controller", None),
    ("disruption-controller", None),
    ("resourcequota-controller", None),
    ("resourceclaim-controller", None),
    ("podgroup-protection-controller", None),
    ("taint-eviction-controller", None),
    ("device-taint-eviction-controller", None),
]
"""Controllers one of whose objects may be about any number of pods, and the kind that owns those pods."""
MANY = [pytest.param((20, 80), id="short"), pytest.param((20, 200, 2000), id="long", marks=pytest.mark.nightly)]


@pytest.fixture(autouse=True)
def _collected_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds that the garbage collector and quotas find served."""

    async def served(_: ApiClient) -> list[Kind]:
        verbs = ("list", "watch", "delete")
        return [replace(kind, verbs=verbs) for kind in (PODS, JOBS, REPLICA_SETS, CLAIMS, NODES)]

    for read in ("garbage_collector.served_resources", "resource_quota.served_resources", "namespace.served_kinds"):
        monkeypatch.setattr(f"haru.controllers.{read}", served)


async def costs_of(name: str, size: int) -> Costs:
    """What each event takes beside `size` objects of each kind."""
    growing = GrowingController(name, size, virtual_time.clock())
    if name == "garbage-collector-controller":
        for kind in (PODS, JOBS, REPLICA_SETS, CLAIMS, NODES):
            growing.informers.metadata(kind)._synced.set()
        await growing.controller._watch_kinds()  # type: ignore[attr-defined]
    growing.fill()
    found: Costs = {}
    for what, event in events_of(growing):
        if what in ABOUT_ALL and size > 1:
            continue
        with Steps() as counted:
            await event()
        found[what] = counted
        await settle()
        growing.forget()
    await growing.controller.events.close()
    return found


@pytest.mark.parametrize("name", CONTROLLERS)
@pytest.mark.parametrize("sizes", SIZES)
def test_event_costs_a_controller_as_much_beside_many_objects_as_beside_few(name: str, sizes: tuple[int, ...]) -> None:
    by_size = {size: virtual_time.run(costs_of(name, size)) for size in sizes}
    assert by_size[sizes[0]]
    assert_all_flat(by_size)


def test_events_that_are_about_all_objects_are_events_of_controllers() -> None:
    names = {what for name in CONTROLLERS for what in virtual_time.run(costs_of(name, 1))}
    assert ABOUT_ALL.keys() <= names
    assert MAKERS.keys() <= {what.rpartition(" ")[2] for what in names}


async def steady_cost(name: str, owner: Kind | None, size: int) -> Steps:
    """What it takes per pod that so many pods of one owner run, 200 of them a second."""
    steady = Steady(name, size, virtual_time.clock())
    steady.fill(owner)
    with Steps() as counted:
        await steady.play()
    await steady.growing.controller.events.close()
    counted.count //= size
    return counted


@pytest.mark.parametrize(("name", "owner"), FOLLOWERS)
@pytest.mark.parametrize("sizes", MANY)
def test_pod_costs_as_much_among_many_of_one_owner_as_among_few(
    name: str, owner: Kind | None, sizes: tuple[int, ...]
) -> None:
    costs: dict[int, Any] = {size: virtual_time.run(steady_cost(name, owner, size)) for size in sizes}
    assert costs[sizes[0]].count > 0
    assert_flat(costs, f"{name}: a pod that runs")


async def foreground_cost(size: int) -> Steps:
    """What it takes that a dependent goes whose owner waits for so many."""
    growing = GrowingController("garbage-collector-controller", size, virtual_time.clock())
    jobs, pods = growing.informers.metadata(JOBS), growing.informers.metadata(PODS)
    for informer in (jobs, pods, *map(growing.informers.metadata, (REPLICA_SETS, CLAIMS, NODES))):
        informer._synced.set()
    await growing.controller._watch_kinds()  # type: ignore[attr-defined]
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
    reference = {**owned(JOBS, "all"), "blockOwnerDeletion": True}
    for n in range(size):
        dependent = pod(PODS, n, reference, "all")
        pods._apply({**dependent, "metadata": {**dependent["metadata"], **going, "finalizers": ["other"]}})
    await growing.hear(jobs, "ADDED", named(JOBS, "all", metadata=going))
    growing.forget()
    with Steps() as counted:
        for known in list(pods.store.values())[: size // 2]:
            await growing.hear(pods, "DELETED", known)
    counted.count //= size // 2
    return counted


async def ready_cost(size: int) -> Steps:
    """What it takes that a node is ready again beside so many that are not."""
    growing = GrowingController("node-lifecycle-controller", size, virtual_time.clock())
    nodes = growing.informers.get(NODES)
    for informer in growing.watched:
        informer._synced.set()
    away = {"conditions": [{"type": "Ready", "status": "False"}]}
    for n in range(size):
        await growing.hear(nodes, "ADDED", {**make(NODES, n), "status": away})
    await growing.hear(nodes, "ADDED", make(NODES, "first"))
    growing.forget()
    with Steps() as counted:
        await growing.hear(nodes, "ADDED", make(NODES, "ready"))
    await growing.controller.events.close()
    return counted


async def group_status_cost(size: int) -> Steps:
    """What it takes that the status of a gang of so many is written."""
    steady = Steady("resourceclaim-controller", size, virtual_time.clock())
    steady.fill(None)
    groups = steady.growing.informers.get(POD_GROUPS)
    group = next(iter(groups.store.values()))
    status = {"conditions": [{"type": "PodGroupScheduled", "status": "True"}]}
    written = {**group, "metadata": {**group["metadata"], "resourceVersion": "1000000"}, "status": status}
    with Steps() as counted:
        await steady.growing.hear(groups, "MODIFIED", written)
    return counted


async def autoscaler_cost(size: int) -> Steps:
    """What it takes to look at an autoscaler beside so many others and their pods."""
    growing = GrowingController("horizontal-pod-autoscaler-controller", size, virtual_time.clock())
    growing.fill()
    with Steps() as counted:
        await growing.controller.sync("namespace-0/horizontalpodautoscaler-0")
    assert growing.client.writes == [("update", "horizontalpodautoscalers")]
    await growing.controller.events.close()
    return counted


@pytest.mark.parametrize("cost", [foreground_cost, ready_cost, group_status_cost, autoscaler_cost])
@pytest.mark.parametrize("sizes", SIZES)
def test_event_costs_as_much_beside_many_that_wait_for_the_same(
    cost: Callable[[int], Coroutine[Any, Any, Steps]], sizes: tuple[int, ...]
) -> None:
    costs = {size: virtual_time.run(cost(size)) for size in sizes}
    assert_flat(costs, cost.__doc__ or "")
