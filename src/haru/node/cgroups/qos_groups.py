"""The control groups above pods: what all pods may have, the weight of each class, and the memory that is protected.

A parent bounds its children, so the groups of all pods and of the classes are brought into line before a pod's own
group is made, and once a minute. Source: Node Allocatable and the classes' shares of cpu, as behaviour of the kubelet;
KEP-2570 for memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from haru.kube.cgroup_values import MIN_SHARES, shares_of
from haru.kube.meta import Obj
from haru.kube.resources import pod_requests
from haru.kube.strategy import qos_class
from haru.node.agent.options import NodeOptions
from haru.node.cgroups.amounts import Amounts
from haru.node.cgroups.host import Hierarchies, lacking
from haru.node.cgroups.memory_qos import MemoryQos, configured, node_values
from haru.node.cgroups.paths import CgroupName, kubepods, qos_cgroup
from haru.node.cgroups.tree import CgroupError, Tree

_log = logging.getLogger(__name__)
SECONDS = 60.0
EventType = Literal["Normal", "Warning"]
Wanted = tuple[Mapping[str, str], Amounts | None]
"""Keys of the unified hierarchy, and amounts."""


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
    """The groups of one node; `pods` are those that are active here, `whole` is what all of them may have together."""

    def __init__(
        self, tree: Tree | None, rule: MemoryQos, root: str, pods: Callable[[], Iterable[Obj]], whole: Amounts
    ) -> None:
        self._tree, self._rule, self._pods, self._whole = tree, rule, pods, whole
        self._root = kubepods(root)
        self._written: dict[CgroupName, Wanted] = {}

    def wanted(self) -> dict[CgroupName, Wanted]:
        """The values that hold now. What pods of a class request they get before classes that request less."""
        pods = list(self._pods())
        memory = node_values(self._rule, pods)
        burstable = [pod_requests(pod).get("cpu") for pod in pods if qos_class(dict(pod["spec"])) == "Burstable"]
        requested = sum(amount.milli() for amount in burstable if amount is not None)
        return {
            self._root: (memory.root, None),
            qos_cgroup(self._root, "Burstable"): (memory.of_burstable, Amounts(shares_of(requested), 0, 0)),
            qos_cgroup(self._root, "BestEffort"): ({}, Amounts(MIN_SHARES, 0, 0)),
        }

    async def update(self) -> None:
        """Write the values that hold now, where they have changed. Raises `CgroupError`."""
        for name, wanted in self.wanted().items():
            if self._tree is not None and any(wanted) and self._written.get(name) != wanted:
                await asyncio.to_thread(self._tree.apply, name, *wanted)
                self._written[name] = wanted

    async def run(self, tell: Callable[[EventType, str, str], None]) -> None:
        """Bound all pods together, and keep the groups until cancelled; `tell` takes events of the node."""
        bounded = False
        while self._tree is not None:
            try:
                if not bounded:
                    bounded = await self._bound(tell)
                self._written.clear()
                await self.update()
            except CgroupError as error:
                _log.warning("%s", error)
            await asyncio.sleep(SECONDS)

    async def _bound(self, tell: Callable[[EventType, str, str], None]) -> bool:
        """Write what all pods may have together; whether it could be: pods may have more memory than that already."""
        assert self._tree is not None
        try:
            await asyncio.to_thread(self._tree.apply, self._root, {}, self._whole)
        except CgroupError as error:
            text = f'Failed to update Node Allocatable Limits "{"/".join(self._root.parts)}": {error}'
            tell("Warning", "FailedNodeAllocatableEnforcement", text)
            _log.warning("%s", error)
            return False
        tell("Normal", "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
        return True
