"""The same problem with its devices in another order: what is tried first is another device, nothing else differs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.allocator.candidates import SubrequestPlan
from haru.engine.dra.allocator.search_state import Pick
from haru.engine.dra.model.model import Slice


class PermutedProblem(AllocationProblem):
    """A board whose position i is position `order[i]` of another board. `restored` leads back.

    The search cannot tell it from a board of slices that were published in this order.
    """

    def __init__(self, board: AllocationProblem, order: Sequence[int]) -> None:
        # Nothing is looked for again: the candidates of the other board are all there are.
        self._other = board
        self._order = order
        places = [0] * len(order)
        for place, position in enumerate(order):
            places[position] = place
        self._places = places
        self.node, self.features, self.claims = board.node, board.features, board.claims
        self.views, self.all_views, self.uses, self.offsets = board.views, board.all_views, board.uses, board.offsets
        self.devices = [board.devices[position] for position in order]
        self.view_of = [board.view_of[position] for position in order]
        self.counters_left, self.overdrawn = board.counters_left, board.overdrawn
        self.plans = [[[self._moved(plan) for plan in plans] for plans in claim] for claim in board.plans]
        self._ready = True
        self._charges = [board.charge(position) for position in order]

    def charge(self, position: int) -> tuple[tuple[int, int], ...]:
        """What the device at a position takes of its view's counters."""
        return self._charges[position]

    def slice_of(self, position: int) -> Slice:
        """The slice that publishes the device at a position."""
        return self._other.slice_of(self._order[position])

    @cached_property
    def allocated(self) -> frozenset[int]:
        """The positions of devices that are taken whole."""
        return frozenset([self._places[position] for position in self._other.allocated])

    @cached_property
    def consumed(self) -> dict[int, tuple[int, ...]]:
        """What shares consume of the capacities of devices, by position."""
        return {self._places[position]: amounts for position, amounts in self._other.consumed.items()}

    def restored(self, picks: Sequence[Sequence[Pick]]) -> list[list[Pick]]:
        """Picks of this board as picks of the other."""
        return [[pick._replace(position=self._order[pick.position]) for pick in own] for own in picks]

    def _moved(self, plan: SubrequestPlan) -> SubrequestPlan:
        found = [self._places[position] for position in plan.candidates]
        if not plan.takes_all:  # where all are taken, they are listed as ever
            found.sort()
        errors = {self._places[position]: text for position, text in plan.errors.items()}
        return SubrequestPlan(plan.number, plan.ask, plan.constraints, found, None, errors)
