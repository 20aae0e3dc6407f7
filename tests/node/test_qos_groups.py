"""The control groups above pods: all of them are bounded, and classes have the cpu that their pods request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import virtual_time
from haru.node.agent.machine import Machine
from haru.node.agent.node_status import amounts_of_pods
from haru.node.agent.options import NodeOptions
from haru.node.cgroups.amounts import Amounts
from haru.node.cgroups.memory_qos import MemoryQos
from haru.node.cgroups.paths import CgroupName
from haru.node.cgroups.qos_groups import QosGroups
from haru.node.cgroups.tree import CgroupError

Obj = dict[str, Any]
GIB = 1 << 30
OFF, ON = MemoryQos(enforces=False, protects=False), MemoryQos(enforces=True, protects=True)
WHOLE = Amounts(4096, 0, 8 * GIB)


def pod(cpu: str | None = None, limit: str | None = None, memory: str | None = None) -> Obj:
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    limits = {"cpu": limit, "memory": "1Gi"} if limit else {}
    resources = {"requests": {**requests, **({"memory": "1Gi"} if limit else {})}, "limits": limits}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "resources": resources}]}}


class Tree:
    """Groups as they were written, by path; a write of the whole can be refused."""

    def __init__(self) -> None:
        self.values: dict[str, Mapping[str, str]] = {}
        self.amounts: dict[str, Amounts] = {}
        self.writes, self.is_full = 0, False

    def apply(self, name: CgroupName, values: Mapping[str, str], amounts: Amounts | None = None) -> None:
        self.writes += 1
        if self.is_full and amounts is WHOLE:
            raise CgroupError("memory.limit_in_bytes: Device or resource busy")
        self.values[name.path("cgroupfs")] = values
        if amounts is not None:
            self.amounts[name.path("cgroupfs")] = amounts

    def remove(self, name: CgroupName) -> None:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given to threads is done at once: time here is the loop's."""

    async def work_now(work: Any, *arguments: Any) -> Any:
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", work_now)


def shares(tree: Tree) -> dict[str, int]:
    return {path: amounts.cpu_shares for path, amounts in tree.amounts.items()}


def test_classes_have_the_cpu_that_their_pods_request() -> None:
    async def work() -> None:
        tree, pods = Tree(), [pod(), pod("500m"), pod("1"), pod("2", "2"), pod(memory="1Gi")]
        groups = QosGroups(tree, OFF, "/root", lambda: pods, WHOLE)
        await groups.update()
        assert shares(tree) == {"/root/kubepods/burstable": 1536, "/root/kubepods/besteffort": 2}
        assert not any(amounts.memory_limit or amounts.cpu_quota for amounts in tree.amounts.values())
        writes = tree.writes
        await groups.update()
        assert tree.writes == writes  # nothing has changed
        del pods[1:3]
        await groups.update()
        assert shares(tree) == {"/root/kubepods/burstable": 2, "/root/kubepods/besteffort": 2}

    virtual_time.run(work())


def test_memory_is_protected_beside_shares() -> None:
    async def work() -> None:
        tree = Tree()
        await QosGroups(tree, ON, "/", lambda: [pod(memory="1Gi")], WHOLE).update()
        assert tree.values["/kubepods"] == {"memory.min": str(GIB)}
        assert tree.values["/kubepods/burstable"] == {"memory.low": str(GIB)}
        assert "/kubepods" not in tree.amounts  # what all pods may have stays

    virtual_time.run(work())


def test_all_pods_together_are_bounded_as_soon_as_they_can_be() -> None:
    async def work() -> None:
        tree, told = Tree(), []
        tree.is_full = True
        groups = QosGroups(tree, OFF, "/", list, WHOLE)
        running = asyncio.create_task(groups.run(lambda *event: told.append(event)))
        await asyncio.sleep(1.0)
        failed = 'Failed to update Node Allocatable Limits "kubepods": memory.limit_in_bytes: Device or resource busy'
        assert told == [("Warning", "FailedNodeAllocatableEnforcement", failed)]
        assert shares(tree) == {"/kubepods/burstable": 2, "/kubepods/besteffort": 2}
        tree.is_full = False
        tree.amounts.clear()  # by somebody else
        await asyncio.sleep(300.0)
        assert told[1:] == [("Normal", "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")]
        assert tree.amounts["/kubepods"] is WHOLE
        assert shares(tree) == {"/kubepods": 4096, "/kubepods/burstable": 2, "/kubepods/besteffort": 2}
        running.cancel()

    virtual_time.run(work())


def test_agent_without_groups_of_its_own_leaves_them_alone() -> None:
    async def work() -> None:
        groups = QosGroups(None, OFF, "/", list, WHOLE)
        await groups.update()
        await groups.run(lambda *event: None)

    virtual_time.run(work())


def test_what_is_reserved_is_no_part_of_what_all_pods_may_have() -> None:
    machine = Machine(cpus=4, memory=8 * GIB, storage=GIB, huge_pages={"2Mi": GIB})
    options = NodeOptions("n", Path("/"), Path("/logs"), reserved={"cpu": "500m", "memory": "1Gi"})
    assert amounts_of_pods(options, machine) == Amounts(3584, 0, 7 * GIB)
