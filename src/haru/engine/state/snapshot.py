"""One moment of a cluster, as every decision sees it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.extended_resources import explicit_classes
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.equivalence.node_device_classes import ClassifiedNode, NodeDeviceClass, NodeDeviceClasses, all_of
from haru.engine.state.cow_map import FrozenMap, values_of
from haru.engine.state.decision import GroupKey, Obj
from haru.engine.state.node_info import ABSENT, NodeInfo
from haru.engine.state.nominations import Nomination
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.podgroup_state import PodGroupState
from haru.engine.state.workload_owners import OwnedPods, Workload


class NodeEquivalenceClass(NamedTuple):
    """Nodes that are alike but for names, labels and what images they have (if any), in the order of their names.

    They are the same to every rule that looks neither at these nor at who the pods on them are. Their devices are
    alike, too, unless `node_device_class` is None: then nothing is known of them.
    """

    first: NodeInfo
    node_device_class: NodeDeviceClass | None
    names: list[str]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One moment of the cluster. Nothing in it changes, and nobody may change the objects in it.

    `special` has the paths of the claims made for a pod's extended resources, by the pod's UID. `nominated` are pending
    pods whose status names a node, `nominations` the places that decisions promised, by pod; `leaving` are pods on
    nodes that are being deleted. `used_claims` has the paths of allocated claims by consumer (`consumer_key`), and
    `orphaned` those claims whose consumers are all gone: they will be free in a moment. `evicted_groups` are the paths
    of groups that lost members by eviction: what they reserved is free once no member of theirs uses it.
    `reservation` keeps places for the head of the queue.
    `after` is the cluster as it will be once room is made, for those who must fit in both (`groups.promises`); it may
    have one of its own. `node_device_classes` says which nodes have devices that are alike, `owned` whose work
    claims are used for.
    `decision_cache` keeps results for later decisions.
    """

    version: int
    nodes: Mapping[str, NodeInfo]
    node_names: tuple[str, ...]
    pods: Mapping[str, PodInfo]
    claims: Mapping[str, Obj]
    in_flight: Mapping[str, Obj]
    pod_groups: Mapping[str, Obj]
    groups: Mapping[str, PodGroupState]
    others: Mapping[str, Mapping[str, Obj]]
    devices: DeviceSnapshot
    allocated: AllocatedState
    anti_affine: Mapping[str, PodInfo]
    nominated: Mapping[str, PodInfo]
    special: Mapping[str, frozenset[str]]
    nominations: Mapping[str, Nomination]
    leaving: Mapping[str, PodInfo]
    used_claims: Mapping[str, frozenset[str]]
    orphaned: Mapping[str, Obj]
    evicted_groups: Mapping[str, bool]
    reservation: BackfillReservation | None = None
    after: Snapshot | None = None
    node_device_classes: NodeDeviceClasses | None = field(default=None, repr=False)
    owned: OwnedPods | None = field(default=None, repr=False)
    decision_cache: DecisionCache = field(default_factory=DecisionCache, repr=False)

    @property
    def moments(self) -> tuple[Snapshot, ...]:
        """The cluster as it is, and as it will be: the earliest first."""
        return (self,) if self.after is None else (self, *self.after.moments)

    @cached_property
    def extended_resources(self) -> Mapping[str, str]:
        """The DeviceClass behind each extended resource that a class names (KEP-5004)."""
        return explicit_classes(self.objects("DeviceClass"))

    @property
    def owners(self) -> FrozenMap[tuple[Workload, ...] | None] | None:
        """Whose work allocated claims are used for, by path; None where that has to be found out claim by claim."""
        return self.owned.of(self.claims, self.pods) if self.owned is not None else None

    @cached_property
    def dressed(self) -> FrozenMap[ClassifiedNode | None] | None:
        """The classes of the nodes (`classified_nodes_of`); None where nothing is known of devices taken like that."""
        return (
            self.node_device_classes.of(self.devices, self.allocated) if self.node_device_classes is not None else None
        )

    @cached_property
    def all_dressed(self) -> Mapping[str, ClassifiedNode | None] | None:
        """The same for all nodes of `node_names`, for whoever looks at all of them."""
        known = self.dressed
        return None if known is None else dict(zip(self.node_names, all_of(known, self.node_names), strict=True))

    @cached_property
    def all_nodes(self) -> tuple[tuple[str, NodeInfo | None], ...]:
        """The nodes of `node_names` with their names: whoever looks at all of them need not look up each."""
        return tuple(zip(self.node_names, values_of(self.nodes, self.node_names), strict=True))

    @cached_property
    def present_nodes(self) -> tuple[tuple[str, NodeInfo | None], ...]:
        """The same, with None for nodes that do not exist."""
        nodes = self.all_nodes
        if all(info is not None and info.present for _, info in nodes):
            return nodes
        return tuple([(name, info if info is not None and info.present else None) for name, info in nodes])

    @cached_property
    def lots(self) -> Sequence[NodeEquivalenceClass]:
        """The nodes that exist in lots, in the order of their first nodes."""
        found: dict[Hashable, NodeEquivalenceClass] = {}
        known = self.all_dressed
        all_dressed = known.values() if known is not None else (None,) * len(self.node_names)
        for (name, info), dressed in zip(self.all_nodes, all_dressed, strict=True):
            spec = info.spec if info is not None else ABSENT
            if info is not None and spec is not ABSENT:
                node_device_class = dressed.node_device_class if dressed is not None else None
                key = (spec.kind, info.load, info.affine, not spec.images, node_device_class)
                lot = found.get(key)
                if lot is None:
                    found[key] = NodeEquivalenceClass(info, node_device_class, [name])
                else:
                    lot.names.append(name)
        return tuple(found.values())

    def objects(self, kind: str) -> Mapping[str, Obj]:
        """Objects of a kind that the engine keeps as they are, by path: Job, PersistentVolume, DeviceClass, …"""
        return self.others.get(kind) or {}

    def group_state(self, key: GroupKey) -> PodGroupState:
        """Which pods name a group, and how far they are."""
        return self.groups.get(key.path) or PodGroupState()

    def pod_group(self, key: GroupKey) -> Obj | None:
        """The PodGroup object, if it exists."""
        return self.pod_groups.get(key.path)
