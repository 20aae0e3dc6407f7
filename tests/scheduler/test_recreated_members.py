"""Gangs whose members or nodes go, or are made anew, while they are being bound."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from scheduler_bench import state_of

from haru.engine import SchedulerCache
from haru.engine.state import GroupKey, MemberDecision, PodKey
from haru.scheduler.binding.binding_cycle import BindingCycle, BindingTask
from haru.scheduler.binding.write_slots import WriteSlots

Obj = dict[str, Any]
GROUP = GroupKey("ns", "gang")


class SlowBinder:
    """A binder: to reserve for `slow` members ends when it is told to, and fails for `failing` ones."""

    def __init__(self) -> None:
        self.slots = WriteSlots(1)
        self.may_end = asyncio.Event()
        self.slow: set[str] = set()
        self.failing: set[str] = set()
        self.bound: list[str] = []
        self.unnominated: list[str] = []
        self.unreserver = self.conditions = self

    def waited_for(self, *_: Any) -> list[str]:
        return []

    async def reserve(self, members: tuple[MemberDecision, ...], **_: Any) -> dict[PodKey, Exception]:
        if any(m.pod.uid in self.slow for m in members):
            await self.may_end.wait()
        if not any(m.pod.uid in self.failing for m in members):
            return {}
        return {m.pod: RuntimeError("refused") for m in members}

    async def bind(self, member: MemberDecision, **_: Any) -> None:
        self.bound.append(member.pod.uid)

    async def release(self, _: Any, __: Any, nominated: Sequence[MemberDecision]) -> None:
        self.unnominated += [m.pod.uid for m in nominated]


class Listener:
    """Hears what became of errands."""

    def __init__(self) -> None:
        self.returned: list[str] = []

    def member_bound(self, binding_task: BindingTask, member: MemberDecision) -> None:
        return None

    def devices_awaited(self, member: MemberDecision) -> None:
        return None

    def members_returned(self, binding_task: BindingTask, failures: Mapping[PodKey, Exception]) -> None:
        self.returned += sorted(pod.uid for pod in failures)


NODE: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {}}


def pod(name: str, uid: str, nominated: str = "", node: str = "", **more: Any) -> Obj:
    metadata = {"name": name, "namespace": "ns", "uid": uid, **more}
    spec = {"schedulingGroup": {"podGroupName": "gang"}, "containers": [{"name": "c"}], "nodeName": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"nominatedNodeName": nominated},
    }


def binding_task(*pods: tuple[str, str]) -> BindingTask:
    members = tuple(MemberDecision(PodKey("ns", name, uid), "scheduled", "node-1") for name, uid in pods)
    return BindingTask(GROUP, 2, members)


class Gang:
    """A gang of two in a cluster with a node, and what binds it."""

    def __init__(self, *pods: Obj) -> None:
        self.cluster, self.binder, self.listener = SchedulerCache(), SlowBinder(), Listener()
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "spec": policy}
        for obj in ({**group, "metadata": {"name": "gang", "namespace": "ns", "uid": "g"}}, NODE, *pods):
            self.cluster.apply(obj)
        state = state_of(self.cluster)
        self.carrier = BindingCycle(state, self.binder, self.listener, lambda _: None)  # type: ignore[arg-type]

    def bind(self, *pods: tuple[str, str]) -> asyncio.Task[None]:
        """Begin to bind these members, by names and UIDs."""
        task = binding_task(*pods)
        self.carrier.assume(task)
        return asyncio.create_task(self.carrier.carry_out(task))


async def test_member_with_name_of_failed_one_does_not_count_twice() -> None:
    gang = Gang(pod("a", "a"), pod("b", "old"))
    gang.binder.failing = gang.binder.slow = {"old"}
    first = gang.bind(("a", "a"), ("b", "old"))
    await asyncio.sleep(0)
    gang.cluster.remove(pod("b", "old"))
    gang.cluster.apply(pod("b", "new"))
    second = gang.bind(("b", "new"))
    await asyncio.sleep(0)
    gang.binder.may_end.set()
    await asyncio.gather(first, second)
    assert gang.listener.returned == ["a", "old", "new"]
    assert gang.binder.bound == []


@pytest.mark.parametrize("what", ["gone", "made anew", "being deleted", "without its node"])
async def test_nobody_is_bound_once_a_member_that_was_reserved_cannot_be(what: str) -> None:
    gang = Gang(pod("a", "a"), pod("b", "b"))
    gang.binder.slow = {"b"}
    binding = gang.bind(("a", "a"), ("b", "b"))
    await asyncio.sleep(0)
    if what == "without its node":
        gang.cluster.remove(NODE)
    elif what == "gone":
        gang.cluster.remove(pod("b", "b"))
    else:
        anew = what == "made anew"
        gang.cluster.apply(pod("b", "new") if anew else pod("b", "b", deletionTimestamp="2026-01-01T00:00:00Z"))
    gang.binder.may_end.set()
    await binding
    assert gang.binder.bound == []
    assert gang.listener.returned == ["a", "b"]


async def test_member_that_failed_and_was_bound_by_somebody_else_counts() -> None:
    gang = Gang(pod("a", "a"), pod("b", "b"))
    gang.binder.failing = {"a"}
    await gang.bind(("a", "a"), ("b", "b"))
    assert gang.listener.returned == ["a", "b"]
    gang.cluster.apply(pod("a", "a", node="node-1"))
    await gang.bind(("b", "b"))
    assert gang.binder.bound == ["b"]


@pytest.mark.parametrize("there", [True, False])
async def test_member_of_half_a_gang_keeps_its_nomination_as_long_as_its_node_is_there(there: bool) -> None:
    gang = Gang(pod("a", "a", node="node-1"), pod("b", "b", nominated="node-1"))
    gang.binder.failing = gang.binder.slow = {"b"}
    binding = gang.bind(("b", "b"))
    await asyncio.sleep(0)
    if not there:
        gang.cluster.remove(NODE)
    gang.binder.may_end.set()
    await binding
    assert gang.binder.unnominated == ([] if there else ["b"])


@pytest.mark.parametrize("what", ["deallocated", "not reserved", "being deallocated"])
async def test_nobody_is_bound_once_a_claim_that_was_reserved_is_lost(what: str) -> None:
    users = [{"resource": "pods", "name": "b", "uid": "b"}]
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    held: Obj = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "c"},
        "spec": {"devices": {}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": users},
    }
    user = pod("b", "b")
    user["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    gang = Gang(pod("a", "a"), user, held)
    gang.binder.slow = {"b"}
    binding = gang.bind(("a", "a"), ("b", "b"))
    await asyncio.sleep(0)
    if what == "being deallocated":
        gang.cluster.assume_claim(dict(held))
    else:
        gang.cluster.apply({**held, "status": {**held["status"], "reservedFor": []} if what == "not reserved" else {}})
    gang.binder.may_end.set()
    await binding
    assert gang.binder.bound == []
    assert gang.listener.returned == ["a", "b"]
