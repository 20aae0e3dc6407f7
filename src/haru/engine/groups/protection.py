"""Who may not be evicted yet, and who may not evict yet: protection by a minimum run time, and a preemption delay.

Both are off unless asked for. Work that has just started is left alone until it has run for a while, whoever comes; a
preemptor that would find room by itself in a moment is made to wait for that moment first.
Source: our own; 1.36 has neither.
"""

from __future__ import annotations

from haru.engine.cluster import Snapshot
from haru.engine.groups.fitting import Preemptor
from haru.engine.groups.unitbook import UnitBook
from haru.engine.groups.units import Unit
from haru.engine.run_times import epoch

DELAYED = "preemption waits: the preemption delay has not passed."


def candidates(snapshot: Snapshot, preemptor: Preemptor, node: str | None = None) -> list[Unit]:
    """The units that the preemptor may evict now: all of them, or those that have pods on a node."""
    book = UnitBook.of(snapshot, groups=preemptor.options.groups)
    units = book.below(preemptor.priority) if node is None else book.below_on(preemptor.priority, node)
    if not preemptor.options.minimum_run_time:
        return units
    return [unit for unit in units if _protected_until(unit, preemptor) is None]


def protection_ends(snapshot: Snapshot, preemptor: Preemptor) -> float | None:
    """When the first unit that the preemptor might evict loses its protection; None if none is protected."""
    if not preemptor.options.minimum_run_time:
        return None
    units = UnitBook.of(snapshot, groups=preemptor.options.groups).below(preemptor.priority)
    ends = (_protected_until(unit, preemptor) for unit in units)
    return min((end for end in ends if end is not None), default=None)


def may_evict_from(preemptor: Preemptor) -> float | None:
    """When the preemptor has waited long enough to evict others; None if it has."""
    options = preemptor.options
    if not options.preemption_delay:
        return None
    created = (epoch(pod.obj["metadata"].get("creationTimestamp")) for pod in preemptor.members)
    start = min((moment for moment in created if moment is not None), default=options.now)
    end = start + options.preemption_delay
    return end if end > options.now else None


def _protected_until(unit: Unit, preemptor: Preemptor) -> float | None:
    options = preemptor.options
    started = epoch(unit.started)
    end = (options.now if started is None else started) + options.minimum_run_time
    return end if end > options.now else None
