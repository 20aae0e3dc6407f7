"""Which running work has to end before waiting work starts, and when that is, as far as run-time limits tell.

It is the search by which the scheduler keeps places for the head of its queue (docs/adr/0007).
"""

from __future__ import annotations

from haru.engine import Options, Snapshot, reserve_earliest_start
from haru.engine.state import time_text
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Later


def later(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Later | None:
    """What refused work waits for; None where the end of running work does not help it."""
    pods = [pod.obj for pod in work.pending(snapshot)]
    found = reserve_earliest_start(snapshot, pods, group=work.pod_group(snapshot), options=options)
    if found is None or not found.waits_for:
        return None
    until = "" if found.until is None else time_text(found.until)
    return Later(tuple(sorted(pod.path for pod in found.waits_for)), until)
