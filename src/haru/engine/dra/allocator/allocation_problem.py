"""The problem of one node as the search sees it: its devices by position, and each request with its candidates.

A request's candidates are the positions that are worth trying whatever else is chosen; the errors among them count when
the search reaches them.
Source: KEP-4381; the order of checks is kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.candidates import (
    Candidates,
    ListedCandidates,
    SubrequestPlan,
    candidates_of,
)
from haru.engine.dra.allocator.conditions import SELECTING_CONDITIONS, SPOILING_CONDITIONS, check_of, node_checks
from haru.engine.dra.allocator.constraints import Values, attribute_values
from haru.engine.dra.allocator.consumable_capacity import share
from haru.engine.dra.allocator.node_devices import AllocatedNodeDevices
from haru.engine.dra.errors import AllocationError
from haru.engine.dra.model.claims import ALL, Claim, SubRequest
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.dra.pools.pools import PoolView
from haru.engine.dra.selectors.compiled_selectors import SelectionError

MAX_RESULTS = 32
"""How many devices one claim can have."""


class AllocationProblem(AllocatedNodeDevices):
    """The devices of one node, what is allocated of them, and the plans of all requests."""

    def __init__(
        self,
        views: Sequence[PoolView],
        allocated: AllocatedState,
        node: NodeView,
        claims: Sequence[Claim],
        features: Features,
    ) -> None:
        super().__init__(views, allocated, node, features)
        self.claims = claims
        self.all_views = views
        self.plans: list[list[list[SubrequestPlan]]] = []
        self._count = 1
        self._ready = True
        try:
            for claim in claims:
                self.plans.append(self._plan_claim(claim))
        except AllocationError:
            self.stop_looking()
            raise

    def stop_looking(self) -> None:
        """Let no plan look for more candidates: what looks knows the problem, which would hold itself by its plans."""
        for claim in self.plans:
            for asks in claim:
                for plan in asks:
                    plan.stop_looking()

    @property
    def hopeless(self) -> bool:
        """Whether it is known already that some request has fewer candidates than it needs."""
        return self._ready and self.too_few()

    def too_few(self) -> bool:
        """Whether some request has fewer candidates than it needs, and no error can come before that is found out."""
        short = False
        for claim in self.plans:
            for asks in claim:
                enough = False
                for plan in asks:
                    found = plan.candidates
                    if (found and plan.errors) or (plan.takes_all and plan.constraints):
                        return False
                    enough = enough or len(found) >= (plan.needed or plan.takes_all)
                short = short or not enough
        return short

    def in_order(self, order: Sequence[int]) -> AllocationProblem:
        """Return the same problem whose position i is position `order[i]` of this one.

        The search cannot tell it from a problem whose slices were published in this order.
        """
        places = [0] * len(order)
        for place, position in enumerate(order):
            places[position] = place
        other = copy(self)
        other.devices = [self.devices[position] for position in order]
        other.view_of = [self.view_of[position] for position in order]
        other.index_of = [self.index_of[position] for position in order]
        other.allocated = frozenset([places[position] for position in self.allocated])
        other.consumed = {places[position]: amounts for position, amounts in self.consumed.items()}
        other.plans = [[[plan.moved(places) for plan in plans] for plans in claim] for claim in self.plans]
        other._ready = True
        return other

    def constraint_values(self, position: int, attribute: str) -> Values | None:
        """The values of a device that count for constraints on an attribute."""
        return attribute_values(self.devices[position].shape, attribute, self.features.ListTypeAttributes)

    def usable(self, position: int, ask: SubRequest) -> bool:
        """Tell whether the device can be had in mode All, as far as the search does not change that."""
        return all(
            condition.holds(self, position, ask)
            for condition in SPOILING_CONDITIONS
            if condition.can_fail_in(self, self.view_of[position], ask)
        )

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
                applying: tuple[int, ...] = ()
                if claim.constraints:
                    applying = tuple([i for i, c in enumerate(claim.constraints) if c.applies(request, ask)])
                asks.append(self._plan(claim, ask, applying))
            plans.append(asks)
            least += min([p.needed for p in asks])
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
            return SubrequestPlan(number, ask, constraints, self._all_candidates(claim, ask), {})
        offers, complete = [], True
        for view in range(len(self.views)):
            offer = self._offer(view, ask)
            offers.append(offer)
            complete = complete and offer.complete
        errors: dict[int, str] = {}
        found = self._exact_candidates(claim, ask, offers, errors)
        if complete:
            return SubrequestPlan(number, ask, constraints, list(found), errors)
        self._ready = False
        return SubrequestPlan(number, ask, constraints, [], errors, found)

    def _offer(self, number: int, ask: SubRequest) -> Candidates | ListedCandidates:
        """Return the candidates of a view; if fewer devices are free than are asked for, only those among them."""
        view = self.views[number]
        offer = candidates_of(view.table, ask, self.features)
        if offer.complete or ask.admin:
            return offer
        taken = self.uses[number].devices
        if not 0 < len(view.devices) - len(taken) < ask.count:
            return offer
        return offer.listed([index for index, device in enumerate(view.devices) if device.name not in taken])

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
            number = numbers[id(view)]
            meant = check_of(SELECTING_CONDITIONS, self, number, ask)
            for position, verdict in enumerate(ask.selection.column(view), self.offsets[number]):
                if isinstance(verdict, SelectionError):
                    raise AllocationError(describe(verdict, claim, ask))
                if verdict and (meant is None or meant(position)):
                    found.append(position)
        return found

    def _exact_candidates(
        self, claim: Claim, ask: SubRequest, offers: Sequence[Candidates | ListedCandidates], errors: dict[int, str]
    ) -> Iterator[int]:
        for number, (offset, offer) in enumerate(zip(self.offsets, offers, strict=True)):
            hiding, others = node_checks(self, number, ask)
            place = 0
            while (index := offer.get(place)) is not None:
                place += 1
                position = offset + index
                if ask.without and self.device_id(position) in ask.without:
                    continue
                if hiding is not None and not hiding(position):
                    continue
                if index in offer.errors:
                    errors[position] = describe(offer.errors[index], claim, ask)
                elif others is not None and not others(position):
                    continue
                yield position


def describe(error: SelectionError, claim: Claim, ask: SubRequest) -> str:
    """A selector's error as the scheduler reports it."""
    whose = f"class {ask.class_name}" if error.of_class else f"claim {claim.name}"
    return f"{whose}: selector #{error.number}: {error.message}"
