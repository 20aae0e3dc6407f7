"""The running work whose end could make room."""

from __future__ import annotations

from dataclasses import dataclass

from haru.engine import Snapshot
from haru.engine.state import PodInfo
from haru.explain.diagnosis.workload_unit import WorkloadUnit


@dataclass(frozen=True, slots=True)
class Victim:
    """Work that ends as a whole: a pod by itself, or the running pods of a group."""

    name: str
    priority: int
    pods: tuple[PodInfo, ...]


def victims(snapshot: Snapshot, work: WorkloadUnit) -> list[Victim]:
    """All running work but the one in question; the most important first."""
    own = set(work.paths)
    singles: list[Victim] = []
    groups: dict[str, list[PodInfo]] = {}
    for path, pod in snapshot.pods.items():
        if not pod.node or pod.terminal or path in own or (pod.group is not None and pod.group == work.group):
            continue
        if pod.group is None:
            singles.append(Victim(path, pod.priority, (pod,)))
        else:
            groups.setdefault(pod.group.path, []).append(pod)
    wholes = [Victim(path, max(p.priority for p in pods), tuple(pods)) for path, pods in groups.items()]
    return sorted([*singles, *wholes], key=lambda u: (-u.priority, -len(u.pods), u.name))
