"""Count how many equal members a node takes from its free resources and devices, by arithmetic where possible.

Free resources divide by the request. Devices are allocated once per class of nodes and number of free devices of each
device class: members cannot tell devices of one class apart, so it does not matter which of them are free. The
decision cache keeps both.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from operator import floordiv, ge, methodcaller
from weakref import ref

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.allocation import DoesNotFit, allocate
from haru.engine.dra.errors import GaveUp
from haru.engine.dra.model.model import NodeView
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.equivalence.device_classifier import DeviceClasses, DeviceClassifier
from haru.engine.equivalence.node_device_classes import NodeDeviceClass
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.prefilter import counts_devices
from haru.engine.podgroup.filter_node import Decoder
from haru.engine.podgroup.multi_class_packing import MemberClass, least_devices
from haru.engine.podgroup.search_budget import OutOfBudgetError
from haru.engine.preemption.node_occupancy import NodeOccupancy
from haru.engine.state.cache import Snapshot
from haru.engine.state.node_info import InternedId, NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo

_TOPIC = "single-class capacity"
_MANY = 1 << 30
_PODS = "pods"
_MAX_KINDS = 4096

NodeKind = tuple[InternedId, NodeDeviceClass]
"""What is equal for nodes that no filter tells apart but by their pods, with as many devices taken."""


@dataclass(slots=True)
class _Served:
    """Hold how many members were served at least; `is_maximum` is set when no more are."""

    count: int = 0
    is_maximum: bool = False


class _ClassResults:
    """Cache the results for one class of members, whichever pods they are."""

    def __init__(self) -> None:
        self.classes: object = None
        self.forget(None)

    def forget(self, classes: object) -> None:
        """Drop all results; the device classes changed."""
        self.classes = classes
        self.feasible_nodes: dict[str, tuple[object, bool]] = {}
        self.feasible_kinds: dict[InternedId, bool] = {}
        self.served: dict[Hashable, _Served] = {}
        self.served_kinds: dict[int, bool] = {}
        """By kind of which all devices are the same: whether enough free ones serve a member."""
        self.kept: dict[int, DecisionCache] = {}


class SingleClassCapacity:
    """Count the members of one class on the nodes of one snapshot."""

    def __init__(self, base: Snapshot, options: Options, chosen: MemberClass) -> None:
        self._base = base
        self._options = options
        self._plan = chosen.plan
        self._members = chosen.members
        pod, demand = chosen.members[0][1], chosen.demand
        profile = options.profile
        fits = "NodeResourcesFit" in profile.filters
        self.requests = [(n, a) for n, a in sorted(pod.requests.items()) if fits and not profile.ignores(n)]
        # A pod slot stands last, as in `free_of`.
        self._amounts = (*[amount for _, amount in self.requests], 1)
        self._amounts_of = [methodcaller("get", name, 0) for name, _ in self.requests]
        self._counts_pods = fits
        self._decoder = Decoder(Overlay(base), options)
        self._claims = self._decoder.claims(demand.pending)
        self.least = least_devices(self._claims)
        """How many devices each member needs at least."""
        self._takes_any_devices = self.least > 0 and all(claim.takes_any_devices for claim in self._claims)
        """Whether nothing but their number counts where all devices are the same."""
        self.most = self._most_on_a_node(len(chosen.members))
        """How many members no node exceeds."""
        self._classifier = DeviceClassifier.of(base, self._claims, lists=options.features.ListTypeAttributes)
        declared, steps = options.gates.declared_features, options.budgets.step_budget
        key = (pod.shape, demand.asked, options.profile, options.features, steps, declared)
        self._results = base.decision_cache.get_or_compute(_TOPIC, key, _ClassResults)
        if self._results.classes is not base.devices.classes:
            self._results.forget(base.devices.classes)
        self.kept = self._results.kept.setdefault(self.most, DecisionCache())
        """What is counted for members of this class, of which a node may take so many, kept for later decisions."""
        self.full_kinds: dict[NodeKind, bool | None] = self.kept.get_or_compute("full kinds", None, dict)
        """By kind, of which no node takes a member: whether all its nodes do when empty; None where each tells it."""
        # By name, for a state of the node that may be over: it is not to be kept, with its pods.
        self._counts_by_node: dict[str, tuple[ref[NodeOccupancy], int]]
        self._counts_by_node = self.kept.get_or_compute("counts", None, dict)

    def _most_on_a_node(self, members: int) -> int:
        """Return a number of members that no node exceeds, the same for most gangs of a class.

        No node has more than so many devices; so gangs of other sizes count the same.
        """
        most = self._base.most_devices
        return members if most is None or not self.least else min(members, most // self.least)

    def free_of(self, info: NodeInfo) -> list[int]:
        """Return the free amount of each requested resource, and last the free pod slots."""
        allocatable, requested = info.spec.allocatable, info.requested
        free = [allocatable.get(name, 0) - requested.get(name, 0) for name, _ in self.requests]
        room = allocatable.get(_PODS) if self._counts_pods else None
        free.append(_MANY if room is None else room - len(info.pods))
        return free

    def add(self, free: list[int], pods: Collection[PodInfo]) -> None:
        """Add the amounts that removed pods free."""
        usages = [pod.usage for pod in pods]
        for index, amount_of in enumerate(self._amounts_of):
            free[index] += sum(map(amount_of, usages))
        free[-1] += len(usages)

    def subtract(self, free: list[int], pods: Collection[PodInfo]) -> None:
        """Subtract the amounts that pods take."""
        usages = [pod.usage for pod in pods]
        for index, amount_of in enumerate(self._amounts_of):
            free[index] -= sum(map(amount_of, usages))
        free[-1] -= len(usages)

    def is_plain(self, occupancy: NodeOccupancy) -> bool:
        """Tell whether arithmetic counts the members of the node; else it has to be filtered."""
        return occupancy.plain and self._is_classified(occupancy)

    def _is_classified(self, occupancy: NodeOccupancy) -> bool:
        return not self._claims or self._classifier.device_classes(occupancy) is not None

    def lacks_devices(self, occupancy: NodeOccupancy, taken: int) -> bool:
        """Tell whether fewer devices are free than each member needs, of any kind."""
        return (occupancy.devices & ~taken).bit_count() < self.least and not occupancy.shared

    def is_feasible(self, info: NodeInfo) -> bool:
        """Tell whether the node passes the filters when no pod is on it."""
        if self._plan.general:
            # The filters tell nodes of one kind apart by nothing but the pods on them.
            kinds, kind = self._results.feasible_kinds, info.spec.kind
            if kind not in kinds:
                if len(kinds) >= _MAX_KINDS:
                    kinds.clear()
                kinds[kind] = self._passes(info)
            return kinds[kind]
        known = self._results.feasible_nodes.get(info.name)
        if known is None or known[0] is not info.spec:
            known = self._results.feasible_nodes[info.name] = info.spec, self._passes(info)
        return known[1]

    def _passes(self, info: NodeInfo) -> bool:
        return not self._plan.check(info.rebuilt(()))

    def current_count(self, occupancy: NodeOccupancy) -> int | None:
        """Count the members that a node takes now; None if it has to be filtered. Raises as `count` does."""
        name = occupancy.info.name
        known = self._counts_by_node.get(name)
        if known is None or known[0]() is not occupancy:
            if not occupancy.simple:
                return None
            if self.lacks_devices(occupancy, occupancy.taken):
                count = 0
            elif self._is_classified(occupancy):
                count = self.count(occupancy, occupancy.taken, self.free_of(occupancy.info))
            else:
                return None
            known = self._counts_by_node[name] = ref(occupancy), count
        return known[1]

    def count(self, occupancy: NodeOccupancy, taken: int, free: Sequence[int]) -> int:
        """Count the members that a plain node takes with these devices taken and these amounts free.

        Raises AllocationError, and OutOfBudgetError if the device search reached its step budget.
        """
        most: int = min(self.most, *map(floordiv, free, self._amounts))
        if most <= 0:
            return 0
        if not self._claims:
            return most if self.is_feasible(occupancy.info) else 0
        device_classes = self._classifier.device_classes(occupancy)
        assert device_classes is not None
        if self.least and not device_classes.shared:
            most = min(most, (device_classes.wanted & ~taken).bit_count() // self.least)
        if not most or not self.is_feasible(occupancy.info):
            return 0
        masks, free_devices = device_classes.masks, ~taken
        key: Hashable
        if len(masks) == 1:
            key = device_classes.kind, (masks[0] & free_devices).bit_count()
        else:
            key = (device_classes.kind, *[(mask & free_devices).bit_count() for mask in masks])
        served = self._results.served.get(key)
        if served is None:
            served = self._results.served[key] = _Served()
        if most > served.count and not served.is_maximum:
            self._find(served, occupancy, taken, most, device_classes)
        return min(most, served.count)

    def count_when_empty(self, occupancy: NodeOccupancy) -> int:
        """Count the members that a node takes without any pods on it, all devices free. Raises as `count` does."""

        def count() -> int:
            return self.count(occupancy, 0, self.free_of(info.rebuilt(()))) if self._is_classified(occupancy) else 0

        info = occupancy.info
        if not self._plan.general:
            return count()
        key = info.spec.kind, self._classifier.device_classes(occupancy) if self._claims else None
        return self.kept.get_or_compute("empty nodes", key, count, _MAX_KINDS)

    def find_full_kind(self, kind: NodeKind, occupancy: NodeOccupancy) -> None:
        """Note in `full_kinds` what the first node of a kind tells. Raises as `count` does."""
        node_device_class, fits = kind[1], None
        if self._plan.general and node_device_class.free < self.least and self._classifier.is_blind(node_device_class):
            fits = self.count_when_empty(occupancy) > 0
        if len(self.full_kinds) >= _MAX_KINDS:
            self.full_kinds.clear()
        self.full_kinds[kind] = fits

    def fits_without(
        self, kind: NodeKind, info: NodeInfo, freed: int, pods: Callable[[], Collection[PodInfo]]
    ) -> bool | None:
        """Tell whether a full node takes a member without some pods, which frees so many devices; None if unknown."""
        spec_kind, node_device_class = kind
        free, results = node_device_class.free, self._results
        if not self._plan.general or free >= self.least:
            return None
        classes = self._classifier.known_classes(node_device_class)
        if classes is None:
            return None  # a selector may fail there
        if free + freed < self.least:
            return False
        if len(classes.masks) != 1 or not results.feasible_kinds.get(spec_kind):
            return None
        served = results.served.get((classes.kind, free + freed))
        if served is None or not served.count:
            return None
        amounts = self.free_of(info)
        if all(map(ge, amounts, self._amounts)):
            return True
        self.add(amounts, pods())
        return all(map(ge, amounts, self._amounts))

    def _find(
        self, served: _Served, occupancy: NodeOccupancy, taken: int, most: int, device_classes: DeviceClasses
    ) -> None:
        kinds, kind = self._results.served_kinds, device_classes.kind
        if self._takes_any_devices and occupancy.node_device_class is not None and len(device_classes.masks) == 1:
            # All devices are the same to all members: if one is served, each is for which enough are left.
            if kind not in kinds:
                kinds[kind] = self._serves(*_devices_of(occupancy, taken), 1)
            enough = (occupancy.devices & ~taken).bit_count() // self.least
            served.count, served.is_maximum = enough if kinds[kind] else 0, True
            return
        node, allocated = _devices_of(occupancy, taken)
        for count in range(most, served.count, -1):
            if self._serves(node, allocated, count):
                served.count, served.is_maximum = count, count < most
                return
        served.is_maximum = True

    def _serves(self, node: NodeView, allocated: AllocatedState, count: int) -> bool:
        """Tell whether the node's devices serve so many members together."""
        options = self._options
        pending = [use for _, _, demand in self._members[:count] for use in demand.pending]
        try:
            answer = allocate(
                self._base.devices,
                allocated,
                node,
                self._decoder.claims(pending),
                options.features,
                new_share_id=options.new_share_id,
                step_budget=options.budgets.step_budget,
                scoring=options.profile.packing,
            )
        except GaveUp as error:
            raise OutOfBudgetError from error
        return not isinstance(answer, DoesNotFit)


def _devices_of(occupancy: NodeOccupancy, taken: int) -> tuple[NodeView, AllocatedState]:
    """Return a node and the state in which these devices of it are taken."""
    names = [(v.key.driver, v.key.pool, device.name) for v in occupancy.views for device in v.devices]
    allocated = AllocatedState.of([name for bit, name in enumerate(names) if taken >> bit & 1])
    return NodeView(occupancy.info.name, occupancy.info.labels), allocated


def single_class_capacity_for(
    base: Snapshot, options: Options, classes: Sequence[MemberClass]
) -> SingleClassCapacity | None:
    """Return the counter for one class of members; None where more than resources and devices decide."""
    if len(classes) != 1:
        return None
    chosen = classes[0]
    first, demand = chosen.members[0][1], chosen.demand
    if first.host_ports or first.disks or first.volume_claims or demand.fixed or demand.extended is not None:
        return None
    if any(pod.usage is not pod.requests for _, pod, _ in chosen.members):
        return None
    return None if counts_devices(base, options) else SingleClassCapacity(base, options, chosen)
