"""Nominations that a scheduler finds at its start, and what becomes of those in its memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from engine_objects import resource_slice
from preemption_objects import nominated
from scheduler_bench import NS, PODS, Bench, play, state_of

from haru.engine import SchedulerCache
from haru.engine.state import Nomination, PodKey
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.scheduler.configuration import read_configuration
from haru.scheduler.preemption.preemption_executor import PreemptionExecutor

PRIORITIES = known_kind("scheduling.k8s.io/v1", "PriorityClass")


@pytest.mark.parametrize(("minimum", "node", "kept"), [(2, "n2", "n2"), (2, "gone", ""), (1, "n2", "")])
def test_nomination_that_is_found_stays_for_a_member_that_half_a_gang_lacks_while_its_node_is_there(
    minimum: int, node: str, kept: str
) -> None:
    """The node has no room at the moment."""

    async def scenario(bench: Bench) -> None:
        await bench.kill()
        for name in ("n1", "n2"):
            await bench.node(name)
        await bench.gang("g", minimum)
        await bench.pod("blocks", cpu="4", nodeName="n2")
        await bench.pod("runs", cpu="4", group="g", nodeName="n1")
        await bench.pod("waits", cpu="4", group="g")
        await bench.api.patch(PODS, "waits", {"status": {"nominatedNodeName": node}}, NS, "merge", "status")
        await bench.start_scheduler()
        await asyncio.sleep(5)
        assert await nominated(bench, "waits") == kept

    play(scenario)


@pytest.mark.parametrize(("policy", "kept"), [("Never", "n1"), ("PreemptLowerPriority", "")])
def test_nomination_by_somebody_else_stays_where_preemption_says_nothing_of_it(policy: str, kept: str) -> None:
    """There is no room, and nobody to evict."""

    async def scenario(bench: Bench) -> None:
        await bench.node("n1")
        await bench.create(PRIORITIES, {"metadata": {"name": "own"}, "value": 5, "preemptionPolicy": policy})
        await bench.pod("blocks", cpu="4", nodeName="n1", priorityClassName="own")
        held = [{"name": "example.com/hold"}]
        await bench.pod("waits", cpu="4", priorityClassName="own", schedulingGates=held)
        await bench.api.patch(PODS, "waits", {"status": {"nominatedNodeName": "n1"}}, NS, "merge", "status")
        await bench.api.patch(PODS, "waits", {"spec": {"schedulingGates": None}}, NS, "merge")
        await asyncio.sleep(5)
        assert "Insufficient cpu" in (await bench.condition(PODS, "waits", "PodScheduled"))["message"]
        assert await nominated(bench, "waits") == kept

    play(scenario)


def test_nomination_by_somebody_else_goes_when_an_attempt_ends_with_an_error() -> None:
    """As in 1.36: a pool that lacks a slice has not said what all devices are."""

    async def scenario(bench: Bench) -> None:
        await bench.node("n1")
        await bench.create(PRIORITIES, {"metadata": {"name": "own"}, "value": 5, "preemptionPolicy": "Never"})
        lacks_one = resource_slice("n1", 1)
        lacks_one["spec"]["pool"]["resourceSliceCount"] = 2
        await bench.create(known_kind("resource.k8s.io/v1", "ResourceSlice"), lacks_one)
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
        wanted: Obj = {"metadata": {"name": "all"}, "spec": {"devices": {"requests": [request]}}}
        await bench.create(known_kind("resource.k8s.io/v1", "ResourceClaim"), wanted)
        held, claims = [{"name": "example.com/hold"}], [{"name": "r", "resourceClaimName": "all"}]
        await bench.pod("waits", priorityClassName="own", schedulingGates=held, resourceClaims=claims)
        await bench.api.patch(PODS, "waits", {"status": {"nominatedNodeName": "n1"}}, NS, "merge", "status")
        await bench.api.patch(PODS, "waits", {"spec": {"schedulingGates": None}}, NS, "merge")
        await asyncio.sleep(5)
        assert (await bench.condition(PODS, "waits", "PodScheduled"))["reason"] == "SchedulerError"
        assert await nominated(bench, "waits") == ""

    play(scenario)


@pytest.mark.parametrize(("disabled", "kept"), [([{"name": "DefaultPreemption"}], "n1"), ([], "")])
def test_nomination_by_somebody_else_stays_where_the_profile_has_no_preemption(disabled: list[Obj], kept: str) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1")
        await bench.pod("blocks", cpu="4", nodeName="n1")
        await bench.pod("waits", cpu="4", schedulingGates=[{"name": "example.com/hold"}])
        await bench.api.patch(PODS, "waits", {"status": {"nominatedNodeName": "n1"}}, NS, "merge", "status")
        await bench.api.patch(PODS, "waits", {"spec": {"schedulingGates": None}}, NS, "merge")
        await asyncio.sleep(5)
        assert "Insufficient cpu" in (await bench.condition(PODS, "waits", "PodScheduled"))["message"]
        assert await nominated(bench, "waits") == kept

    plugins = {"postFilter": {"disabled": disabled}}
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    play(scenario, configuration=read_configuration({**document, "profiles": [{"plugins": plugins}]}))


def pod(name: str, uid: str, node: str = "") -> dict[str, Any]:
    spec = {"containers": [{"name": "c"}], "nodeName": node}
    metadata = {"name": name, "namespace": NS, "uid": uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def executor(cluster: SchedulerCache) -> tuple[PreemptionExecutor, list[str]]:
    told: list[str] = []
    status: Any = SimpleNamespace(unnominated=lambda obj: told.append(obj["metadata"]["uid"]))
    evictor: Any = None
    return PreemptionExecutor(state_of(cluster), evictor, status, lambda: None), told


def test_nomination_of_a_pod_that_is_gone_takes_nothing_from_the_next_one_of_its_name() -> None:
    cluster = SchedulerCache.of([pod("p", "new")])
    cluster.nominate([Nomination(PodKey(NS, "p", "new"), "n1", 0)])
    preemption, told = executor(cluster)
    preemption.remove_nomination(PodKey(NS, "p", "old"))
    assert told == [] and list(cluster.snapshot().pod_index.nominations) == ["default/p"]
    preemption.remove_nomination(PodKey(NS, "p", "new"))
    assert told == ["new"] and not cluster.snapshot().pod_index.nominations


def test_renewed_nomination_waits_for_victims_of_the_old_one_that_still_exist() -> None:
    keys = {name: PodKey(NS, name, name) for name in ("p", "there", "gone", "anew", "next")}
    cluster = SchedulerCache.of([pod("p", "p"), pod("there", "there", "n1"), pod("anew", "another", "n1")])
    old = Nomination(keys["p"], "n1", 0, evictions=frozenset([keys["there"], keys["gone"], keys["anew"]]))
    cluster.nominate([old])
    preemption, _ = executor(cluster)
    renewed = preemption._with_pending_evictions(Nomination(keys["p"], "n1", 0, evictions=frozenset([keys["next"]])))
    assert renewed.evictions == {keys["there"], keys["next"]}
