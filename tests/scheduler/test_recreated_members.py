"""Gangs whose members are recreated with the same name while they are being bound."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from scheduler_bench import state_of

from haru.engine import SchedulerCache
from haru.engine.state import GroupKey, MemberDecision, PodKey
from haru.scheduler.binding.binding_cycle import BindingCycle, BindingTask
from haru.scheduler.binding.write_slots import WriteSlots

Obj = dict[str, Any]
GROUP = GroupKey("ns", "gang")


class SlowBinder:
    """A binder whose reservations fail when they are told to."""

    def __init__(self) -> None:
        self.slots = WriteSlots(1)
        self.may_fail = asyncio.Event()
        self.failing: set[str] = set()
        self.bound: list[str] = []
        self.unreserver = self

    async def reserve(self, members: tuple[MemberDecision, ...], **_: Any) -> dict[PodKey, Exception]:
        if not any(m.pod.uid in self.failing for m in members):
            return {}
        await self.may_fail.wait()
        return {m.pod: RuntimeError("refused") for m in members}

    async def bind(self, member: MemberDecision, **_: Any) -> None:
        self.bound.append(member.pod.uid)

    async def release(self, *_: Any) -> None:
        return None


class Listener:
    """Hears what became of errands."""

    def __init__(self) -> None:
        self.returned: list[str] = []

    def member_bound(self, binding_task: BindingTask, member: MemberDecision) -> None:
        return None

    def members_returned(self, binding_task: BindingTask, failures: Mapping[PodKey, Exception]) -> None:
        self.returned += sorted(pod.uid for pod in failures)


def pod(name: str, uid: str) -> Obj:
    metadata = {"name": name, "namespace": "ns", "uid": uid}
    spec = {"schedulingGroup": {"podGroupName": "gang"}, "containers": [{"name": "c"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def binding_task(*pods: tuple[str, str]) -> BindingTask:
    members = tuple(MemberDecision(PodKey("ns", name, uid), "scheduled", "node-1") for name, uid in pods)
    return BindingTask(GROUP, 2, members)


async def test_member_with_name_of_failed_one_does_not_count_twice() -> None:
    cluster, binder, listener = SchedulerCache(), SlowBinder(), Listener()
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "spec": policy}
    cluster.apply({**group, "metadata": {"name": "gang", "namespace": "ns", "uid": "g"}})
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {}})
    carrier = BindingCycle(state_of(cluster), binder, listener, lambda _: None)  # type: ignore[arg-type]
    binder.failing = {"old"}
    cluster.apply(pod("a", "a"))
    cluster.apply(pod("b", "old"))
    first = binding_task(("a", "a"), ("b", "old"))
    carrier.assume(first)
    works = [asyncio.create_task(carrier.carry_out(first))]
    await asyncio.sleep(0)
    cluster.remove(pod("b", "old"))
    cluster.apply(pod("b", "new"))
    second = binding_task(("b", "new"))
    carrier.assume(second)
    works.append(asyncio.create_task(carrier.carry_out(second)))
    await asyncio.sleep(0)
    binder.may_fail.set()
    await asyncio.gather(*works)
    assert listener.returned == ["a", "old", "new"]
    assert binder.bound == []
