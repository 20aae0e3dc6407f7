"""The search: the first complete choice of devices in a fixed order.

Claims are filled in order, requests of a claim in order, alternatives in order of preference, devices of a request one
by one at ascending positions. The walk keeps its own stack (a pod can ask for more devices than Python nests calls).
A claim holds at most 32 devices: where only that stands in the way, the walk leaves everything up to the last choice
of an alternative of that claim at once.

Only branches without an outcome are skipped, so the result is the one that the plain walk finds: of equal devices one
is tried at each place.
Source: KEP-4381, KEP-4816 (alternatives, limit); the order is kube-scheduler's.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from haru.engine.devices.board import MAX_RESULTS, Board, Plan
from haru.engine.devices.capacity import fits
from haru.engine.devices.constraints import State, add_distinct, add_match
from haru.engine.devices.errors import AllocationError, GaveUp


class Pick(NamedTuple):
    """One device chosen for an ask, and what it consumes of the device's capacities (None: not shared)."""

    plan: Plan
    position: int
    consumed: tuple[tuple[int, str], ...] | None


class Signal(Enum):
    """How a step ended: one level deeper, complete, without solution, or only too many devices."""

    DOWN = 1
    DONE = 2
    FAIL = 3
    LIMIT = 4


@dataclass(slots=True)
class Undo:
    """How things stood before a pick."""

    position: int
    states: list[State]
    charged: bool
    used: tuple[int, ...] | None


@dataclass(slots=True)
class Frame:
    """One place of the walk: a choice among alternatives (`plan` is None) or of a device for a plan."""

    claim: int
    request: int
    plan: Plan | None
    done: int
    next: int
    limited: bool = True
    undo: Undo | None = None
    tried: set[object] = field(default_factory=set)


class Search:
    """One walk over a board. `solve` gives the picks per claim, or None."""

    def __init__(self, board: Board, budget: int) -> None:
        self._board = board
        self._budget = budget
        self.steps = 0
        self.picks: list[list[Pick]] = [[] for _ in board.claims]
        self.chosen: list[dict[int, int]] = [{} for _ in board.claims]
        self._owners: dict[int, list[int]] = {}
        self._left = [list(c) for c in board.counters_left]
        self._used: dict[int, tuple[int, ...]] = dict(board.consumed)
        self._states: list[list[State]] = [
            [None if c.match else frozenset() for c in claim.constraints] for claim in board.claims
        ]
        self._frames: list[Frame] = []
        self._kinds = _kinds(board)
        self._limited_claim = -1

    def solve(self) -> list[list[Pick]] | None:
        """The first complete choice, or None; AllocationError where the walk comes upon a faulty selector."""
        signal = self._enter(0, 0, None, 0, 0)
        while signal is not Signal.DONE:
            if signal is Signal.DOWN:
                signal = self._advance(self._frames[-1])
            elif self._frames:
                signal = self._refused(self._frames[-1], signal)
            else:
                return None
        return self.picks

    def _enter(self, claim: int, request: int, plan: Plan | None, done: int, start: int) -> Signal:
        """Open the next place of the walk, if it can be opened."""
        plans = self._board.plans
        while claim < len(plans):
            if request == len(plans[claim]):
                claim, request = claim + 1, 0
                continue
            if plan is None:
                if self._board.claims[claim].requests[request].prioritized:
                    return self._push(Frame(claim, request, None, 0, 0))
                plan, done, start = plans[claim][request][0], 0, 0
            if plan.takes_all and not plan.candidates:
                return Signal.FAIL
            if done == plan.needed:
                request, plan = request + 1, None
                continue
            if len(self.picks[claim]) + plan.needed - done > MAX_RESULTS:
                self._limited_claim = claim
                return Signal.LIMIT
            return self._push(Frame(claim, request, plan, done, start))
        return Signal.DONE

    def _push(self, frame: Frame) -> Signal:
        self._frames.append(frame)
        return Signal.DOWN

    def _refused(self, frame: Frame, signal: Signal) -> Signal:
        """The option that the top frame had taken came to nothing: take it back and go on, or go up."""
        if frame.claim < self._limited_claim:
            signal = Signal.FAIL
        self._take_back(frame)
        if frame.plan is None:
            frame.limited &= signal is Signal.LIMIT
        elif signal is Signal.LIMIT or frame.plan.takes_all:
            self._frames.pop()
            return signal
        return self._advance(frame)

    def _advance(self, frame: Frame) -> Signal:
        """Take the top frame's next option and go one place further, or close the frame."""
        self.steps += 1
        if self.steps > self._budget:
            raise GaveUp(self.steps)
        if frame.plan is None:
            return self._next_alternative(frame)
        if frame.plan.takes_all:
            return self._next_of_all(frame, frame.plan)
        return self._next_device(frame, frame.plan)

    def _next_alternative(self, frame: Frame) -> Signal:
        plans = self._board.plans[frame.claim][frame.request]
        if frame.next == len(plans):
            self._frames.pop()
            return Signal.LIMIT if frame.limited else Signal.FAIL
        plan = plans[frame.next]
        self.chosen[frame.claim][frame.request] = frame.next
        frame.next += 1
        return self._enter(frame.claim, frame.request, plan, 0, 0)

    def _next_of_all(self, frame: Frame, plan: Plan) -> Signal:
        position = plan.candidates[frame.done]
        if self._takeable(plan, position) and self._pick(frame, plan, position, must=True):
            return self._enter(frame.claim, frame.request, plan, frame.done + 1, 0)
        self._frames.pop()
        return Signal.FAIL

    def _next_device(self, frame: Frame, plan: Plan) -> Signal:
        candidates, board = plan.candidates, self._board
        index = bisect_left(candidates, frame.next)
        while index < len(candidates):
            position = candidates[index]
            index += 1
            if self._in_use(frame.claim, plan, position):
                continue
            if position in plan.errors:
                raise AllocationError(plan.errors[position])
            kind = self._kind(position)
            if kind in frame.tried:
                continue
            frame.tried.add(kind)
            if board.shareable(position) and not self._share_fits(plan, position):
                continue
            if self._pick(frame, plan, position, must=False):
                frame.next = position + 1
                return self._enter(frame.claim, frame.request, plan, frame.done + 1, position + 1)
        self._frames.pop()
        return Signal.FAIL

    def _takeable(self, plan: Plan, position: int) -> bool:
        """Whether a device that must be taken can be, as far as it alone is concerned."""
        board = self._board
        return board.usable(position, plan.ask) and (not board.shareable(position) or self._share_fits(plan, position))

    def _kind(self, position: int) -> object:
        """Devices of one kind are equal as things stand: if one leads nowhere, so do the others."""
        owners = self._owners.get(position)
        return (self._kinds[position], tuple(owners)) if owners else self._kinds[position]

    def _in_use(self, claim: int, plan: Plan, position: int) -> bool:
        owners = self._owners.get(position, ())
        if plan.ask.admin:
            return claim in owners
        return bool(owners) or position in self._board.allocated

    def _share_fits(self, plan: Plan, position: int) -> bool:
        device = self._board.devices[position]
        return fits(device.shape, plan.ask.wanted, self._used.get(position))

    def _pick(self, frame: Frame, plan: Plan, position: int, must: bool) -> bool:
        """Take a device for a plan, if counters and constraints allow it."""
        board, claim = self._board, frame.claim
        if self._in_use(claim, plan, position):
            return False
        shareable = board.shareable(position)
        charged = bool(board.devices[position].consumes) and not (shareable and position in self._used)
        if charged and not self._charge(position):
            return False
        before = self._states[claim]
        if plan.constraints:
            states = self._constrained(claim, plan, position)
            if states is None:
                if charged:
                    self._uncharge(position)
                if must:
                    raise AllocationError(
                        f"claim {board.claims[claim].name}, request {plan.ask.name}: cannot add device "
                        f"{board.device_id(position)} because a claim constraint would not be satisfied"
                    )
                return False
            self._states[claim] = states
        frame.undo = Undo(position, before, charged, self._used.get(position))
        consumed = None
        if shareable:
            consumed = board.share(position, plan.ask)
            used = self._used.get(position) or (0,) * len(consumed)
            self._used[position] = tuple(u + c for u, (c, _) in zip(used, consumed, strict=True))
        else:
            self._owners.setdefault(position, []).append(claim)
        self.picks[claim].append(Pick(plan, position, consumed))
        return True

    def _take_back(self, frame: Frame) -> None:
        undo = frame.undo
        if undo is None:
            return
        frame.undo = None
        pick = self.picks[frame.claim].pop()
        self._states[frame.claim] = undo.states
        if undo.charged:
            self._uncharge(undo.position)
        if pick.consumed is None:
            self._owners[undo.position].pop()
        elif undo.used is None:
            del self._used[undo.position]
        else:
            self._used[undo.position] = undo.used

    def _charge(self, position: int) -> bool:
        left = self._left[self._board.view_of[position]]
        charge = self._board.charge(position)
        if self._board.view_of[position] in self._board.overdrawn or any(left[c] < amount for c, amount in charge):
            return False
        for counter, amount in charge:
            left[counter] -= amount
        return True

    def _uncharge(self, position: int) -> None:
        left = self._left[self._board.view_of[position]]
        for counter, amount in self._board.charge(position):
            left[counter] += amount

    def _constrained(self, claim: int, plan: Plan, position: int) -> list[State] | None:
        """The claim's constraints after this device, or None if one forbids it."""
        states = list(self._states[claim])
        for index in plan.constraints:
            constraint = self._board.claims[claim].constraints[index]
            values = self._board.constraint_values(position, constraint.attribute)
            state = states[index]
            after: State
            if constraint.match:
                after = add_match(state, values)  # type: ignore[arg-type]
            else:
                after = add_distinct(state, values)  # type: ignore[arg-type]
            if after is None:
                return None
            states[index] = after
        return states


def _kinds(board: Board) -> list[object]:
    """A key per position: equal keys mean devices that no ask, constraint or counter tells apart."""
    memberships: list[list[int]] = [[] for _ in board.devices]
    # Where all are needed, which of two equal devices is gone decides whether a constraint's error is come upon.
    unlike: set[int] = set()
    attributes = {c.attribute for claim in board.claims for c in claim.constraints}
    for claim in board.plans:
        for plans in claim:
            for plan in plans:
                for position in plan.candidates:
                    memberships[position].append(-1 - plan.number if position in plan.errors else plan.number)
                if plan.takes_all and plan.constraints:
                    unlike.update(plan.candidates)
    keys: list[object] = []
    for position, member in enumerate(memberships):
        if position in unlike or board.shareable(position):
            keys.append(position)
            continue
        values = tuple(board.constraint_values(position, a) for a in sorted(attributes)) if attributes else ()
        charge = board.charge(position)
        keys.append((tuple(member), values, charge, board.view_of[position] if charge else -1))
    return keys
