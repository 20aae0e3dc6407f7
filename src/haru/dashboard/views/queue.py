"""The queue: pending work, the most urgent first, and what `haru.explain` explains for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.dashboard.views.workloads import EVERYTHING, Filter, Workload, workload
from haru.engine import Snapshot
from haru.engine.state import PodInfo
from haru.explain.entry import SubjectKind
from haru.explain.results import Explanation
from haru.kube.meta import Obj, get_condition

Subject = tuple[SubjectKind, Obj]


@dataclass(frozen=True, slots=True)
class WaitingWorkload:
    """A workload with `pods` pending pods, the oldest since `since` (RFC 3339); `said` is from their conditions."""

    workload: Workload
    pods: int
    since: str
    priority: int
    said: str


@dataclass(frozen=True, slots=True)
class ShownExplanation:
    """An explanation; `as_of` (RFC 3339) is its time if the cluster has changed since, else empty."""

    explanation: Explanation
    as_of: str = ""


def waiting_work(snapshot: Snapshot, chosen: Filter = EVERYTHING) -> tuple[WaitingWorkload, ...]:
    """List pending work in the order of scheduling: by priority, then by age."""
    groups: dict[Workload, list[PodInfo]] = {}
    for pod in snapshot.pods.values():
        if is_waiting(pod) and chosen.takes(work := workload(pod)):
            groups.setdefault(work, []).append(pod)
    found = [_waiting(work, pods) for work, pods in groups.items()]
    return tuple(sorted(found, key=lambda w: (-w.priority, w.since, w.workload)))


def is_waiting(pod: PodInfo) -> bool:
    """Tell whether a pod is to be scheduled."""
    return not (pod.node or pod.terminal or pod.deleting)


def _waiting(work: Workload, pods: Sequence[PodInfo]) -> WaitingWorkload:
    since = min(created_at(pod) for pod in pods)
    said = next((text for pod in sorted(pods, key=lambda pod: pod.key) if (text := _said(pod))), "")
    return WaitingWorkload(work, len(pods), since, max(pod.priority for pod in pods), said)


def created_at(pod: PodInfo) -> str:
    """Return a pod's creation time; empty if it has none."""
    return str(pod.obj["metadata"].get("creationTimestamp") or "")


def _said(pod: PodInfo) -> str:
    condition = get_condition(pod.obj, "PodScheduled") or {}
    return str(condition.get("message") or condition.get("reason") or "")


def subject(snapshot: Snapshot, work: Workload, pods: Sequence[PodInfo]) -> Subject | None:
    """Find the object to explain: the workload's Job, PodGroup or claim, else a pod, a pending one if any."""
    kind, _, name = work.name.partition("/")
    path = f"{work.namespace}/{name}"
    own: Obj | None = None
    if kind == "job":
        own = snapshot.objects("Job").get(path)
    elif kind == "podgroup":
        own = snapshot.pod_groups.get(path)
    elif kind == "resourceclaim":
        own = snapshot.claims.get(path)
    if own is not None:
        return kind, own  # type: ignore[return-value]
    first = min(pods, key=lambda pod: (not is_waiting(pod), pod.key), default=None)
    return ("pod", first.obj) if first is not None else None


def pods_of(snapshot: Snapshot, work: Workload) -> tuple[PodInfo, ...]:
    """List the pods of a workload, by name. `pod/NAME` is that pod, whatever its owner."""
    kind, _, name = work.name.partition("/")
    if kind == "pod":
        pod = snapshot.pods.get(f"{work.namespace}/{name}")
        return (pod,) if pod is not None else ()
    if kind == "podgroup":
        found = [
            p for p in snapshot.pods.values() if p.group is not None and p.group.path == f"{work.namespace}/{name}"
        ]
    else:
        found = [pod for pod in snapshot.pods.values() if pod.key.namespace == work.namespace and workload(pod) == work]
    return tuple(sorted(found, key=lambda pod: pod.key))
