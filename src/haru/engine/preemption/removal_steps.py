"""How many equal members a node takes as its disruption units are removed one by one, the least important first.

The steps depend only on the node, its units and the members, so they are kept from one decision to the next, until the
node changes.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from haru.engine.podgroup.single_class_capacity import SingleClassCapacity
from haru.engine.preemption.disruption_units import DisruptionUnit
from haru.engine.preemption.node_occupancy import NodeOccupancy
from haru.engine.state.pod_info import PodInfo


class Step(NamedTuple):
    """The unit whose removal changes the count, and how many members the node takes after it."""

    unit: DisruptionUnit
    members: int


class RemovalSteps:
    """Hold the steps of a node that arithmetic counts; they are computed as far as they are asked for.

    `units` are the node's units, the most important first.
    """

    __slots__ = ("_count", "_found", "_free", "_left", "_removed", "_taken", "initial_count", "occupancy", "units")

    def __init__(self, occupancy: NodeOccupancy, units: Sequence[DisruptionUnit], count: int) -> None:
        self.occupancy = occupancy
        self.units = units
        self._found: list[Step] = []
        self._left = len(units)
        self._count = self.initial_count = count
        """How many members the node takes now, and with all units in place."""
        self._taken = occupancy.taken
        self._free: list[int] | None = None
        self._removed: list[PodInfo] = []
        """Removed pods of which `_free` does not know yet."""

    def step(self, index: int, counter: SingleClassCapacity) -> Step | None:
        """Return a step by its index; None if there are not as many. Raises as `SingleClassCapacity.count` does."""
        found = self._found
        while len(found) <= index:
            step = self._next(counter) if self._left else None
            if step is None:
                return None
            found.append(step)
        return found[index]

    def _next(self, counter: SingleClassCapacity) -> Step | None:
        left, taken, occupancy = self._left, self._taken, self.occupancy
        name, frees, devices = occupancy.info.name, occupancy.frees, occupancy.devices
        least = 0 if occupancy.shared else counter.least
        free, removed = self._free, self._removed.copy()
        while left:
            left -= 1
            unit = self.units[left]
            if len(unit.pods) == 1 and not unit.promised:
                pod = unit.pods[0]
                taken &= ~frees.get(pod.key.path, 0)
                removed.append(pod)
            else:
                for path, pod in unit.on(name):
                    taken &= ~frees.get(path, 0)
                    removed.append(pod)
            count = 0
            # Usually too few devices are free, of any kind, which is cheap to see.
            if (devices & ~taken).bit_count() < least:
                if not self._count:
                    continue
            elif free is None and not taken and len(removed) == len(occupancy.info.pods):
                count = counter.count_when_empty(occupancy)
            else:
                free = counter.free_of(occupancy.info) if free is None else free.copy()
                counter.add(free, removed)
                removed = []
                count = counter.count(occupancy, taken, free)
            if count != self._count:
                # Nothing is noted before the count is known: counting may raise an error.
                self._left, self._taken, self._free, self._removed, self._count = left, taken, free, removed, count
                return Step(unit, count)
        self._left = 0
        return None
