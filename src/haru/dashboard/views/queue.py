"""The queue: pending work, the most urgent first, and what `haru.explain` explains for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from haru.dashboard.views import tables
from haru.dashboard.views.tables import Cell, Column, Table
from haru.dashboard.views.workloads import EVERYTHING, Filter, Workload, workload
from haru.engine import Snapshot
from haru.engine.state import PodInfo, differing, namespaced_name
from haru.explain.object_names import ExplainedKind
from haru.explain.pending_rows import MAKER_KINDS, made_for, makers_without_pods, missing_pods
from haru.explain.results import Explanation
from haru.kube.meta import Obj, get_condition

Subject = tuple[ExplainedKind, Obj]


@dataclass(frozen=True, slots=True)
class WaitingWorkload:
    """A workload with `pods` pods that are pending or not made, since `since` (RFC 3339).

    `said` is from their conditions.
    """

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


class KnownPods:
    """The pods of one snapshot by workload, by PodGroup and as they wait, kept for the next. For one thread."""

    def __init__(self) -> None:
        self._pods: Mapping[str, PodInfo] = {}
        self._of: dict[tuple[str, Workload | str], dict[str, PodInfo]] = {}
        self._waiting: dict[Workload, WaitingWorkload] = {}

    def at(self, snapshot: Snapshot) -> Self:
        """Go on to a snapshot; only the pods that differ are looked at."""
        before, now = self._pods, snapshot.pods
        touched: set[Workload] = set()
        for path in differing(now, before):
            for pod, is_new in ((before.get(path), False), (now.get(path), True)):
                if pod is None:
                    continue
                touched.add(workload(pod))
                for key in _keys(pod):
                    self._note(key, path, pod if is_new else None)
        self._pods = now
        for work in touched:
            if waiting := list(self.of("waiting", work)):
                self._waiting[work] = _waiting(work, waiting)
            else:
                self._waiting.pop(work, None)
        return self

    def _note(self, key: tuple[str, Workload | str], path: str, pod: PodInfo | None) -> None:
        known = self._of.setdefault(key, {})
        if pod is not None:
            known[path] = pod
            return
        known.pop(path, None)
        if not known:
            del self._of[key]

    def of(self, what: str, which: Workload | str) -> Iterable[PodInfo]:
        """The pods of a `workload`, of a PodGroup (`group`, by its path), or those of a workload that are `waiting`."""
        return self._of.get((what, which), {}).values()

    def waiting(self) -> Iterable[WaitingWorkload]:
        """All pending work."""
        return self._waiting.values()


def _keys(pod: PodInfo) -> Iterator[tuple[str, Workload | str]]:
    work = workload(pod)
    yield "workload", work
    if is_waiting(pod):
        yield "waiting", work
    if pod.group is not None:
        yield "group", pod.group.path


def waiting_work(
    snapshot: Snapshot, chosen: Filter = EVERYTHING, known: KnownPods | None = None
) -> tuple[WaitingWorkload, ...]:
    """List pending work in the order of scheduling: by priority, then by age; also work whose pods are not made."""
    index = (known or KnownPods()).at(snapshot)
    found = {each.workload: each for each in index.waiting() if chosen.takes(each.workload)}
    unmade: dict[Workload, WaitingWorkload] = {}
    for kind, maker, missing in makers_without_pods(snapshot):
        work = Workload(namespaced_name(maker).partition("/")[0], made_for(kind, maker))
        if work not in found and chosen.takes(work):
            since = str(maker["metadata"].get("creationTimestamp") or "")
            before = unmade.get(work, WaitingWorkload(work, 0, since, 0, ""))
            pods = before.pods + missing_pods(maker, missing)
            unmade[work] = replace(before, pods=pods, since=min(before.since, since))
    return tuple(sorted((found | unmade).values(), key=lambda w: (-w.priority, w.since, w.workload)))


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
    if not work.namespace:
        return None  # work of many, of which nothing is told
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
    if first is None or not is_waiting(first):
        for maker_kind, maker, _ in makers_without_pods(snapshot, partial(_makes, work)):
            return MAKER_KINDS[maker_kind], maker
    return ("pod", first.obj) if first is not None else None


def _makes(work: Workload, kind: str, maker: Obj) -> bool:
    return made_for(kind, maker) == work.name and namespaced_name(maker).startswith(f"{work.namespace}/")


def pods_of(snapshot: Snapshot, work: Workload, known: KnownPods | None = None) -> tuple[PodInfo, ...]:
    """List the pods of a workload, by name. `pod/NAME` is that pod, whatever its owner."""
    kind, _, name = work.name.partition("/")
    if kind == "pod":
        pod = snapshot.pods.get(f"{work.namespace}/{name}")
        return (pod,) if pod is not None else ()
    index = (known or KnownPods()).at(snapshot)
    which: Workload | str = f"{work.namespace}/{name}" if kind == "podgroup" else work
    found = index.of("group" if kind == "podgroup" else "workload", which)
    return tuple(sorted(found, key=lambda pod: pod.key))


COLUMNS = (
    Column("workload", "Workload"),
    Column("verdict", "Verdict"),
    Column("pods", "Pods", numeric=True),
    Column("priority", "Priority", numeric=True),
    Column("since", "Waits since"),
    Column("why", "Why"),
)
_TONES = {"Runs": "good", "Starting": "good", "FitsLater": "later", "FitsIf": "later", "NeverFits": "bad"}


def queue_table(
    found: Sequence[WaitingWorkload], explanations: Mapping[Workload, ShownExplanation], query: Mapping[str, str]
) -> Table:
    """Make the table of what waits, in the order of scheduling unless the query says otherwise."""
    return tables.table("queue", "What waits", COLUMNS, [_cells(each, explanations) for each in found], query)


def _cells(each: WaitingWorkload, explanations: Mapping[Workload, ShownExplanation]) -> tuple[Cell, ...]:
    shown = explanations.get(each.workload)
    told = shown.explanation if shown is not None else None
    return (
        tables.work(each.workload),
        tables.badge(told.verdict, _TONES[told.verdict]) if told is not None else tables.text(""),
        tables.number(each.pods),
        tables.number(each.priority),
        tables.time(each.since),
        tables.text(told.summary if told is not None else each.said),
    )
