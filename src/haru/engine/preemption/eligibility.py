"""Decide which units may be evicted and when a preemptor may evict: minimum run time and preemption delay.

Both are off by default. The minimum run time protects recently started units from every preemptor. The preemption
delay gives a preemptor time to find a place without evictions first.
Source: our own; 1.36 has neither.
"""

from __future__ import annotations

from haru.engine.preemption.disruption_units import DisruptionUnit
from haru.engine.preemption.feasibility_oracle import Preemptor
from haru.engine.preemption.victim_index import VictimIndex
from haru.engine.state.cache import Snapshot
from haru.engine.state.deadlines import epoch

DELAYED = "preemption waits: the preemption delay has not passed."


def evictable_pods(snapshot: Snapshot, preemptor: Preemptor, node: str | None = None) -> list[DisruptionUnit]:
    """Return the units that the preemptor may evict now, of the cluster or of one node."""
    index = VictimIndex.of(snapshot, groups=preemptor.info.options.gates.groups)
    units = index.below(preemptor.priority) if node is None else index.below_on(preemptor.priority, node)
    if not preemptor.info.options.preemption.minimum_run_time:
        return units
    return [unit for unit in units if _protected_until(unit, preemptor) is None]


def protection_ends(snapshot: Snapshot, preemptor: Preemptor) -> float | None:
    """Return when the first protected candidate loses its protection; None if none is protected."""
    if not preemptor.info.options.preemption.minimum_run_time:
        return None
    units = VictimIndex.of(snapshot, groups=preemptor.info.options.gates.groups).below(preemptor.priority)
    ends = (_protected_until(unit, preemptor) for unit in units)
    return min((end for end in ends if end is not None), default=None)


def may_evict_from(preemptor: Preemptor) -> float | None:
    """Return when the preemption delay ends; None if it has passed."""
    options = preemptor.info.options
    if not options.preemption.preemption_delay:
        return None
    creation_times = (epoch(pod.obj["metadata"].get("creationTimestamp")) for pod in preemptor.info.members)
    start = min((created_at for created_at in creation_times if created_at is not None), default=options.now)
    end = start + options.preemption.preemption_delay
    return end if end > options.now else None


def _protected_until(unit: DisruptionUnit, preemptor: Preemptor) -> float | None:
    options = preemptor.info.options
    started = epoch(unit.started)
    end = (options.now if started is None else started) + options.preemption.minimum_run_time
    return end if end > options.now else None
