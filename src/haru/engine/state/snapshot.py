"""One state of a cluster, as every decision sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.extended_resources import explicit_classes
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.equivalence.decision_cache import DecisionCache, cached_property
from haru.engine.equivalence.node_device_classes import Classified, ClassifiedNode, NodeDeviceClasses, all_of
from haru.engine.state.cow_map import FrozenMap, Patched, values_of
from haru.engine.state.decision import GroupKey
from haru.engine.state.node_equivalence_classes import NodeEquivalenceClass, NodeEquivalenceIndexes
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.partition import Partition
from haru.engine.state.pending_reservations import Nomination
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.podgroup_state import PodGroupState
from haru.engine.state.reserved_for import OwnedPods, Workload
from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True, eq=False)
class PodIndex:
    """Pods of a snapshot by what decisions look for, by path.

    `anti_affinity`: pods on nodes with required anti-affinity terms. `nominated`: pending pods whose status names a
    node. `terminating`: pods on nodes that are being deleted. `nominations`: the places that decisions keep for pending
    pods.
    """

    anti_affinity: Mapping[str, PodInfo]
    nominated: Mapping[str, PodInfo]
    terminating: Mapping[str, PodInfo]
    nominations: Mapping[str, Nomination]

    def with_anti_affinity(self, changes: Mapping[str, PodInfo | None]) -> PodIndex:
        """Return the index with other pods with anti-affinity; None removes one."""
        return replace(self, anti_affinity=Patched(self.anti_affinity, changes))

    def without(self, removed: Mapping[str, PodInfo | None]) -> PodIndex:
        """Return the index without these pods, which are on nodes."""
        return replace(
            self, anti_affinity=_less(self.anti_affinity, removed), terminating=_less(self.terminating, removed)
        )


def _less(pods: Mapping[str, PodInfo], removed: Mapping[str, PodInfo | None]) -> Mapping[str, PodInfo]:
    """Return the pods without the removed; none is looked for where there is none: these are read for every pod."""
    return pods if isinstance(pods, FrozenMap) and not pods else Patched(pods, removed)


@dataclass(frozen=True, slots=True, eq=False)
class PodGroupIndex:
    """The members of PodGroups, by the path of the group: their phases, and which groups lost some by eviction.

    What an `evicted` group reserved is free once no member of theirs uses it.
    """

    states: Mapping[str, PodGroupState]
    evicted: Mapping[str, bool]

    def with_states(self, changes: Mapping[str, PodGroupState | None]) -> PodGroupIndex:
        """Return the index with other members; None removes a group."""
        return PodGroupIndex(Patched(self.states, changes), self.evicted)

    def with_evicted(self, changes: Mapping[str, bool | None]) -> PodGroupIndex:
        """Return the index with other groups that lost members."""
        return PodGroupIndex(self.states, Patched(self.evicted, changes))


@dataclass(frozen=True, slots=True, eq=False)
class ClaimIndex:
    """Claims of the cluster by what decisions look for.

    `extended`: paths of the claims made for a pod's extended resources, by the pod's UID. `by_consumer`: paths of
    allocated claims, by consumer (`consumer_key`). `orphaned`: claims whose consumers are all gone, which will be free
    in a moment. `in_flight`: claims whose allocation is being written. `owners`: the workloads that use them.
    """

    extended: Mapping[str, frozenset[str]]
    by_consumer: Mapping[str, frozenset[str]]
    orphaned: Mapping[str, Obj]
    in_flight: Mapping[str, Obj]
    owners: OwnedPods

    def with_in_flight(self, changes: Mapping[str, Obj | None]) -> ClaimIndex:
        """Return the index with other claims whose allocation is being written."""
        return replace(self, in_flight=Patched(self.in_flight, changes))


class ClusterView(Protocol):
    """What a snapshot and the cache itself (`SchedulerCache.now`) tell alike: objects by path and their indexes."""

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """Nodes by name."""

    @property
    def pods(self) -> Mapping[str, PodInfo]:
        """Pods by path."""

    @property
    def claims(self) -> Mapping[str, Obj]:
        """Claims by path."""

    @property
    def claim_index(self) -> ClaimIndex:
        """Claims by what decisions look for."""

    @property
    def pod_index(self) -> PodIndex:
        """Pods by what decisions look for."""

    @property
    def podgroup_index(self) -> PodGroupIndex:
        """Members of PodGroups."""

    @property
    def passes(self) -> Sequence[ClusterView]:
        """The views of all passes, this one first."""

    def group_state(self, key: GroupKey) -> PodGroupState:
        """Return which pods name a group, and their phases."""

    def pod_group(self, key: GroupKey) -> Obj | None:
        """Return the PodGroup object, if it exists."""


@dataclass(frozen=True, slots=True, eq=False)
class LiveView:
    """The cluster as it is whenever it is read: of use only until somebody else may have changed it.

    Of `claim_index` the owners are missing.
    """

    nodes: Mapping[str, NodeInfo]
    pods: Mapping[str, PodInfo]
    claims: Mapping[str, Obj]
    pod_groups: Mapping[str, Obj]
    pod_index: PodIndex
    podgroup_index: PodGroupIndex
    claim_index: ClaimIndex

    @property
    def passes(self) -> tuple[LiveView, ...]:
        """Return this view: nothing is thought away in it."""
        return (self,)

    def group_state(self, key: GroupKey) -> PodGroupState:
        """Return which pods name a group, and their phases."""
        return self.podgroup_index.states.get(key.path) or PodGroupState()

    def pod_group(self, key: GroupKey) -> Obj | None:
        """Return the PodGroup object, if it exists."""
        return self.pod_groups.get(key.path)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One state of the cluster. Nothing in it changes, and nobody may change the objects in it.

    `others` are the objects of PodGroups, device classes and the kinds without an index, by kind. `reservation` keeps
    places for the head of the queue.
    `next_pass` is the cluster after pending evictions, with the nominated pods: a placement must fit in both passes
    (`preemption.nominated_placements`). It may have a next pass of its own. `promised` are the paths of pending
    pods that this snapshot has in places that are kept for them.
    `node_device_classes` says which nodes have equal devices. `decision_cache` keeps results for later decisions.
    """

    version: int
    nodes: Mapping[str, NodeInfo]
    node_names: tuple[str, ...]
    pods: Mapping[str, PodInfo]
    claims: Mapping[str, Obj]
    others: Mapping[str, Mapping[str, Obj]]
    devices: DeviceSnapshot
    allocated: AllocatedState
    pod_index: PodIndex
    podgroup_index: PodGroupIndex
    claim_index: ClaimIndex
    reservation: BackfillReservation | None = None
    next_pass: Snapshot | None = None
    promised: frozenset[str] = frozenset()
    node_device_classes: NodeDeviceClasses | None = field(default=None, repr=False)
    decision_cache: DecisionCache = field(default_factory=DecisionCache, repr=False)

    @property
    def partition(self) -> Partition:
        """Return the part of the cluster in which work is placed."""
        return self.devices.partition

    @property
    def passes(self) -> tuple[Snapshot, ...]:
        """Return the snapshots of all passes, this one first."""
        return (self,) if self.next_pass is None else (self, *self.next_pass.passes)

    @cached_property
    def extended_resources(self) -> Mapping[str, str]:
        """Return the DeviceClass behind each extended resource that a class names (KEP-5004)."""
        classes = self.objects("DeviceClass")
        if self.partition.device_classes:
            classes = {name: obj for name, obj in classes.items() if self.partition.has_class(name)}
        return explicit_classes(classes)

    @property
    def owners(self) -> FrozenMap[tuple[Workload, ...] | None] | None:
        """Return the workloads that use allocated claims, by path; None if this is a hypothetical snapshot."""
        return self.claim_index.owners.of(self.claims, self.pods)

    @property
    def pod_groups(self) -> Mapping[str, Obj]:
        """Return the PodGroup objects by path."""
        return self.others["PodGroup"]

    @cached_property
    def classified_nodes(self) -> Classified | None:
        """Return the device classes of nodes (`classified_nodes_of`); None if devices here are not classified."""
        return (
            self.node_device_classes.of(self.devices, self.allocated) if self.node_device_classes is not None else None
        )

    @property
    def most_devices(self) -> int | None:
        """Return how many devices no node exceeds that it alone sees; None where other nodes may see them, too."""
        devices, known = self.devices, self.node_device_classes
        if known is None or known.devices is not devices or devices.everywhere or devices.troubled:
            return None
        return known.most_devices

    @cached_property
    def all_classified_nodes(self) -> Mapping[str, ClassifiedNode | None] | None:
        """Return the device classes of all nodes of `node_names`."""
        known = self.classified_nodes
        return None if known is None else dict(zip(self.node_names, all_of(known, self.node_names), strict=True))

    @cached_property
    def all_nodes(self) -> tuple[tuple[str, NodeInfo | None], ...]:
        """Return the nodes of `node_names` with their names."""
        return tuple(zip(self.node_names, values_of(self.nodes, self.node_names), strict=True))

    @cached_property
    def present_nodes(self) -> tuple[tuple[str, NodeInfo | None], ...]:
        """Return the nodes of `node_names` with their names; None for nodes that do not exist."""
        nodes = self.all_nodes
        if all(info is not None and info.present for _, info in nodes):
            return nodes
        return tuple([(name, info if info is not None and info.present else None) for name, info in nodes])

    @cached_property
    def node_classes(self) -> Sequence[NodeEquivalenceClass]:
        """Return the classes of equal nodes, in the order of their first nodes."""
        known = self.classified_nodes
        # Snapshots with classified devices and hypothetical ones without take turns: each sort has an index.
        index = self.decision_cache.get_or_compute("node classes", known is None, NodeEquivalenceIndexes)
        return index.of(self.node_names, self.nodes, known)

    def confined_to(self, partition: Partition) -> Snapshot:
        """Return the snapshot as the scheduler of a partition sees it."""
        devices = replace(self.devices, partition=partition)
        return replace(self, devices=devices, node_device_classes=None, decision_cache=DecisionCache())

    def objects(self, kind: str) -> Mapping[str, Obj]:
        """Return the objects of a kind without an index of its own, by path: Job, PersistentVolume, DeviceClass, …"""
        return self.others.get(kind) or {}

    def group_state(self, key: GroupKey) -> PodGroupState:
        """Return which pods name a group, and their phases."""
        return self.podgroup_index.states.get(key.path) or PodGroupState()

    def pod_group(self, key: GroupKey) -> Obj | None:
        """Return the PodGroup object, if it exists."""
        return self.pod_groups.get(key.path)
