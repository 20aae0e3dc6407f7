"""How many members of one class a node takes, from what is free on it: by arithmetic, as far as that goes.

Members that are alike are limited by room, which divides, and by devices, which are asked about once per kind of node
and number of free devices of each sort: devices of one sort are the same to the members, so which of them are free
makes no difference to how many members can be served. Both are kept in the cluster's notes.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from haru.engine.cluster import Snapshot
from haru.engine.devices import AllocatedState, DoesNotFit, GaveUp, NodeView, allocate
from haru.engine.groups.asking import Decoder
from haru.engine.groups.budget import OutOfBudgetError
from haru.engine.groups.demand import counts_devices
from haru.engine.groups.options import Options
from haru.engine.groups.packing import MemberClass, least_devices
from haru.engine.groups.sorts import Sorter
from haru.engine.groups.stands import Stand
from haru.engine.nodeinfo import NodeInfo
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo

_TOPIC = "tallies"
_MANY = 1 << 30
_PODS = "pods"


@dataclass(slots=True)
class _Served:
    """So many members at least are served; `most` if more are not."""

    count: int = 0
    most: bool = False


class _Kept:
    """What is known about one class of members, whoever they are."""

    def __init__(self) -> None:
        self.classes: object = None
        self.forget(None)

    def forget(self, classes: object) -> None:
        """Begin anew, with other device classes."""
        self.classes = classes
        self.open: dict[str, tuple[object, bool]] = {}
        self.served: dict[Hashable, _Served] = {}
        self.standing: dict[int, dict[str, tuple[Stand, int]]] = {}


class Tally:
    """The counts of one class of members, on nodes of one snapshot."""

    def __init__(self, base: Snapshot, options: Options, chosen: MemberClass) -> None:
        self._base = base
        self._options = options
        self._plan = chosen.plan
        self._members = chosen.members
        self._limit = len(chosen.members)
        pod, demand = chosen.members[0][1], chosen.demand
        profile = options.profile
        fits = "NodeResourcesFit" in profile.filters
        self.requests = [(n, a) for n, a in sorted(pod.requests.items()) if fits and not profile.ignores(n)]
        self._counts_pods = fits
        self._decoder = Decoder(Overlay(base), options)
        self._claims = self._decoder.claims(demand.pending)
        self.least = least_devices(self._claims)
        """How many devices any member needs."""
        self._sorter = Sorter.of(base, self._claims, lists=options.features.ListTypeAttributes)
        key = (pod.shape, demand.asked, options.profile, options.features, options.step_budget)
        self._kept = base.notes.entry(_TOPIC, (key, options.declared_features), _Kept)
        if self._kept.classes is not base.devices.classes:
            self._kept.forget(base.devices.classes)
        self.standing = self._kept.standing.setdefault(self._limit, {})

    def free_of(self, info: NodeInfo) -> list[int]:
        """What is free of each resource that members ask for, and last the places for pods."""
        allocatable, requested = info.spec.allocatable, info.requested
        free = [allocatable.get(name, 0) - requested.get(name, 0) for name, _ in self.requests]
        room = allocatable.get(_PODS) if self._counts_pods else None
        free.append(_MANY if room is None else room - len(info.pods))
        return free

    def add(self, free: list[int], pod: PodInfo) -> None:
        """Count what a pod leaves behind as free."""
        usage, index = pod.usage, 0
        for name, _ in self.requests:
            free[index] += usage.get(name, 0)
            index += 1
        free[index] += 1

    def is_plain(self, stand: Stand) -> bool:
        """Whether arithmetic says how many members the node takes; else it has to be looked at itself."""
        return stand.plain and self._is_sorted(stand)

    def _is_sorted(self, stand: Stand) -> bool:
        return not self._claims or self._sorter.sorts(stand) is not None

    def lacks_devices(self, stand: Stand, taken: int) -> bool:
        """Whether fewer devices are free than any member needs, whatever they are."""
        return (stand.devices & ~taken).bit_count() < self.least and not stand.shared

    def is_open(self, info: NodeInfo) -> bool:
        """Whether the node takes members if nothing else is on it."""
        known = self._kept.open.get(info.name)
        if known is None or known[0] is not info.spec:
            known = self._kept.open[info.name] = info.spec, not self._plan.check(info.rebuilt(()))
        return known[1]

    def now(self, stand: Stand) -> int | None:
        """How many members a node takes as it is; None if it has to be looked at itself. Raises as `count` does."""
        name = stand.info.name
        known = self.standing.get(name)
        if known is None or known[0] is not stand:
            if not stand.simple:
                return None
            if self.lacks_devices(stand, stand.taken):
                count = 0
            elif self._is_sorted(stand):
                count = self.count(stand, stand.taken, self.free_of(stand.info))
            else:
                return None
            known = self.standing[name] = stand, count
        return known[1]

    def count(self, stand: Stand, taken: int, free: Sequence[int]) -> int:
        """How many members a plain node takes with this taken and so much free.

        Raises AllocationError, and OutOfBudgetError if its devices were searched for as long as they may be.
        """
        most, index = self._limit, 0
        for _, amount in self.requests:
            if free[index] < amount * most:
                most = free[index] // amount
            index += 1
        if free[index] < most:
            most = free[index]
        if most <= 0:
            return 0
        if not self._claims:
            return most if self.is_open(stand.info) else 0
        sorts = self._sorter.sorts(stand)
        assert sorts is not None
        if self.least and not sorts.shared:
            most = min(most, (sorts.wanted & ~taken).bit_count() // self.least)
        if not most or not self.is_open(stand.info):
            return 0
        key = (sorts.kind, *[(mask & ~taken).bit_count() for mask in sorts.masks])
        served = self._kept.served.get(key)
        if served is None:
            served = self._kept.served[key] = _Served()
        if most > served.count and not served.most:
            self._find(served, stand, taken, most)
        return min(most, served.count)

    def _find(self, served: _Served, stand: Stand, taken: int, most: int) -> None:
        node = NodeView(stand.info.name, stand.info.labels)
        names = [(v.key.driver, v.key.pool, device.name) for v in stand.views for device in v.devices]
        allocated = AllocatedState.of([name for bit, name in enumerate(names) if taken >> bit & 1])
        for count in range(most, served.count, -1):
            if self._serves(node, allocated, count):
                served.count, served.most = count, count < most
                return
        served.most = True

    def _serves(self, node: NodeView, allocated: AllocatedState, count: int) -> bool:
        """Whether the devices of a node serve so many members together."""
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
                step_budget=options.step_budget,
                scoring=options.profile.packing,
            )
        except GaveUp as error:
            raise OutOfBudgetError from error
        return not isinstance(answer, DoesNotFit)


def tally_for(base: Snapshot, options: Options, classes: Sequence[MemberClass]) -> Tally | None:
    """The tally of members that are all alike; None where room and devices are not all that matters on a node."""
    if len(classes) != 1:
        return None
    chosen = classes[0]
    pods = [pod for _, pod, _ in chosen.members]
    if any(pod.host_ports or pod.disks or pod.volume_claims or pod.usage is not pod.requests for pod in pods):
        return None
    if any(demand.fixed or demand.extended is not None for _, _, demand in chosen.members):
        return None
    return None if counts_devices(base, options) else Tally(base, options, chosen)
