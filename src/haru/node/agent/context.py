"""What the workers of all pods share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.node.agent.machine import Machine
from haru.node.agent.object_cache import Objects
from haru.node.agent.options import NodeOptions
from haru.node.cgroups.amounts import Amounts, container_amounts
from haru.node.cgroups.host import Hierarchies
from haru.node.cgroups.memory_qos import MemoryQos
from haru.node.cgroups.qos_groups import QosGroups
from haru.node.cgroups.tree import Tree
from haru.node.cri.client import RuntimeClient
from haru.node.dra.devices import Devices
from haru.node.podworker.userns import UNSUPPORTED, IdRange, Ranges, UserNamespaceError, wants_namespace
from haru.node.probes.probe_exec import Asker
from haru.node.volumes.places import Places

Obj = dict[str, Any]


@dataclass(slots=True)
class Context:
    """One node, as its pods' workers see it."""

    client: ApiClient
    runtime: RuntimeClient
    options: NodeOptions
    machine: Machine
    addresses: Sequence[str]
    recorder: EventRecorder
    places: Places
    objects: Objects
    asker: Asker
    devices: Devices
    hierarchies: Hierarchies
    tree: Tree | None
    """None: pods have no control group of the agent's making."""
    memory_qos: MemoryQos
    qos_groups: QosGroups
    ranges: Ranges
    """The users of pods that have their own."""
    runtime_has_users: bool = False
    """Whether the runtime can give a pod users of its own."""
    runtime_name: str = "containerd"
    runtime_version: str = ""
    allocatable: Mapping[str, str] = field(default_factory=dict)
    allocatable_memory: int = 0

    def users(self, pod: Obj) -> IdRange | None:
        """The users of a pod that wants its own, None for one that has the host's. Raises `UserNamespaceError`."""
        if not wants_namespace(pod):
            return None
        if not self.runtime_has_users:
            raise UserNamespaceError(UNSUPPORTED)
        return self.ranges.get_or_create(pod["metadata"]["uid"])

    def amounts(self, pod: Obj, container: Mapping[str, Any]) -> Amounts:
        """What a container may use."""
        return container_amounts(
            pod,
            container,
            capacity=self.machine.memory,
            allocatable=self.allocatable_memory,
            memory_qos=self.memory_qos,
            unified=self.hierarchies.mode == "unified",
        )
