"""Remembered failures: a state of the walk in which the rest is known to lead nowhere, up to what devices are called.

The key of a state holds only what the rest of the walk can tell apart: how many devices of each kind are free before
and after the place where the current request has got to, the groups of devices with what is left of their counters
(as a bag, for equal groups are equal), shares in use, and the constraints that still apply.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable

from haru.engine.devices.board import Board, Plan
from haru.engine.devices.layout import Group, Kind, Layout
from haru.engine.devices.ledger import Ledger


class Memory:
    """Makes keys of states and keeps those that failed."""

    def __init__(self, board: Board, layout: Layout, ledger: Ledger) -> None:
        self._board = board
        self._layout = layout
        self._ledger = ledger
        self._plain = [k for k in layout.kinds if layout.group_of[k.positions[0]] < 0]
        self._owners_matter = any(p.ask.admin for claim in board.plans for plans in claim for p in plans)
        self._pending = _pending_constraints(board)
        self._group_states: list[Hashable] = [None] * len(layout.groups)
        self.failed: dict[Hashable, bool] = {}

    def changed(self, position: int) -> None:
        """A device was taken or given back: what is known of its group is out of date."""
        group = self._layout.group_of[position]
        if group >= 0:
            self._group_states[group] = None

    def device_key(self, position: int) -> Hashable:
        """Equal keys: as things stand, one device is as good as the other."""
        layout, ledger = self._layout, self._ledger
        kind, group = layout.kind_of[position], layout.group_of[position]
        if group < 0:
            return (kind, ledger.owners.get(position), ledger.used.get(position))
        return (kind, layout.place[position], self._group_state(group))

    def state_key(self, claim: int, request: int, plan: Plan | None, done: int, start: int) -> Hashable:
        """Equal keys: the rest of the walk goes alike."""
        ledger = self._ledger
        first = plan.number if plan is not None else self._board.plans[claim][request][0].number
        following = self._following(claim, request)
        current = plan.number if plan is not None else -1
        states = ledger.states[claim]
        return (
            first,
            done,
            len(ledger.picks[claim]),
            tuple(states[i] for i in self._pending[claim][request]),
            tuple(self._free(k, current, following, start) for k in self._plain if k.newest >= first),
            self._group_keys(first, current, following, start),
        )

    def _following(self, claim: int, request: int) -> int:
        """The number of the first plan after this request."""
        return self._board.plans[claim][request][-1].number + 1

    def _free(self, kind: Kind, current: int, following: int, start: int) -> Hashable:
        """How many of a kind are left, before and after the current place where that makes a difference."""
        ledger = self._ledger
        positions = kind.positions
        split = bisect_left(positions, start) if current in kind.plans else 0
        touched: list[tuple[bool, object, object]] = []
        after, before = len(positions) - split, split
        for index, position in enumerate(positions):
            owners, used = ledger.owners.get(position), ledger.used.get(position)
            if owners is None and used is None:
                continue
            if index < split:
                before -= 1
            else:
                after -= 1
            if used is not None or self._owners_matter:
                touched.append((index >= split, owners or (), used or ()))
        later = kind.newest >= following
        if touched:
            touched.sort(key=repr)
        return (after, before if later else 0, tuple(t for t in touched if later or t[0]))

    def _group_keys(self, first: int, current: int, following: int, start: int) -> Hashable:
        keys: dict[Hashable, int] = {}
        for number, group in enumerate(self._layout.groups):
            if group.newest < first:
                continue
            place = 0
            if current in group.plans:
                place = bisect_left(group.positions, start)
                if place == len(group.positions) and group.newest < following:
                    continue
            key = (place, self._group_state(number))
            keys[key] = keys.get(key, 0) + 1
        return frozenset(keys.items())

    def _group_state(self, number: int) -> Hashable:
        state = self._group_states[number]
        if state is None:
            state = self._group_states[number] = self._compute_group_state(self._layout.groups[number])
        return state

    def _compute_group_state(self, group: Group) -> Hashable:
        ledger = self._ledger
        left = ledger.left[group.view]
        touched = tuple(
            (place, ledger.owners.get(position, ()), ledger.used.get(position))
            for place, position in enumerate(group.positions)
            if (position in ledger.owners or position in ledger.used) and self._still_matters(position)
        )
        return (group.type, tuple(left[counter] for counter in group.counters), touched)

    def _still_matters(self, position: int) -> bool:
        """A device that its counters exclude need not be remembered as taken as well."""
        if self._owners_matter or position in self._ledger.used:
            return True
        return self._ledger.counters_fit(position)


def _pending_constraints(board: Board) -> list[list[tuple[int, ...]]]:
    """Per claim and request: the constraints that apply to it or to a later request of the claim."""
    pending = []
    for plans in board.plans:
        found: list[tuple[int, ...]] = []
        known: set[int] = set()
        for request in reversed(plans):
            known |= {index for plan in request for index in plan.constraints}
            found.append(tuple(sorted(known)))
        pending.append(found[::-1])
    return pending
