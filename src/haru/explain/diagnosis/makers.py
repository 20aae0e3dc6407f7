"""Workloads that wait for pods: of one snapshot after another, what differs is looked at."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from haru.engine import Snapshot
from haru.engine.state import Mark, PodInfo, mark_of, written_since
from haru.gangs import JOB_SET, SEPARATOR
from haru.kube.meta import Obj, controller_of, get_condition

MAKERS: Final = ("Job", "ReplicaSet", "StatefulSet")
"""The kinds whose next pod is known before it is made."""
_KINDS: Final = (*MAKERS, "DaemonSet")
_Place = tuple[str, str]
"""The kind of a maker, and its path."""


def author_of(snapshot: Snapshot, namespace: str, work: str) -> str:
    """What its author calls some work: the TrainJob that made a JobSet (`trainjob/t`), else as it is called."""
    kind, _, name = work.partition("/")
    if kind.lower() != JOB_SET.kind.lower():
        return work
    made, separator, part = name.partition(SEPARATOR)
    owner = controller_of(snapshot.objects(JOB_SET.key).get(f"{namespace}/{made}") or {"metadata": {}})
    if owner is None or owner["kind"] != "TrainJob":
        return work
    return f"trainjob/{owner['name']}{separator}{part}"


def lacking(snapshot: Snapshot, maker: Obj, living: Mapping[str, int] | None = None) -> int:
    """How many pods a Job, ReplicaSet, StatefulSet or DaemonSet lacks; `living`: pods that have not ended, by owner."""
    found = _found(snapshot)[0] if living is None else living
    return max(0, wanted_pods(maker) - found.get(str(maker["metadata"].get("uid")), 0))


def waiting_makers(snapshot: Snapshot) -> Iterator[tuple[Obj, int]]:
    """Return all that lack pods, or are suspended Jobs, and how many pods they lack."""
    living, places = _found(snapshot)
    for kind, path in places:
        maker = {**snapshot.objects(kind)[path], "kind": kind}
        yield maker, lacking(snapshot, maker, living)


def wanted_pods(maker: Obj) -> int:
    """How many living pods a workload wants to have."""
    spec, status = maker.get("spec") or {}, maker.get("status") or {}
    if maker["metadata"].get("deletionTimestamp"):
        return 0
    if maker["kind"] == "DaemonSet":
        return int(status.get("desiredNumberScheduled") or 0)  # by the nodes that its controller counts
    if maker["kind"] != "Job":
        return int(1 if spec.get("replicas") is None else spec["replicas"])
    if spec.get("suspend") or _has_ended(maker):
        return 0
    wanted = int(1 if spec.get("parallelism") is None else spec["parallelism"])
    if spec.get("completions") is None:
        return wanted
    return min(wanted, int(spec["completions"]) - int(status.get("succeeded") or 0))


def is_suspended(job: Obj) -> bool:
    """Whether a Job that has not ended makes no pods until it is resumed."""
    return bool((job.get("spec") or {}).get("suspend")) and not _has_ended(job)


def _has_ended(job: Obj) -> bool:
    return any((get_condition(job, name) or {}).get("status") == "True" for name in ("Complete", "Failed"))


def _found(snapshot: Snapshot) -> tuple[Mapping[str, int], list[_Place]]:
    """Return how many living pods each owner has, by uid, and the makers that lack some or are suspended."""
    known: deque[_Makers] = snapshot.decision_cache.get_or_compute("makers of pods", None, lambda: deque(maxlen=1))
    try:
        makers = known.pop()  # who has taken it out has it alone: other threads begin anew meanwhile
    except IndexError:
        makers = _Makers()
    found = makers.of(snapshot)
    known.append(makers)
    return found


class _Makers:
    """What is known of the makers of one cluster."""

    def __init__(self) -> None:
        self._marks: dict[str, Mark | None] = {}
        self._owners: dict[str, str] = {}
        """The uid of the owner of each living pod."""
        self._living: Counter[str] = Counter()
        self._uids: dict[_Place, str] = {}
        self._places: dict[str, _Place] = {}
        self._waiting: set[_Place] = set()

    def of(self, snapshot: Snapshot) -> tuple[Mapping[str, int], list[_Place]]:
        """Go on to a snapshot; return the living pods of each owner, and the makers that wait."""
        self._go_on(snapshot)
        waiting = sorted(self._waiting, key=lambda each: (_KINDS.index(each[0]), each[1]))
        return dict(self._living), waiting

    def _go_on(self, snapshot: Snapshot) -> None:
        changed = {place for uid in self._take_pods(snapshot.pods) if (place := self._places.get(uid)) is not None}
        for kind in _KINDS:
            changed.update(self._take_makers(kind, snapshot.objects(kind)))
        for kind, path in changed:
            maker = snapshot.objects(kind).get(path)
            living = self._living[self._uids[kind, path]] if maker is not None else 0
            if maker is not None and _waits({**maker, "kind": kind}, living):
                self._waiting.add((kind, path))
            else:
                self._waiting.discard((kind, path))

    def _take_pods(self, pods: Mapping[str, PodInfo]) -> Iterable[str]:
        """Count the pods that differ; the owners of which others are living."""
        written = written_since(pods, self._marks.get("Pod"))
        self._marks["Pod"] = mark_of(pods)
        changed: set[str] = set()
        for path in {*self._owners, *pods} if written is None else written:
            pod = pods.get(path)
            before, now = self._owners.get(path, ""), _owner_of_living(pod) if pod is not None else ""
            if before == now:
                continue
            self._owners.pop(path, None)
            if now:
                self._owners[path] = now
            self._living[before] -= 1
            self._living[now] += 1
            changed |= {before, now}
        for uid in changed:
            if not uid or not self._living[uid]:
                del self._living[uid]
        return changed

    def _take_makers(self, kind: str, objects: Mapping[str, Obj]) -> Iterator[_Place]:
        """Note the makers that differ; where they are."""
        written = written_since(objects, self._marks.get(kind))
        self._marks[kind] = mark_of(objects)
        known = (path for of, path in list(self._uids) if of == kind) if written is None else ()
        for path in {*known, *objects} if written is None else written:
            maker, place = objects.get(path), (kind, path)
            self._places.pop(self._uids.pop(place, ""), None)
            if maker is not None:
                uid = self._uids[place] = str(maker["metadata"].get("uid"))
                self._places[uid] = place
            yield place


def _waits(maker: Obj, living: int) -> bool:
    return wanted_pods(maker) > living or (maker["kind"] == "Job" and is_suspended(maker))


def _owner_of_living(pod: PodInfo) -> str:
    """The uid of the controller of a pod that has not ended and is not being deleted; empty for others."""
    return "" if pod.terminal or pod.deleting else str((pod.controller or {}).get("uid") or "")
