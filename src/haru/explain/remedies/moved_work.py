"""Running work that could go elsewhere: it ends, the waiting work takes its place, and then it finds another.

Only work that no controller makes anew is moved by hand: what a controller makes at once might take its old place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine import Options, Snapshot
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import create, delete, listed, pod_manifest
from haru.explain.diagnosis.victims import Victim
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.render.wording import counted

_MOST_MOVED = 8


def move(snapshot: Snapshot, work: WorkloadUnit, options: Options, ended: Sequence[Victim]) -> Iterator[Remedy]:
    """The same work that would have to end, if all of it finds room elsewhere once the waiting work has its place."""
    pods = [pod for unit in ended for pod in unit.pods]
    if not pods or len(pods) > _MOST_MOVED or any(pod.controller is not None for pod in pods):
        return
    freed = hypothesis.without_pods(snapshot, [pod.key.path for pod in pods])
    first = work.decision(freed, options)
    if first is None or first.status != "scheduled":
        return
    world = hypothesis.with_places(freed, first)
    where: dict[str, str] = {}
    for unit in ended:
        again = [_waiting(pod) for pod in unit.pods]
        world = hypothesis.with_pods(world, again)
        moved = WorkloadUnit(tuple(pod.key.path for pod in again), unit.pods[0].group, work.questions)
        found = moved.decision(world, options)
        if found is None or found.status != "scheduled" or len(found.placed) < len(again):
            return
        where.update((member.pod.path, member.node or "") for member in found.placed)
        world = hypothesis.with_places(world, found)
    yield _remedy(pods, where)


def _remedy(pods: Sequence[PodInfo], where: dict[str, str]) -> Remedy:
    ways = listed([f"{pod.key.name} from {pod.node} to {where[pod.key.path]}" for pod in pods])
    changes = [delete("v1", "Pod", pod.key.name, pod.key.namespace) for pod in pods]
    changes += [create(pod_manifest(pod.obj)) for pod in pods]
    costs = f"{counted(len(pods), 'running pod')} started anew elsewhere, created once the waiting work has its place"
    return Remedy("MoveWork", f"move {ways}", tuple(changes), 8 + len(pods), True, costs)


def _waiting(pod: PodInfo) -> PodInfo:
    """The pod as it would be created again, with the claims that it has."""
    statuses = {key: value for key, value in pod.status.items() if key == "resourceClaimStatuses"}
    spec = {key: value for key, value in pod.spec.items() if key != "nodeName"}
    return PodInfo.of({**pod.obj, "spec": spec, "status": {**statuses, "phase": "Pending"}})
