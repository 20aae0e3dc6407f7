"""Who makes running pods, told to make fewer: pods that are only deleted would be made again.

A ReplicaSet lets pods go by their deletion cost (KEP-2255), a StatefulSet the highest ordinals first. A suspended Job
has no pods (KEP-2232); with a lower parallelism it lets those go first that became ready last. Pods that wait go before
those that have a place. Whoever is told by somebody else how many pods to make is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from haru.engine import Options, Snapshot
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import delete, listed, patch
from haru.explain.diagnosis.allocations import freed_text
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.makers import told_by
from haru.kube.meta import Obj, controller_of, get_condition
from haru.kube.names import counted
from haru.kube.pod_removal import DELETION_COST, deletion_cost, job_removal_rank, progress

_MOST_ENDS = 16
Pods = tuple[PodInfo, ...]


@dataclass(frozen=True, slots=True)
class _Fewer:
    """One way to have fewer pods. `ends`: one of these sets of pods goes, and which one may be chance."""

    kind: str
    text: str
    changes: tuple[Obj, ...]
    ends: tuple[Pods, ...]
    also: str = ""
    """What else it costs."""


def fewer_pods(snapshot: Snapshot, work: WorkloadUnit, options: Options, pods: Sequence[PodInfo]) -> Iterator[Remedy]:
    """Return the same pods to end for good, or as few others of the same workloads as help.

    Nothing where one of them is made by who is not known. The cost of a remedy is the number of pods that it ends.
    """
    by_owner: dict[tuple[str, str, str], list[PodInfo]] = {}
    for pod in pods:
        owner = pod.controller or {}
        own = (str(owner.get("kind") or "Pod"), pod.key.namespace, str(owner.get("name") or pod.key.name))
        by_owner.setdefault(own, []).append(pod)
    if all(kind == "Pod" for kind, *_ in by_owner):
        return
    ways = [list(_ways(snapshot, *owner, own)) for owner, own in by_owner.items()]
    if not all(ways):
        return

    def fits(ended: Pods) -> bool:
        return work.fits(hypothesis.without_pods(snapshot, [pod.key.path for pod in ended]), options)

    if len(ways) == 1:
        found: dict[str, _Fewer] = {}
        for way in ways[0]:
            if way.kind not in found and all(map(fits, way.ends)):
                found[way.kind] = way
                yield _remedy(snapshot, [way])
    elif fits(tuple(pod for way in ways for pod in way[-1].ends[0])):
        yield _remedy(snapshot, [way[-1] for way in ways])


def _remedy(snapshot: Snapshot, ways: Sequence[_Fewer]) -> Remedy:
    ended = tuple(pod for way in ways for pod in way.ends[0])
    running = [pod.key.name for pod in ended if pod.node]
    kind = next((way.kind for way in ways if way.kind != "Evict"), "Evict")
    text = listed([way.text for way in ways])
    if all(way.kind == "ScaleDown" for way in ways):
        text = f"scale {listed([way.text.removeprefix('scale ') for way in ways])}"
    freed = freed_text(snapshot, ended)
    text += f" (frees {freed})" if freed else ""
    names = f": {listed(running)}" if all(len(way.ends) == 1 for way in ways) else ""
    also = dict.fromkeys(way.also for way in ways if way.also)
    costs = "; ".join([f"{counted(len(running), 'running pod')} lost{names}", *also])
    return Remedy(kind, text, tuple(change for way in ways for change in way.changes), len(running), True, costs)


def _ways(snapshot: Snapshot, kind: str, namespace: str, name: str, pods: Sequence[PodInfo]) -> Iterator[_Fewer]:
    """What ends these pods of one owner, the least first; the last of them ends these for sure."""
    if kind == "Pod":
        gone = tuple(delete("v1", "Pod", pod.key.name, pod.key.namespace) for pod in pods)
        yield _Fewer("Evict", f"end {listed([f'pod {pod.key.name}' for pod in pods])}", gone, (tuple(pods),))
        return
    found = snapshot.objects(kind).get(f"{namespace}/{name}")
    if found is None or kind not in _WAYS or told_by(found, kind) or _is_rolling_out(snapshot, found):
        return
    own = [pod for pod in snapshot.pods.values() if _is_made_by(pod, found) and not (pod.terminal or pod.deleting)]
    yield from _WAYS[kind](found, own, pods)


def _is_made_by(pod: PodInfo, owner: Obj) -> bool:
    return bool((pod.controller or {}).get("uid") == owner["metadata"].get("uid"))


def _is_rolling_out(snapshot: Snapshot, found: Obj) -> bool:
    """Its Deployment has pods of another template, too: which of them go when it is scaled is not said here."""
    above = controller_of(found) or {}
    return any(
        (other.get("spec") or {}).get("replicas") and (controller_of(other) or {}).get("uid") == above.get("uid")
        for other in (snapshot.objects("ReplicaSet").values() if above else ())
        if other is not found
    )


def _of_replica_set(found: Obj, own: Sequence[PodInfo], pods: Sequence[PodInfo]) -> Iterator[_Fewer]:
    """Fewer replicas, these pods the cheapest to delete; what has got less far goes before them, whatever it costs."""
    above, namespace = controller_of(found), pods[0].key.namespace
    kind, target = ("Deployment", above["name"]) if above is not None else ("ReplicaSet", found["metadata"]["name"])
    placed = [pod for pod in own if pod.node]
    furthest = max(progress(pod.obj) for pod in pods)
    others = [pod for pod in placed if pod not in pods]
    ended = (*pods, *(pod for pod in others if progress(pod.obj) < furthest))
    replicas = min(int((found.get("spec") or {}).get("replicas") or 0), len(placed)) - len(ended)
    if replicas < 0:
        return
    cost = min((deletion_cost(pod.obj) for pod in others), default=0)
    body = {"metadata": {"annotations": {DELETION_COST: str(min(cost, 0) - 1)}}}
    marks = [patch("v1", "Pod", pod.key.name, body, namespace) for pod in pods] if replicas else []
    scale = patch("apps/v1", kind, target, {"spec": {"replicas": replicas}}, namespace)
    yield _Fewer("ScaleDown", f"scale {kind.lower()}/{target} to {replicas}", (*marks, scale), (ended,))


def _of_stateful_set(found: Obj, own: Sequence[PodInfo], pods: Sequence[PodInfo]) -> Iterator[_Fewer]:
    """Fewer replicas, as few fewer as help: none but the highest ordinals can go.

    One after the other they go only once all that stay are ready.
    """
    meta, spec = found["metadata"], found.get("spec") or {}
    first = int((spec.get("ordinals") or {}).get("start") or 0)
    by_number = {_ordinal(pod): pod for pod in own}
    lowest = min(_ordinal(pod) for pod in pods)
    last = first + int(1 if spec.get("replicas") is None else spec["replicas"])
    kept = (by_number.get(number) for number in range(first, lowest))
    if lowest < first or (spec.get("podManagementPolicy") != "Parallel" and any(_is_unready(pod) for pod in kept)):
        return
    for number in range(last - 1, lowest - 1, -1):
        ended = tuple(pod for ordinal, pod in sorted(by_number.items()) if ordinal >= number)
        body = {"spec": {"replicas": number - first}}
        change = patch("apps/v1", "StatefulSet", meta["name"], body, pods[0].key.namespace)
        if sum(bool(pod.node) for pod in ended) >= len(pods):
            yield _Fewer("ScaleDown", f"scale statefulset/{meta['name']} to {number - first}", (change,), (ended,))


def _ordinal(pod: PodInfo) -> int:
    number = pod.key.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def _is_unready(pod: PodInfo | None) -> bool:
    """Whether it holds up those after it; a pod of which no condition is told does not."""
    ready = get_condition(pod.obj, "Ready") if pod is not None else None
    return pod is None or not pod.node or (ready is not None and ready.get("status") != "True")


def _of_job(found: Obj, own: Sequence[PodInfo], pods: Sequence[PodInfo]) -> Iterator[_Fewer]:
    """A lower parallelism, or none of its pods until somebody resumes it."""
    name, namespace = found["metadata"]["name"], pods[0].key.namespace
    placed = [pod for pod in own if pod.node]
    fewer = len(placed) - len(pods)
    going = _first_to_go(placed, len(pods)) if fewer and not any(pod.group for pod in own) else ()
    if going:
        change = patch("batch/v1", "Job", name, {"spec": {"parallelism": fewer}}, namespace)
        yield _Fewer("LowerParallelism", f"let job/{name} run {counted(fewer, 'pod')} at a time", (change,), going)
    change = patch("batch/v1", "Job", name, {"spec": {"suspend": True}}, namespace)
    also = f"it starts over once somebody resumes it: kubectl patch job {name} -n {namespace} -p '{_RESUMED}'"
    yield _Fewer("Suspend", f"suspend job/{name}", (change,), (tuple(own),), also)


_RESUMED = '{"spec":{"suspend":false}}'


def _first_to_go(placed: Sequence[PodInfo], count: int) -> tuple[Pods, ...]:
    """Each set of so many pods that a Job may let go; nothing where there are too many to try."""
    order = sorted(placed, key=_rank)
    edge = _rank(order[count - 1])
    sure = tuple(pod for pod in order if _rank(pod) < edge)
    tied = [pod for pod in order if _rank(pod) == edge]
    more = count - len(sure)
    return tuple((*sure, *some) for some in combinations(tied, more)) if comb(len(tied), more) <= _MOST_ENDS else ()


def _rank(pod: PodInfo) -> tuple[object, ...]:
    return job_removal_rank(pod.obj)


_WAYS: dict[str, Callable[[Obj, Sequence[PodInfo], Sequence[PodInfo]], Iterator[_Fewer]]] = {
    "ReplicaSet": _of_replica_set,
    "StatefulSet": _of_stateful_set,
    "Job": _of_job,
}
