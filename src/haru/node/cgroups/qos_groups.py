"""The control groups above pods: what they must protect so that what is protected below them is (KEP-2570).

A parent bounds its children, so the groups of all pods and of those that are Burstable are brought into line before a
pod's own group is made, and once a minute.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable

from haru.kube.meta import Obj
from haru.node.agent.options import NodeOptions
from haru.node.cgroups.host import Hierarchies, lacking
from haru.node.cgroups.memory_qos import MemoryQos, configured, node_values
from haru.node.cgroups.paths import kubepods, qos_cgroup
from haru.node.cgroups.tree import CgroupError, Tree

_log = logging.getLogger(__name__)
SECONDS = 60.0


def rule_of(options: NodeOptions, found: Hierarchies) -> MemoryQos:
    """Memory QoS by gate, options and machine; a missing controller is logged.

    Raises ValueError for options that contradict each other.
    """
    gate, problem = options.gates.enabled("MemoryQoS"), lacking(found, "memory")
    if found.mode != "unified" and not problem:
        problem = f"{found.root} is of both versions"
    rule = configured(
        gate=gate,
        unified=not problem,
        factor=options.cgroups.memory_throttling_factor,
        policy=options.cgroups.memory_reservation_policy,
        page=os.sysconf("SC_PAGE_SIZE"),
    )
    if gate and problem:
        remedy = "boot with systemd.unified_cgroup_hierarchy=1 and without cgroup_disable=memory"
        _log.warning("MemoryQoS has no effect: %s; %s", problem, remedy)
    return rule


class QosGroups:
    """The groups of one node; `pods` are those that are active here."""

    def __init__(self, tree: Tree | None, rule: MemoryQos, root: str, pods: Callable[[], Iterable[Obj]]) -> None:
        self._tree, self._rule, self._pods = tree, rule, pods
        self._root = kubepods(root)

    async def update(self) -> None:
        """Write the values that hold now. Raises `CgroupError`."""
        if self._tree is None or not self._rule.enforces:
            return
        values = node_values(self._rule, self._pods())
        await asyncio.to_thread(self._tree.apply, self._root, values.root)
        await asyncio.to_thread(self._tree.apply, qos_cgroup(self._root, "Burstable"), values.of_burstable)

    async def run(self) -> None:
        """Keep them until cancelled."""
        while self._rule.enforces:
            await asyncio.sleep(SECONDS)
            try:
                await self.update()
            except CgroupError as error:
                _log.warning("%s", error)
