"""The backfill reservation of the head of the queue, as its published condition lets it be found again."""

from __future__ import annotations

from collections.abc import Iterable

from haru.engine import Options, Snapshot, reserve_earliest_start
from haru.engine.backfill import BackfillReservation, is_reserved
from haru.engine.state import GroupKey, namespaced_name
from haru.explain.pending_pods import pending_pods
from haru.kube.meta import Obj


def published_reservation(
    snapshot: Snapshot, options: Options, among: Iterable[Obj] | None = None
) -> tuple[Obj, BackfillReservation] | None:
    """The pod or PodGroup that places are kept for, and these places; None if there is no such work.

    It is one of `among`, by default of all that wait.
    """
    holder = next((obj for obj in (_objects(snapshot) if among is None else among) if is_reserved(obj)), None)
    if holder is None:
        return None
    found = _reservation(snapshot, holder, options)
    return None if found is None else (holder, found)


def _objects(snapshot: Snapshot) -> list[Obj]:
    return [*snapshot.pod_groups.values(), *(pod.obj for _, pod in sorted(pending_pods(snapshot).items()))]


def _reservation(snapshot: Snapshot, holder: Obj, options: Options) -> BackfillReservation | None:
    if holder["kind"] == "Pod":
        return reserve_earliest_start(snapshot, [holder], group=None, options=options)
    paths = sorted(snapshot.group_state(GroupKey(*namespaced_name(holder).split("/", 1))).unscheduled)
    return reserve_earliest_start(snapshot, [snapshot.pods[path].obj for path in paths], group=holder, options=options)
