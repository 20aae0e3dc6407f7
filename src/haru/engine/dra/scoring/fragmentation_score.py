"""Device scoring: an order in which small devices come before large ones and fragments before whole cards.

The search takes the first choice that is complete in the order of the devices. Kubernetes 1.36 has them in the order
of their slices; this is another order of the same devices, so what can be had is the same, only which of several
possible devices it is differs. Of the devices that the claims may have, those come first

1. whose pools have no binding conditions (as ever);
2. that are smaller. Of a shared device what is left of it counts, and one that nobody uses comes after those in use:
   the fullest that has room is taken;
3. of whose card something is in use already: whole cards stay whole;
4. that cost others least: of the other devices that could still be had of the card, the largest that would be lost
   decides, then the next smaller;
5. that come first in Kubernetes' order.

Devices of one size and card stay together, the cards in the order of their best device, so that several partitions
fill one card before they open the next. The order is made once for all claims of a question, from what is in use
before it: for one device it is the best by this measure, for several it is greedy.
Source: our own. The goals are those of best fit and of fragmentation-aware packing; KEP-4381 leaves the order open.
"""

from __future__ import annotations

from typing import NamedTuple

from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.errors import AllocationError
from haru.engine.dra.placement import matches_node
from haru.engine.dra.scoring.cards import WHOLE, Card, Losses, Maxima, cards_of, size_of


class Rank(NamedTuple):
    """Where a device stands; smaller is tried earlier."""

    conditional: bool
    size: int
    opens: bool
    card: tuple[tuple[int, ...], int]
    lost: tuple[int, ...]
    position: int


def preferred(problem: AllocationProblem) -> list[int] | None:
    """All positions of a problem, those to be tried first first; None where the order had better stay as it is.

    That is where it makes no difference, or where an error may come upon the search: whether it does depends on the
    order, and the outcome must not.
    """
    if _may_fail(problem):
        return None
    counting = [plan for claim in problem.plans for plans in claim for plan in plans if not plan.takes_all]
    wanted = sorted({position for plan in counting for position in plan.candidates})
    order = _ranked(problem, wanted)
    if order == sorted(order):
        return None
    chosen = set(order)
    return order + [position for position in range(len(problem.devices)) if position not in chosen]


def _may_fail(problem: AllocationProblem) -> bool:
    """Whether some device, if it is looked at, ends the attempt: a selector fails, a constraint on all of them."""
    try:
        for view in problem.views:
            for device in view.devices if view.table.placed else ():
                if device.placement is not None:
                    matches_node(device.placement, problem.node)
    except AllocationError:
        return True
    plans = [plan for claim in problem.plans for request in claim for plan in request]
    return any(plan.faulty or (plan.takes_all and plan.constraints) for plan in plans)


def _ranked(problem: AllocationProblem, wanted: list[int]) -> list[int]:
    """Those that can be had at all, by rank: what is left of counters before the search never becomes more."""
    maxima: dict[str, dict[str, int]] = {}
    for view in problem.views:
        known = maxima.setdefault(view.key.driver, {})
        for name, value in view.table.largest.items():
            known[name] = max(value, known.get(name, 0))
    looks = [_Look(problem, number, maxima[view.key.driver]) for number, view in enumerate(problem.views)]
    ranks = [rank for p in wanted if (rank := looks[problem.view_of[p]].rank(p)) is not None]
    best: dict[tuple[int, int], tuple[tuple[int, ...], int]] = {}
    for rank in ranks:
        key = (rank.card[1], rank.size)
        best[key] = min(best.get(key, rank.card), rank.card)
    ranks = [rank._replace(card=best[rank.card[1], rank.size]) for rank in ranks]
    ranks.sort()
    return [rank.position for rank in ranks]


class _Look:
    """One view of a problem as its devices are in use before the search."""

    def __init__(self, problem: AllocationProblem, number: int, maxima: Maxima) -> None:
        self._problem = problem
        self._view = problem.views[number]
        self._offset = problem.offsets[number]
        self._left = problem.counters_left[number]
        self._maxima = maxima
        self._cards = cards_of(self._view, maxima)
        self._in_use = {p for p in (*problem.allocated, *problem.consumed) if problem.view_of[p] == number}
        self._states: dict[int, tuple[bool, Losses]] = {}
        self._taken: dict[int, int] = {}
        """The devices in use of each card, as bits, by the card's first place."""
        for position in self._in_use:
            found = self._cards.card_of.get(position - self._offset)
            if found is not None:
                first = found[0].places[0]
                self._taken[first] = self._taken.get(first, 0) | 1 << found[1]

    def rank(self, position: int) -> Rank | None:
        """The rank of a device; `card` is its own loss, and the first position of its card. None: it cannot be had."""
        place = position - self._offset
        found = self._cards.card_of.get(place)
        if found is None:
            size = self._size(position, place)
            return Rank(self._view.binding, size, position not in self._in_use, ((), position), (), position)
        card, number = found
        first = self._offset + card.places[0]
        if first not in self._states:
            self._states[first] = self._state(card)
        opens, losses = self._states[first]
        lost = losses[number]
        if lost is None:
            return None
        return Rank(self._view.binding, self._size(position, place), opens, (lost, first), lost, position)

    def _size(self, position: int, place: int) -> int:
        size = self._cards.sizes[place]
        if not self._problem.shareable(position):
            return size
        used = self._problem.consumed.get(position)
        return size + WHOLE if used is None else size_of(self._view.devices[place].shape, self._maxima, used)

    def _state(self, card: Card) -> tuple[bool, Losses]:
        """Whether nothing of a card is in use, and what each of its devices would cost the others."""
        left = tuple([self._left[counter] for counter in card.counters])
        taken = self._taken.get(card.places[0], 0)
        opens = not taken and left == tuple([self._view.totals[counter] for counter in card.counters])
        return opens, card.model.losses(left, taken)
