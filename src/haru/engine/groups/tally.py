"""How many members of one class a node takes, from what is free on it: by arithmetic, as far as that goes.

Members that are alike are limited by room, which divides, and by devices, which are asked about once per kind of node
and number of free devices of each sort: devices of one sort are the same to the members, so which of them are free
makes no difference to how many members can be served. Both are kept in the cluster's notes.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from haru.engine.cluster import Snapshot
from haru.engine.devices import AllocatedState, Claim, DoesNotFit, GaveUp, NodeView, allocate
from haru.engine.devices.placement import matches_node
from haru.engine.devices.pools import PoolView
from haru.engine.devices.selection import Selection, SelectionError
from haru.engine.groups.board import Decoder
from haru.engine.groups.budget import OutOfBudgetError
from haru.engine.groups.demand import counts_devices
from haru.engine.groups.options import Options
from haru.engine.groups.packing import MemberClass, least_devices
from haru.engine.groups.stands import Stand
from haru.engine.nodeinfo import NodeInfo
from haru.engine.overlay import Overlay

_TOPIC = "tallies"
_MANY = 1 << 30
_PODS = "pods"


class Sorts(NamedTuple):
    """The devices of a node by sort: `masks` have a bit for each device.

    `kind` is equal for nodes with as many of each, `wanted` are those that members may have; `shared` says that some
    can be had more than once.
    """

    kind: int
    masks: tuple[int, ...]
    wanted: int
    shared: bool


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
        self.sorts: dict[str, tuple[tuple[PoolView, ...], object, Sorts | None]] = {}
        self.kinds: dict[Hashable, int] = {}
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
        self._least = least_devices(self._claims)
        self._selections = list(dict.fromkeys(_selections(self._claims)))
        self._compared = list(dict.fromkeys(c.attribute for claim in self._claims for c in claim.constraints))
        key = (pod.shape, demand.asked, options.profile, options.features, options.step_budget)
        self._kept = base.notes.entry(_TOPIC, (key, options.declared_features), _Kept)
        if self._kept.classes is not base.devices.classes:
            self._kept.forget(base.devices.classes)
        self.standing = self._kept.standing.setdefault(self._limit, {})

    def free_of(self, info: NodeInfo) -> list[int]:
        """What is free of each resource that members ask for, and last the places for pods."""
        room = info.allocatable.get(_PODS) if self._counts_pods else None
        places = _MANY if room is None else room - len(info.pods)
        free = [info.allocatable.get(name, 0) - info.requested.get(name, 0) for name, _ in self.requests]
        return [*free, places]

    def is_open(self, info: NodeInfo) -> bool:
        """Whether the node takes members if nothing else is on it."""
        known = self._kept.open.get(info.name)
        if known is None or known[0] is not info.spec:
            known = self._kept.open[info.name] = info.spec, not self._plan.check(info.rebuilt(()))
        return known[1]

    def sorts(self, stand: Stand) -> Sorts | None:
        """The node's devices by sort; None if a selector cannot be evaluated on one of them."""
        known = self._kept.sorts.get(stand.info.name)
        if known is None or known[0] != stand.views or known[1] is not stand.info.labels:
            known = self._kept.sorts[stand.info.name] = stand.views, stand.info.labels, self._sorted(stand)
        return known[2]

    def now(self, stand: Stand) -> int:
        """How many members a plain node takes as it is. Raises AllocationError, OutOfBudgetError."""
        name = stand.info.name
        known = self.standing.get(name)
        if known is None or known[0] is not stand:
            known = self.standing[name] = stand, self.count(stand, stand.taken, self.free_of(stand.info))
        return known[1]

    def count(self, stand: Stand, taken: int, free: Sequence[int]) -> int:
        """How many members a plain node takes with this taken and so much free.

        Raises AllocationError, and OutOfBudgetError if its devices were searched for as long as they may be.
        """
        most = min(self._limit, free[-1])
        for (_, amount), left in zip(self.requests, free, strict=False):
            most = min(most, left // amount)
        if most <= 0:
            return 0
        if not self._claims:
            return most if self.is_open(stand.info) else 0
        sorts = self.sorts(stand)
        assert sorts is not None
        if self._least and not sorts.shared:
            most = min(most, (sorts.wanted & ~taken).bit_count() // self._least)
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

    def _sorted(self, stand: Stand) -> Sorts | None:
        """Devices are of one sort if members, counters and constraints cannot tell them apart."""
        node = NodeView(stand.info.name, stand.info.labels)
        numbers: dict[Hashable, int] = {}
        masks: dict[Hashable, int] = {}
        bit, wanted, shared = 1, 0, False
        lists = self._options.features.ListTypeAttributes
        for place, view in enumerate(stand.views):
            columns = [selection.column(view) for selection in self._selections]
            for index, device in enumerate(view.devices):
                verdicts = tuple([column[index] for column in columns])
                if any(isinstance(verdict, SelectionError) for verdict in verdicts):
                    return None
                shape = device.shape
                compared: tuple[Hashable, ...] = ()
                if any(verdicts):
                    values = [(name, shape.attribute(name)) for name in self._compared]
                    # Of single values only their equality counts; lists may overlap.
                    compared = tuple(values if lists else [numbers.setdefault(v, len(numbers)) for v in values])
                here = device.placement is None or matches_node(device.placement, node)
                charge = view.charges[index] if view.totals else ()
                inner = (shape.shareable, shape.capacity, device.taints, device.binding)
                sort = (place, view.key.driver, verdicts, compared, here, charge, inner, bool(device.consumes))
                masks[sort] = masks.get(sort, 0) | bit
                wanted |= bit if any(verdicts) else 0
                shared |= shape.shareable
                bit <<= 1
        content = tuple([(sort, mask.bit_count()) for sort, mask in masks.items()])
        key = (content, tuple([view.totals for view in stand.views]))
        return Sorts(self._kept.kinds.setdefault(key, len(self._kept.kinds)), tuple(masks.values()), wanted, shared)


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


def _selections(claims: Sequence[Claim]) -> list[Selection]:
    return [ask.selection for claim in claims for request in claim.requests for ask in request.asks]
