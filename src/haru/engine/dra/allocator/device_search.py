"""The search: the first complete choice of devices in a fixed order.

Claims are filled in order, requests of a claim in order, alternatives in order of preference, devices of a request one
by one at ascending positions. The search keeps its own stack (a pod can ask for more devices than Python nests calls).
A claim holds at most 32 devices: where only that limit is exceeded, the search backtracks to the last choice of an
alternative of that claim at once.

Only branches without an outcome are skipped, so the result is that of the plain search: of equal devices one
is tried at each place; a state that failed is not entered again; a state is not entered in which a count shows that
the rest cannot be had.
Source: KEP-4381, KEP-4816 (alternatives, limit); the order is kube-scheduler's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum

from haru.engine.dra.allocator.allocation_problem import MAX_RESULTS, AllocationProblem
from haru.engine.dra.allocator.candidates import SubrequestPlan
from haru.engine.dra.allocator.nogoods import NogoodStore
from haru.engine.dra.allocator.pruning import PruningBounds
from haru.engine.dra.allocator.search_state import Pick, SearchPlace, SearchState, Undo
from haru.engine.dra.allocator.symmetry import ProblemSymmetry
from haru.engine.dra.errors import AllocationError, GaveUp
from haru.engine.dra.model.model import new_tuple

_EASY = 24
"""Most problems are over after fewer failures: only then is it worth while to remember them and to count ahead."""

_MUCH = 256
"""Nor is a problem easy where so many devices were looked at in vain, and twice all candidates besides: to count them
once takes no longer than that.
"""

_CREDIT = 400
"""How many devices may be counted for each failure: looking ahead never costs much more than walking on."""

_LATE = 2
"""What was not counted at first is, once so many times as much could have been counted for the failures below it."""


class Signal(Enum):
    """How a step ended: one level deeper, complete, without solution, or only too many devices."""

    DOWN = 1
    DONE = 2
    FAIL = 3
    LIMIT = 4


@dataclass(slots=True)
class Frame:
    """An open place of the search: the next option to try, and what was tried."""

    place: SearchPlace
    next: int
    limited: bool = True
    undo: Undo | None = None
    tried: set[Hashable] | None = None
    failures: int = 0
    """How many failures there had been when it was opened."""
    counted: bool = False
    """Whether a count has looked for a proof that nothing can come of it."""


class DeviceSearch:
    """Searches one problem: `solve` returns the picks per claim, or None; it ends when `expired` says so."""

    def __init__(self, problem: AllocationProblem, budget: int, expired: Callable[[], bool] | None = None) -> None:
        self._problem = problem
        self._budget = budget
        self._expired = expired
        self.steps = 0
        self._failures = 0
        self._looked = 0
        self._much = _MUCH
        self._credit = 0
        self.chosen: list[dict[int, int]] = [{} for _ in problem.claims]
        self._ledger = SearchState(problem)
        self._known: NogoodStore | None = None
        self._bounds: PruningBounds | None = None
        self._frames: list[Frame] = []
        self._limited_claim = -1

    @property
    def _memory(self) -> NogoodStore:
        if self._known is None:
            self._known = NogoodStore(self._problem, ProblemSymmetry(self._problem), self._ledger)
        return self._known

    def solve(self) -> list[list[Pick]] | None:
        """The first complete choice, or None; AllocationError where the walk comes upon a faulty selector."""
        signal = self._enter(0, 0, None, 0, 0)
        while signal is not Signal.DONE:
            if signal is Signal.DOWN:
                signal = self._advance(self._frames[-1])
            elif self._frames:
                if self._failed_too_often():
                    return None
                signal = self._refused(self._frames[-1], signal)
            else:
                return None
        return self._ledger.picks

    def _failed_too_often(self) -> bool:
        """Note a failure. When the problem turns out not to be easy, look whether a count decides it as a whole."""
        self._failures += 1
        self._credit += _CREDIT
        if self._failures == 1:
            plans = [plan for claim in self._problem.plans for asks in claim for plan in asks]
            self._much += 2 * sum(len(plan.candidates) for plan in plans)
            return self._problem.too_few()
        if self._bounds is not None or (self._failures < _EASY and self._looked < self._much):
            return False
        self._bounds = PruningBounds(self._problem)
        first = next(claim for claim, plans in enumerate(self._problem.plans) if plans)
        return self._bounds.hopeless(SearchState(self._problem), SearchPlace(first, 0))

    def _enter(self, claim: int, request: int, plan: SubrequestPlan | None, done: int, start: int) -> Signal:
        """Open the next place of the walk, if it can be opened."""
        plans = self._problem.plans
        while claim < len(plans):
            if request == len(plans[claim]):
                claim, request = claim + 1, 0
                continue
            if plan is None:
                if self._problem.claims[claim].requests[request].prioritized:
                    return self._push(Frame(SearchPlace(claim, request), 0))
                plan, done, start = plans[claim][request][0], 0, 0
            if plan.takes_all and not plan.candidates:
                return Signal.FAIL
            if done == plan.needed:
                request, plan = request + 1, None
                continue
            if len(self._ledger.picks[claim]) + plan.needed - done > MAX_RESULTS:
                self._limited_claim = claim
                return Signal.LIMIT
            return self._push(Frame(new_tuple(SearchPlace, (claim, request, plan, done, start)), start))
        return Signal.DONE

    def _push(self, frame: Frame) -> Signal:
        if self._bounds is not None:
            memory = self._memory
            key = memory.state_key(frame.place)
            limited = memory.failed.get(key)
            if limited is None and self._hopeless(self._bounds, frame):
                limited = False
                memory.remember(key, limited)
            if limited is not None:
                return self._failure(frame, limited)
        frame.failures = self._failures
        self._frames.append(frame)
        return Signal.DOWN

    def _late(self, frame: Frame) -> bool:
        """Whether a count shows by now that nothing can come of a place at which nothing was counted so far.

        It is counted when more has failed below it than that costs: else all that is below would be walked through, up
        to the first choice that was wrong.
        """
        bounds = self._bounds
        if bounds is None or frame.counted:
            return False
        spent = (self._failures - frame.failures) * _CREDIT
        if spent < _LATE * bounds.cost(frame.place):
            return False
        return self._counted(bounds, frame)

    def _hopeless(self, bounds: PruningBounds, frame: Frame) -> bool:
        cost = bounds.cost(frame.place)
        if cost > self._credit:
            return False
        self._credit -= cost
        return self._counted(bounds, frame)

    def _counted(self, bounds: PruningBounds, frame: Frame) -> bool:
        frame.counted = True
        return bounds.hopeless(self._ledger, frame.place)

    def _close(self, frame: Frame, limited: bool) -> Signal:
        """Leave the top frame: nothing came of any of its options, all of which are taken back."""
        self._frames.pop()
        if self._bounds is not None:
            memory = self._memory
            memory.remember(memory.state_key(frame.place), limited)
        return self._failure(frame, limited)

    def _failure(self, frame: Frame, limited: bool) -> Signal:
        if not limited:
            return Signal.FAIL
        self._limited_claim = frame.place.claim
        return Signal.LIMIT

    def _refused(self, frame: Frame, signal: Signal) -> Signal:
        """The option that the top frame had taken came to nothing: take it back and go on, or go up."""
        limited = signal is Signal.LIMIT and frame.place.claim == self._limited_claim
        if frame.undo is not None:
            self._take_back(frame, frame.undo)
        if frame.place.plan is None:
            frame.limited &= limited
        elif limited or frame.place.plan.takes_all:
            return self._close(frame, limited)
        return self._close(frame, limited=False) if self._late(frame) else self._advance(frame)

    def _advance(self, frame: Frame) -> Signal:
        """Take the top frame's next option and go one place further, or close the frame."""
        self.steps += 1
        if self.steps > self._budget or (self._expired is not None and self.steps % 16 == 1 and self._expired()):
            raise GaveUp(self.steps)
        if frame.place.plan is None:
            return self._next_alternative(frame)
        if frame.place.plan.takes_all:
            return self._next_of_all(frame, frame.place.plan)
        return self._next_device(frame, frame.place.plan)

    def _next_alternative(self, frame: Frame) -> Signal:
        plans = self._problem.plans[frame.place.claim][frame.place.request]
        if frame.next == len(plans):
            return self._close(frame, frame.limited)
        plan = plans[frame.next]
        self.chosen[frame.place.claim][frame.place.request] = frame.next
        frame.next += 1
        return self._enter(frame.place.claim, frame.place.request, plan, 0, 0)

    def _next_of_all(self, frame: Frame, plan: SubrequestPlan) -> Signal:
        position, ledger = plan.candidates[frame.place.done], self._ledger
        if (
            not ledger.in_use(frame.place.claim, plan, position)
            and self._problem.usable(position, plan.ask)
            and self._take(frame, plan, position)
        ):
            return self._enter(frame.place.claim, frame.place.request, plan, frame.place.done + 1, 0)
        return self._close(frame, limited=False)

    def _next_device(self, frame: Frame, plan: SubrequestPlan) -> Signal:
        found, ledger, admin = plan.found, self._ledger, plan.ask.admin
        owners, allocated = ledger.owners, self._problem.allocated
        claim, request, _, done, _ = frame.place
        known, tried = self._known, frame.tried
        begun = index = bisect_left(found, frame.next)
        while index < len(found) or plan.more():
            position = found[index]
            index += 1
            if position < frame.next:
                continue
            if ledger.in_use(claim, plan, position) if admin else position in owners or position in allocated:
                continue
            if position in plan.errors:
                raise AllocationError(plan.errors[position])
            if tried and known is not None and known.device_key(claim, request, position) in tried:
                continue
            if ledger.sharing and not ledger.share_fits(plan, position):
                continue
            if self._take(frame, plan, position):
                frame.next = position + 1
                return self._enter(claim, request, plan, done + 1, position + 1)
        self._looked += index - begun
        return self._close(frame, limited=False)

    def _take(self, frame: Frame, plan: SubrequestPlan, position: int) -> bool:
        frame.undo = self._ledger.pick(frame.place.claim, plan, position)
        if frame.undo is None:
            return False
        if self._known is not None:
            self._known.changed(position)
        return True

    def _take_back(self, frame: Frame, undo: Undo) -> None:
        """Undo the frame's pick, and remember that devices like this one lead nowhere from here."""
        self._ledger.take_back(undo)
        memory = self._memory
        memory.changed(undo.position)
        if frame.tried is None:
            frame.tried = set()
        frame.tried.add(memory.device_key(frame.place.claim, frame.place.request, undo.position))
        frame.undo = None
