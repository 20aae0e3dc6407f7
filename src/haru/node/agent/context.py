"""The shared context of all pod workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.client.informer import Informer
from haru.kube.meta import Obj
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.pod_environment.service_environment import service_environment
from haru.kube.pod_resize import Allocations
from haru.kube.quantity import parse_quantity
from haru.node.agent.machine import Machine
from haru.node.agent.object_cache import Objects
from haru.node.agent.options import EvictionOptions, NodeOptions
from haru.node.cgroups.amounts import Amounts, NodeMemory, container_amounts
from haru.node.cgroups.host import Hierarchies
from haru.node.cgroups.memory_qos import MemoryQos
from haru.node.cgroups.paths import Driver
from haru.node.cgroups.qos_groups import QosGroups
from haru.node.cgroups.tree import SystemdTree, Tree
from haru.node.cri.client import RuntimeClient
from haru.node.dra.devices import Devices
from haru.node.eviction.thresholds import for_all_pods
from haru.node.podworker.userns import UNSUPPORTED, IdRange, Ranges, UserNamespaceError, wants_namespace
from haru.node.probes.probe_exec import HandlerRunner
from haru.node.stats.kubelet.collector import HostPaths
from haru.node.volumes.pod_volumes import PodVolumes


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The cgroups of this machine, and those of pods."""

    hierarchies: Hierarchies
    tree: Tree | None
    """None: the agent makes no cgroups for pods."""
    memory_qos: MemoryQos
    qos_groups: QosGroups


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """Name, version and features of the container runtime."""

    name: str = "containerd"
    version: str = ""
    has_users: bool = False
    """Whether it can give a pod users of its own."""
    has_recursive_read_only: bool = False
    """Whether it can mount what is below a volume read-only, too."""


@dataclass(slots=True)
class Context:
    """One node, for the workers of its pods."""

    client: ApiClient
    runtime: RuntimeClient
    options: NodeOptions
    machine: Machine
    addresses: Sequence[str]
    recorder: EventRecorder
    volumes: PodVolumes
    objects: Objects
    handler_runner: HandlerRunner
    devices: Devices
    cgroups: Cgroups
    ranges: Ranges
    """The users of pods that have their own."""
    runtime_info: RuntimeInfo
    allocatable: Mapping[str, str] = field(default_factory=dict)
    services: Informer | None = None
    """Those of all namespaces; None: containers get no variables of them."""
    allocations: Allocations = field(default_factory=Allocations)
    """What the pods of the node were allocated."""
    admission: Callable[[Obj], tuple[str, str] | None] = lambda pod: None
    """Reason and message if the node has no room for a pod beside the others."""

    def host_paths(self) -> HostPaths:
        """Where this machine is measured."""
        options, groups = self.options, self.cgroups
        driver: Driver = "systemd" if isinstance(groups.tree, SystemdTree) else "cgroupfs"
        root = options.cgroups.root
        return HostPaths(groups.hierarchies, options.root, options.logs, cgroup_root=root, driver=driver)

    @property
    def eviction(self) -> EvictionOptions:
        """The thresholds, with that of all pods together where their memory is bounded."""
        options = self.options.eviction
        if self.cgroups.tree is None:
            return options
        return replace(options, thresholds=for_all_pods(options.thresholds))

    def service_variables(self, pod: Obj) -> Sequence[tuple[str, str]]:
        """The variables of Services for a pod's containers. Raises `ConfigError` until Services were read."""
        if self.services is None:
            return ()
        if not self.services.has_synced:
            raise ConfigError("services have not yet been read at least once, cannot construct envvars")
        return service_environment(pod, self.services)

    def users(self, pod: Obj) -> IdRange | None:
        """The users of a pod that wants its own, None for one that has the host's. Raises `UserNamespaceError`."""
        if not wants_namespace(pod):
            return None
        if not self.runtime_info.has_users:
            raise UserNamespaceError(UNSUPPORTED)
        return self.ranges.get_or_create(pod["metadata"]["uid"])

    def amounts(self, pod: Obj, container: Mapping[str, Any]) -> Amounts:
        """What a container may use."""
        node = NodeMemory(
            capacity=self.machine.memory,
            allocatable=parse_quantity(self.allocatable["memory"]).value(),
            memory_qos=self.cgroups.memory_qos,
            unified=self.cgroups.hierarchies.mode == "unified",
        )
        return container_amounts(pod, container, node)
