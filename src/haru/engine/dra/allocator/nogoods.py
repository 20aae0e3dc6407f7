"""Remembered failures: a state of the walk in which the rest is known to lead nowhere, up to what devices are called.

The key of a state holds only what the rest of the walk can tell apart: how many devices of each kind are free before
and after the place where the current request has got to, the groups of devices with what is left of their counters
(as a bag, for equal groups are equal), shares in use, and the constraints that still apply.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.allocator.search_state import SearchPlace, SearchState
from haru.engine.dra.allocator.symmetry import CounterSymmetryClass, DeviceSymmetryClass, ProblemSymmetry

_MAX_STATES = 100_000


class NogoodScope(NamedTuple):
    """What is still to come at a place of the walk.

    Plans are numbered in their order: `first` is the first one that is to come, `following` the first after the current
    request; `current` is the plan that is being served from `start` on, or -1. Requests with admin access may take what
    others hold, only not twice for one claim: `admin` is the current claim if it has such requests to come, else -1,
    and `admins` says whether any claim has.
    """

    first: int
    current: int
    following: int
    start: int
    admin: int
    admins: bool


class NogoodStore:
    """Makes keys of states and keeps those that failed."""

    def __init__(self, problem: AllocationProblem, layout: ProblemSymmetry, ledger: SearchState) -> None:
        self._problem = problem
        self._layout = layout
        self._ledger = ledger
        self._plain = [(n, k) for n, k in enumerate(layout.kinds) if layout.group_of[k.positions[0]] < 0]
        self._pending = _pending_constraints(problem)
        self._admins = _pending_admins(problem)
        self._group_states: list[dict[int, Hashable]] = [{} for _ in layout.groups]
        self.failed: dict[Hashable, bool] = {}
        """Failed states, and whether it was only the limit that stood in the way."""

    def remember(self, key: Hashable, limited: bool) -> None:
        """Keep a failed state, while there is room."""
        if len(self.failed) < _MAX_STATES:
            self.failed[key] = limited

    def changed(self, position: int) -> None:
        """A device was taken or given back: what is known of its group is out of date."""
        group = self._layout.group_of[position]
        if group >= 0:
            self._group_states[group].clear()

    def device_key(self, claim: int, request: int, position: int) -> Hashable:
        """Equal keys: as things stand, one device is as good as the other."""
        layout = self._layout
        kind, group = layout.kind_of[position], layout.group_of[position]
        admin, _ = self._admins[claim][request]
        if group < 0:
            return (kind, self._held(admin, position), self._ledger.used.get(position))
        return (kind, layout.place[position], self._group_state(admin, group))

    def state_key(self, place: SearchPlace) -> Hashable:
        """Return a key of the state at a place: with equal keys the rest of the search is alike."""
        claim, request, plan, done, start = place
        plans, states = self._problem.plans[claim][request], self._ledger.states[claim]
        scope = NogoodScope(
            plan.number if plan is not None else plans[0].number,
            plan.number if plan is not None else -1,
            plans[-1].number + 1,
            start,
            *self._admins[claim][request],
        )
        return (
            scope.first,
            done,
            len(self._ledger.picks[claim]),
            tuple(states[i] for i in self._pending[claim][request]),
            self._plain_keys(scope),
            self._group_keys(scope),
        )

    def _held(self, admin: int, position: int) -> int:
        """Whether a device is taken: 0 not, 1 yes, 2 by the claim whose admin requests mind that."""
        owners = self._ledger.owners.get(position)
        if owners is None:
            return 0
        return 2 if admin in owners else 1

    def _plain_keys(self, scope: NogoodScope) -> Hashable:
        """How many of each kind are left, before and after the current place where that makes a difference."""
        ledger, layout = self._ledger, self._layout
        touched: dict[int, list[int]] = {}
        for position in ledger.owners.keys() | ledger.used.keys():
            touched.setdefault(layout.kind_of[position], []).append(position)
        return tuple(
            self._free(scope, kind, touched.get(number, ()))
            for number, kind in self._plain
            if kind.newest >= scope.first
        )

    def _free(self, scope: NogoodScope, kind: DeviceSymmetryClass, touched: Sequence[int]) -> Hashable:
        split = bisect_left(kind.positions, scope.start) if scope.current in kind.plans else 0
        border = scope.start if split else 0
        before, after = split, len(kind.positions) - split
        marks: list[tuple[bool, int, tuple[int, ...]]] = []
        for position in touched:
            used = self._ledger.used.get(position)
            if position < border:
                before -= 1
            else:
                after -= 1
            if used is not None or scope.admins:
                marks.append((position >= border, self._held(scope.admin, position), used or ()))
        later = kind.newest >= scope.following
        marks.sort()
        return (after, before if later else 0, tuple(m for m in marks if later or m[0]))

    def _group_keys(self, scope: NogoodScope) -> Hashable:
        keys: dict[Hashable, int] = {}
        for number, group in enumerate(self._layout.groups):
            if group.newest < scope.first:
                continue
            place = 0
            if scope.current in group.plans:
                place = bisect_left(group.positions, scope.start)
                if place == len(group.positions) and group.newest < scope.following:
                    continue
            key = (place, self._group_state(scope.admin, number))
            keys[key] = keys.get(key, 0) + 1
        return frozenset(keys.items())

    def _group_state(self, admin: int, number: int) -> Hashable:
        known = self._group_states[number]
        state = known.get(admin)
        if state is None:
            state = known[admin] = self._compute_group_state(admin, self._layout.groups[number])
        return state

    def _compute_group_state(self, admin: int, group: CounterSymmetryClass) -> Hashable:
        """A device that its counters exclude need not be remembered as taken as well."""
        ledger = self._ledger
        left = ledger.left[group.view]
        touched = tuple(
            (place, self._held(admin, position), ledger.used.get(position))
            for place, position in enumerate(group.positions)
            if position in ledger.used or (position in ledger.owners and ledger.counters_fit(position))
        )
        return (group.type, tuple(left[counter] for counter in group.counters), touched)


def _pending_constraints(problem: AllocationProblem) -> list[list[tuple[int, ...]]]:
    """Per claim and request: the constraints that apply to it or to a later request of the claim."""
    pending = []
    for plans in problem.plans:
        found: list[tuple[int, ...]] = []
        known: set[int] = set()
        for request in reversed(plans):
            known |= {index for plan in request for index in plan.constraints}
            found.append(tuple(sorted(known)))
        pending.append(found[::-1])
    return pending


def _pending_admins(problem: AllocationProblem) -> list[list[tuple[int, bool]]]:
    """Per claim and request: the claim, if it or a later request of it has admin access, and whether anything has."""
    pending: list[list[tuple[int, bool]]] = []
    anywhere = False
    for number in range(len(problem.plans) - 1, -1, -1):
        found: list[tuple[int, bool]] = []
        here = -1
        for plans in reversed(problem.plans[number]):
            if any(plan.ask.admin for plan in plans):
                here, anywhere = number, True
            found.append((here, anywhere))
        pending.append(found[::-1])
    return pending[::-1]
