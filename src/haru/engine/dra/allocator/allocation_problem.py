"""The problem as the search sees it: positions, asks with their candidates, counters; everything that depends on the
node but not on what the search tries.

Positions number the devices of the node's sound pools in the order in which they are tried. An ask's candidates are
the positions that are worth trying whatever else is chosen; the errors among them count when the search reaches them.
Source: KEP-4381; the order of checks is kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine.dra.allocated_state import AllocatedState, PoolUse
from haru.engine.dra.allocator.candidates import Candidates, SubrequestPlan, candidates_of
from haru.engine.dra.allocator.constraints import Values, attribute_values
from haru.engine.dra.allocator.consumable_capacity import aligned, fits, share
from haru.engine.dra.allocator.node_devices import NodeDevices
from haru.engine.dra.errors import AllocationError
from haru.engine.dra.model.claims import ALL, Claim, SubRequest
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.dra.placement import matches_node
from haru.engine.dra.pools.pools import PoolView
from haru.engine.dra.selectors.compiled_selectors import SelectionError
from haru.engine.dra.taints import untolerated
from haru.engine.state.cached_property import cached_property

MAX_RESULTS = 32
"""How many devices one claim can have."""


class AllocationProblem(NodeDevices):
    """The devices of one node, what is taken of them, and the plans of all asks."""

    def __init__(
        self,
        views: Sequence[PoolView],
        allocated: AllocatedState,
        node: NodeView,
        claims: Sequence[Claim],
        features: Features,
    ) -> None:
        super().__init__(views, node, features)
        self.claims = claims
        self.all_views = views
        self.uses: list[PoolUse] = [allocated.use(v.key) for v in self.views]
        self.plans: list[list[list[SubrequestPlan]]] = []
        self._count = 1
        self._ready = True
        for claim in claims:
            self.plans.append(self._plan_claim(claim))

    @property
    def hopeless(self) -> bool:
        """Whether it is known already that some request has fewer candidates than it needs."""
        return self._ready and self.too_few()

    def too_few(self) -> bool:
        """Whether some request has fewer candidates than it needs, and no error can come before that is found out."""
        plans = [asks for claim in self.plans for asks in claim]
        if any(plan.faulty or (plan.takes_all and plan.constraints) for asks in plans for plan in asks):
            return False
        return any(all(len(plan.candidates) < max(plan.needed, plan.takes_all) for plan in asks) for asks in plans)

    def charge(self, position: int) -> tuple[tuple[int, int], ...]:
        """What the device at a position takes of its view's counters."""
        number = self.view_of[position]
        view = self.views[number]
        return view.charges[position - self.offsets[number]] if view.totals else ()

    @cached_property
    def counters_left(self) -> list[list[int]]:
        """What is left of each view's counters before the search."""
        return [list(view.counters_left(use)) for view, use in zip(self.views, self.uses, strict=True)]

    @cached_property
    def overdrawn(self) -> frozenset[int]:
        """The views of which more is taken than they have of some counter: no device that consumes is given out."""
        return frozenset(number for number, left in enumerate(self.counters_left) if any(value < 0 for value in left))

    @cached_property
    def allocated(self) -> frozenset[int]:
        """The positions of devices that are taken whole."""
        return frozenset(
            offset + view.table.places[name]
            for offset, view, use in zip(self.offsets, self.views, self.uses, strict=True)
            for name in use.devices
            if name in view.table.places
        )

    @cached_property
    def counter_holders(self) -> dict[tuple[int, int], set[str]]:
        """Who holds devices that draw on a counter, by view and counter."""
        found: dict[tuple[int, int], set[str]] = {}
        for number, (view, use) in enumerate(zip(self.views, self.uses, strict=True)):
            for index, device in enumerate(view.devices if view.totals else ()):
                for counter, _ in view.charges[index] if use.holders(device.name) else ():
                    found.setdefault((number, counter), set()).update(use.holders(device.name))
        return found

    @cached_property
    def consumed(self) -> dict[int, tuple[int, ...]]:
        """What shares consume of the capacities of devices, by position."""
        return {
            offset + view.table.places[name]: aligned(view.devices[view.table.places[name]].shape, use.consumed(name))
            for offset, view, use in zip(self.offsets, self.views, self.uses, strict=True)
            for name in use.shares
            if name in view.table.places
        }

    def constraint_values(self, position: int, attribute: str) -> Values | None:
        """The values of a device that count for constraints on an attribute."""
        return attribute_values(self.devices[position].shape, attribute, self.features.ListTypeAttributes)

    @cached_property
    def sharing(self) -> bool:
        """Whether some device can be given out several times at once."""
        return self.features.ConsumableCapacity and any(view.table.shareable for view in self.views)

    @cached_property
    def counting(self) -> bool:
        """Whether there are counters."""
        return any(view.totals for view in self.views)

    def shareable(self, position: int) -> bool:
        """Whether the device can be given out several times at once."""
        return self.sharing and self.devices[position].shape.shareable

    def draws_no_more(self, position: int) -> bool:
        """Whether another share of the device draws on no counter: it has shares, and keeps some whoever goes."""
        if not (self.shareable(position) and position in self.consumed):
            return False
        return self.uses[self.view_of[position]].shared_throughout(self.devices[position].name)

    def usable(self, position: int, ask: SubRequest) -> bool:
        """Whether nothing that stays as it is keeps the device from the ask: gates, taints."""
        device = self.devices[position]
        if device.consumes and not self._counters_usable(position):
            return False
        return not (self.features.DeviceTaints and device.taints and untolerated(device.taints, ask.tolerations))

    def _counters_usable(self, position: int) -> bool:
        """Nothing that consumes is given out with the gate off, or while the pool has less than nothing of a counter.

        A shareable device that is in use has been charged already.
        """
        if not self.features.PartitionableDevices:
            return False
        return self.view_of[position] not in self.overdrawn or self.draws_no_more(position)

    def fits_capacity(self, position: int, ask: SubRequest) -> bool:
        """Whether the capacity asked for is there beside what shares consume already."""
        if not self.features.ConsumableCapacity:
            return True
        return fits(self.devices[position].shape, ask.wanted, self.consumed.get(position))

    def could_fit(self, position: int, ask: SubRequest) -> bool:
        """Whether the capacity asked for would fit if nothing were consumed."""
        return fits(self.devices[position].shape, ask.wanted, None)

    def holders(self, position: int) -> tuple[str, ...]:
        """The claims that hold the device or shares of it."""
        return self.uses[self.view_of[position]].holders(self.devices[position].name)

    def share(self, position: int, ask: SubRequest) -> tuple[tuple[int, str], ...]:
        """What the ask consumes of each capacity of a shareable device."""
        return share(self.devices[position].shape, ask.wanted) or ()

    def _plan_claim(self, claim: Claim) -> list[list[SubrequestPlan]]:
        plans, least = [], 0
        for request in claim.requests:
            if request.error:
                raise AllocationError(request.error)
            asks = []
            for ask in request.asks:
                applying = tuple(i for i, c in enumerate(claim.constraints) if c.applies(request, ask))
                asks.append(self._plan(claim, ask, applying))
            plans.append(asks)
            least += min(p.needed for p in asks)
        if least > MAX_RESULTS:
            message = f"number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
            raise AllocationError(f"claim {claim.name}: {message}")
        if claim.constraint_error:
            raise AllocationError(claim.constraint_error)
        return plans

    def _plan(self, claim: Claim, ask: SubRequest, constraints: tuple[int, ...]) -> SubrequestPlan:
        if ask.error:
            raise AllocationError(ask.error)
        number = self._count
        self._count += 1
        if ask.mode == ALL:
            return SubrequestPlan(number, ask, constraints, self._all_candidates(claim, ask), None, {})
        offers = [candidates_of(view.table, ask, self.features) for view in self.views]
        errors: dict[int, str] = {}
        found = self._exact_candidates(claim, ask, offers, errors)
        if all(offer.complete for offer in offers):
            return SubrequestPlan(number, ask, constraints, list(found), None, errors)
        self._ready = False
        return SubrequestPlan(number, ask, constraints, [], found, errors)

    def _all_candidates(self, claim: Claim, ask: SubRequest) -> list[int]:
        found = []
        numbers = {id(view): number for number, view in enumerate(self.views)}
        for view in self.all_views:
            if view.status != "ok":
                state = "being updated" if view.status == "incomplete" else "invalid"
                raise AllocationError(
                    f"claim {claim.name}, request {ask.name}: asks for all devices, "
                    f"but resource pool {view.key} is currently {state}"
                )
            offset = self.offsets[numbers[id(view)]]
            for index, verdict in enumerate(ask.selection.column(view)):
                position = offset + index
                if isinstance(verdict, SelectionError):
                    raise AllocationError(describe(verdict, claim, ask))
                if verdict and self.offered(position) and self._here(position) and self.fits_capacity(position, ask):
                    found.append(position)
        return found

    def _exact_candidates(
        self, claim: Claim, ask: SubRequest, offers: Sequence[Candidates], errors: dict[int, str]
    ) -> Iterator[int]:
        for number, (view, offset, offer) in enumerate(zip(self.views, self.offsets, offers, strict=True)):
            use, placed = self.uses[number], view.table.placed
            taken = () if ask.admin else use.devices
            overdrawn = self.features.PartitionableDevices and view.totals and number in self.overdrawn
            special = bool(placed or overdrawn or use.shares)
            for index in offer:
                if taken and view.devices[index].name in taken:
                    continue
                position = offset + index
                if index in offer.errors:
                    errors[position] = describe(offer.errors[index], claim, ask)
                elif special and not (
                    self._here(position) and self.fits_capacity(position, ask) and self.usable(position, ask)
                ):
                    continue
                yield position

    def offered(self, position: int) -> bool:
        """Whether the gates allow a device with these binding conditions."""
        binding = self.devices[position].binding
        return self.features.DeviceBindingAndStatus or binding is None or not binding.conditions

    def _here(self, position: int) -> bool:
        placement = self.devices[position].placement
        return placement is None or matches_node(placement, self.node)


def describe(error: SelectionError, claim: Claim, ask: SubRequest) -> str:
    """A selector's error as the scheduler reports it."""
    whose = f"class {ask.class_name}" if error.of_class else f"claim {claim.name}"
    return f"{whose}: selector #{error.number}: {error.message}"
