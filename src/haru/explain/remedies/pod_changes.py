"""Pods that would have to be written differently: what is to be done for it, and how that is tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from haru.engine import Snapshot
from haru.engine.state import Obj, PodInfo
from haru.explain.changes import create, delete, listed, pod_manifest
from haru.explain.diagnosis.workload_unit import WorkloadUnit


def changed_pods(snapshot: Snapshot, work: WorkloadUnit, change: Callable[[Obj], Obj]) -> list[PodInfo]:
    """The waiting pods of the work whose spec is another one after the change, with it."""
    pods = work.pending(snapshot)
    specs = [change(dict(pod.spec)) for pod in pods]
    return [PodInfo.of({**p.obj, "spec": spec}) for p, spec in zip(pods, specs, strict=True) if spec != p.spec]


def pod_changes(pods: Sequence[PodInfo]) -> tuple[tuple[Obj, ...], str]:
    """How pods become like that, and what it costs: a pod's spec is fixed, so it is deleted and created again.

    Nothing where a controller would make them as they were: its template has to be changed.
    """
    owners = {f"{owner['kind'].lower()}/{owner['name']}" for pod in pods if (owner := pod.controller) is not None}
    if owners:
        return (), f"the pods' template has to say so: that of {listed(sorted(owners))}"
    gone = [delete("v1", "Pod", pod.key.name, pod.key.namespace) for pod in pods]
    return (*gone, *(create(pod_manifest(pod.obj)) for pod in pods)), "the pods are made again"
