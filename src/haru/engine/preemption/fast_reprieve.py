"""Find the victims for equal members by counts per node: remove units until enough members fit, then reprieve.

This is the rule of `reprieve` for the case that feasibility is a sum over nodes, and more removed units never make a
node take fewer members. While units are removed, only those are looked at that change the count of a node
(`RemovalSteps`). Then only nodes that take members, in node sets with enough of them, can need their victims: all other
units are put back unseen.
Source: KEP-5710 (reprieve), docs/adr/0004; how it is counted is our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.preemption.disruption_units import DisruptionUnit
from haru.engine.preemption.node_counter import NodeCounter, NodeState
from haru.engine.preemption.removal_steps import RemovalSteps
from haru.engine.preemption.removal_timeline import Removal


class FastReprieve:
    """Hold candidates in reprieve order and the member counts of their nodes.

    `places` are the disjoint sets of nodes to choose from.
    """

    def __init__(self, units: Sequence[DisruptionUnit], places: Sequence[Sequence[str]], counter: NodeCounter) -> None:
        self._units = units
        self._counter = counter
        self._removed = bytearray(len(units))
        counter.begin(units, self._removed)
        self._initial = counter.initial_counts(places)
        self._totals = list(self._initial.totals)
        self._target = 0
        self._sets_at_target = 0  # the number of node sets with at least the target count
        self._counts: dict[str, int] = {}
        """The counts that differ, or did, from the initial ones."""
        self._seen: set[str] = set()
        """The nodes of the units removed so far."""
        self._due: dict[DisruptionUnit, list[tuple[str, RemovalSteps, int]]] = {}
        """By unit: the nodes whose count changes when it is removed, with the index of that step."""
        self._filtered: set[str] = set()
        """Nodes that have to be filtered after each of their units."""
        self._log: list[tuple[int, str, int]] = []
        """The counts that changed, by number of the removed unit."""

    def victims(self, enough: int, needed: int) -> tuple[list[int], int] | None:
        """Return the numbers of the victims and how many members fit: as many as can, at most `enough`.

        Return None if fewer than `needed` fit without all units.
        """
        removal = self._counter.removal(self._initial, self._units, enough)
        if removal is not None:
            begin, fit = self._take_over(removal)
        else:
            begin = self._remove_until(enough)
            fit = min(enough, max(self._totals, default=0))
            if needed <= fit < enough:
                # The target is known only now: stop where that many members fit first.
                begin = self._rewind(fit)
        if fit < needed:
            return None
        if begin == len(self._units):
            return [], fit
        return [begin, *self._victims_after(begin)], fit

    def usable_nodes(self) -> list[tuple[str, ...]]:
        """Return, of each node set with enough members, the nodes that take any in the current state."""
        changed: list[list[tuple[str, int]]] = [[] for _ in self._totals]
        for name, count in self._counts.items():
            changed[self._initial.location[name][0]].append((name, count))
        numbers = [number for number, total in enumerate(self._totals) if total >= self._target]
        return [self._initial.usable(number, changed[number]) for number in numbers]

    def _take_over(self, removal: Removal) -> tuple[int, int]:
        """Go to a state found at once; return the number of the last removed unit, and how many members fit."""
        self._totals, self._counts, self._seen = removal.totals, removal.counts, removal.nodes
        self._removed[removal.begin :] = b"\x01" * (len(self._units) - removal.begin)
        self._aim_at(removal.fit)
        return removal.begin, removal.fit

    def _remove_until(self, target: int) -> int:
        """Remove units from the end of the order until so many members fit; return the number of the last removed."""
        self._aim_at(target)
        begin = len(self._units)
        while begin and not self._sets_at_target:
            begin -= 1
            self._remove(begin)
        return begin

    def _rewind(self, target: int) -> int:
        """Put all removed units back that were removed after so many members fit; return the number of the last."""
        self._totals = list(self._initial.totals)
        self._counts.clear()
        self._aim_at(target)
        log, self._log = self._log, []
        begin = len(self._units)
        for number, node, count in log:
            if number != begin and self._sets_at_target:
                break
            begin = number
            self._put(number, node, count)
        self._removed[:begin] = bytes(begin)
        return begin

    def _aim_at(self, target: int) -> None:
        self._target = target
        self._sets_at_target = sum([total >= target for total in self._totals])

    def _remove(self, number: int) -> None:
        """Remove a unit, and update the counts that change."""
        self._removed[number] = 1
        unit, seen = self._units[number], self._seen
        for node in unit.nodes:
            if node not in seen:
                seen.add(node)
                self._meet(node)
        if unit in self._due:
            for node, steps, index in self._due.pop(unit):
                self._take_step(number, node, steps, index)
        if self._filtered:
            for node in self._filtered.intersection(unit.nodes):
                self._put(number, node, self._counter.count_by_filtering(node))

    def _meet(self, node: str) -> None:
        """Note when the count of a node changes first."""
        location = self._initial.location.get(node)
        if location is None:
            return
        steps = self._counter.removal_steps(node, self._initial.counts[location[0]][location[1]])
        if steps is None:
            self._filtered.add(node)
        else:
            self._note_step(node, steps, 0)

    def _note_step(self, node: str, steps: RemovalSteps, index: int) -> None:
        step = self._counter.step(steps, index)
        if step is not None:
            self._due.setdefault(step.unit, []).append((node, steps, index))

    def _take_step(self, number: int, node: str, steps: RemovalSteps, index: int) -> None:
        step = self._counter.step(steps, index)
        assert step is not None
        self._put(number, node, step.members)
        self._note_step(node, steps, index + 1)

    def _put(self, number: int, node: str, count: int) -> None:
        """Set the count of a node after the removal of a unit."""
        domain, index = self._initial.location[node]
        before = self._counts.get(node, self._initial.counts[domain][index])
        if count != before:
            self._log.append((number, node, count))
            self._set(node, domain, before, count)

    def _set(self, node: str, domain: int, before: int, count: int) -> None:
        total = self._totals[domain]
        self._counts[node] = count
        self._totals[domain] = total + count - before
        self._sets_at_target += (total + count - before >= self._target) - (total >= self._target)

    def _victims_after(self, begin: int) -> list[int]:
        """Put the units after the first victim back where as many members still fit; return the others."""
        numbers = dict(zip(self._units[begin:], range(begin, len(self._units)), strict=True))
        states: dict[str, NodeState] = {}
        concerned: set[int] = set()
        for node in self._seen_at_target():
            domain, index = self._initial.location[node]
            count = self._counts.get(node, self._initial.counts[domain][index])
            if count:
                states[node], removed = self._state(node, count, domain, numbers)
                concerned.update(removed)
        self._removed[begin + 1 :] = bytes(len(self._units) - begin - 1)
        for number in concerned:
            self._removed[number] = 1
        concerned.discard(begin)
        return [number for number in sorted(concerned) if not self._reprieve(number, states)]

    def _seen_at_target(self) -> list[str]:
        """Return the nodes of removed units in sets with enough members: found among whichever are fewer."""
        sets, location, seen = self._initial.sets, self._initial.location, self._seen
        chosen = {number for number, total in enumerate(self._totals) if total >= self._target}
        if sum([len(sets[number]) for number in chosen]) < len(seen):
            return [node for number in chosen for node in sets[number] if node in seen]
        return [node for node in seen if (place := location.get(node)) is not None and place[0] in chosen]

    def _state(
        self, node: str, count: int, domain: int, numbers: dict[DisruptionUnit, int]
    ) -> tuple[NodeState, list[int]]:
        """Return the state of a node without the removed units, which `numbers` has, and the numbers of its own."""
        removed = [unit for unit in self._counter.units_on(node) if unit in numbers]
        pods = [pod for unit in removed for pod in unit.on(node)]
        return self._counter.state(node, count, domain, pods), [numbers[unit] for unit in removed]

    def _reprieve(self, number: int, states: dict[str, NodeState]) -> bool:
        """Put a unit back if as many members still fit."""
        unit = self._units[number]
        before = {node: states[node] for node in unit.nodes if node in states}
        if self._sets_at_target == 1 and self._lacks_devices(unit, before):
            return False
        self._removed[number] = 0
        for node, state in before.items():
            states[node] = self._counter.with_pods(node, state, unit.on(node))
            self._set(node, state.domain, state.members, states[node].members)
        if self._sets_at_target:
            return True
        self._removed[number] = 1
        for node, state in before.items():
            self._set(node, state.domain, states[node].members, state.members)
        states.update(before)
        return False

    def _lacks_devices(self, unit: DisruptionUnit, before: dict[str, NodeState]) -> bool:
        """Tell whether the only set with enough members had too few devices left for them with a unit back."""
        spare = lost = 0
        for node, state in before.items():
            if self._totals[state.domain] >= self._target:
                spare = self._totals[state.domain] - self._target
                lost += state.members - self._counter.most_with_pods(state, unit.on(node))
        return lost > spare
