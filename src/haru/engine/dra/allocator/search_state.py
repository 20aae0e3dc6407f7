"""What the search has taken so far, and how to take back the last of it: devices, shares, counters, constraints."""

from __future__ import annotations

from typing import NamedTuple

from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.allocator.candidates import SubrequestPlan
from haru.engine.dra.allocator.constraints import State, add_distinct, add_match, attribute_values
from haru.engine.dra.allocator.consumable_capacity import fits
from haru.engine.dra.errors import AllocationError
from haru.engine.dra.model.model import new_tuple
from haru.engine.dra.pools.counters import Charge


class SearchPlace(NamedTuple):
    """A place of the search: the choice of a device for a plan, or among alternatives if `plan` is None.

    `done` devices of the plan are taken; the next one is sought from position `start` on.
    """

    claim: int
    request: int
    plan: SubrequestPlan | None = None
    done: int = 0
    start: int = 0


class Pick(NamedTuple):
    """One device chosen for an ask, and what it consumes of the device's capacities (None: not shared)."""

    plan: SubrequestPlan
    position: int
    consumed: tuple[tuple[int, str], ...] | None


class Undo(NamedTuple):
    """How things stood before a pick."""

    claim: int
    position: int
    states: list[State]
    charge: Charge
    used: tuple[int, ...] | None


class SearchState:
    """What a search has taken. `pick` changes it or leaves it as it was; `take_back` undoes the last pick."""

    def __init__(self, problem: AllocationProblem) -> None:
        self.problem = problem
        self.sharing = problem.sharing
        self._counting = problem.counting
        self.picks: list[list[Pick]] = []
        self.owners: dict[int, tuple[int, ...]] = {}
        self.used: dict[int, tuple[int, ...]] = dict(problem.consumed)
        self.left: list[list[int]] = [[]] * len(problem.views)
        if self._counting:
            self.left = list(map(list, problem.counters_left))
        self.states: list[list[State]] = []
        for claim in problem.claims:
            self.picks.append([])
            self.states.append(
                [None if c.match else frozenset() for c in claim.constraints] if claim.constraints else []
            )

    def in_use(self, claim: int, plan: SubrequestPlan, position: int) -> bool:
        """Whether the device cannot be had because it is taken, as far as this plan has to mind."""
        if plan.ask.admin:
            return claim in self.owners.get(position, ())
        return bool(self.owners.get(position)) or position in self.problem.allocated

    def share_fits(self, plan: SubrequestPlan, position: int) -> bool:
        """Whether a shareable device has room for another share; for other devices the question does not arise."""
        if not self.sharing or not self.problem.devices[position].shape.shareable:
            return True
        return fits(self.problem.devices[position].shape, plan.ask.wanted, self.used.get(position))

    def counters_fit(self, position: int) -> bool:
        """Whether what the device consumes is left in its counters."""
        left = self.left[self.problem.view_of[position]]
        # A generator takes twice as long here, in the innermost loop.
        for counter, amount in self.problem.charge(position):  # noqa: SIM110
            if left[counter] < amount:
                return False
        return True

    def pick(self, claim: int, plan: SubrequestPlan, position: int) -> Undo | None:
        """Take a device for a plan, if counters and constraints allow it; AllocationError where it had to be."""
        problem, before = self.problem, self.states[claim]
        shareable = self.sharing and problem.devices[position].shape.shareable
        used = self.used.get(position) if shareable else None
        charge = problem.charge(position) if self._counting and used is None else ()
        left = self.left[problem.view_of[position]]
        for counter, amount in charge:
            if left[counter] < amount:
                return None
        states = None
        if plan.constraints:
            states = self.constrained(claim, plan, position)
            if states is None:
                if plan.takes_all:
                    raise AllocationError(
                        f"claim {problem.claims[claim].name}, request {plan.ask.name}: cannot add device "
                        f"{problem.device_id(position)} because a claim constraint would not be satisfied"
                    )
                return None
        # Of all devices, one without room is found out only after its constraints.
        if plan.takes_all and not self.share_fits(plan, position):
            return None
        if states is not None:
            self.states[claim] = states
        for counter, amount in charge:
            left[counter] -= amount
        consumed = None
        if shareable:
            consumed = problem.share(position, plan.ask)
            base = used or (0,) * len(consumed)
            self.used[position] = tuple(u + c for u, (c, _) in zip(base, consumed, strict=True))
        else:
            self.owners[position] = (*self.owners.get(position, ()), claim)
        self.picks[claim].append(new_tuple(Pick, (plan, position, consumed)))
        return new_tuple(Undo, (claim, position, before, charge, used))

    def take_back(self, undo: Undo) -> None:
        """Undo a pick; those after it must have been undone."""
        pick = self.picks[undo.claim].pop()
        self.states[undo.claim] = undo.states
        left = self.left[self.problem.view_of[undo.position]]
        for counter, amount in undo.charge:
            left[counter] += amount
        if pick.consumed is not None:
            if undo.used is None:
                del self.used[undo.position]
            else:
                self.used[undo.position] = undo.used
            return
        owners = self.owners[undo.position][:-1]
        if owners:
            self.owners[undo.position] = owners
        else:
            del self.owners[undo.position]

    def constrained(self, claim: int, plan: SubrequestPlan, position: int) -> list[State] | None:
        """The claim's constraints after this device, or None if one forbids it."""
        states, problem = list(self.states[claim]), self.problem
        shape, lists = problem.devices[position].shape, problem.features.ListTypeAttributes
        for index in plan.constraints:
            constraint = problem.claims[claim].constraints[index]
            values = attribute_values(shape, constraint.attribute, lists)
            state = states[index]
            after: State = None
            if constraint.match:
                after = add_match(state, values) if not isinstance(state, frozenset) else None
            elif isinstance(state, frozenset):
                after = add_distinct(state, values)
            if after is None:
                return None
            states[index] = after
        return states
