"""Places that the scheduler keeps for the head of its queue, and work that would take them.

Which places these are the scheduler keeps to itself; the object that they are kept for says so in a condition. They are
found again by the scheduler's own search on the cluster as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haru.engine import Options, Reason, Snapshot, reserve_earliest_start
from haru.engine.backfill import BackfillReservation, is_reserved
from haru.engine.state import GroupKey, Obj, namespaced_name, time_text
from haru.explain.diagnosis.workload_unit import WorkloadUnit


def blocking_backfill(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Reason | None:
    """Why work that has a free place waits all the same: the place is kept for somebody else."""
    holder = next((obj for obj in _objects(snapshot) if is_reserved(obj)), None)
    if holder is None:
        return None
    found = _reservation(snapshot, holder, options)
    if found is None or work.decide(replace(snapshot, reservation=found), options).status == "scheduled":
        return None
    name = f"{holder['kind'].lower()} {namespaced_name(holder)}"
    data: dict[str, Any] = {"for": name}
    text = f"a place is free for it, but kept for {name}, which is the head of the queue"
    if found.until is not None:
        data["until"] = time_text(found.until)
        text += f" and starts by {data['until']} at the latest; work that has ended by then goes first"
    return Reason("Reserved", text, data)


def _objects(snapshot: Snapshot) -> list[Obj]:
    return [*snapshot.pod_groups.values(), *(p.obj for p in snapshot.pods.values() if not (p.node or p.terminal))]


def _reservation(snapshot: Snapshot, holder: Obj, options: Options) -> BackfillReservation | None:
    if holder["kind"] == "Pod":
        return reserve_earliest_start(snapshot, [holder], group=None, options=options)
    paths = sorted(snapshot.group_state(GroupKey(*namespaced_name(holder).split("/", 1))).unscheduled)
    return reserve_earliest_start(snapshot, [snapshot.pods[path].obj for path in paths], group=holder, options=options)
