"""Find the pod templates in objects of other projects, so that they are checked as pods are.

Source: the same as of `haru.gangs.adapters`; ray.io/v1 (RayJob, RayService), trainer.kubeflow.org/v1alpha1
(TrainingRuntime, ClusterTrainingRuntime).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from haru.gangs import REPLICA_SPECS, ForeignKind, foreign_kind, job_pods
from haru.kube.meta import Obj
from haru.lint.findings import Draft
from haru.lint.manifests import Item
from haru.lint.paths import Keys


class Template(NamedTuple):
    """Where a pod template is in an object, and how many pods exist of it at once (None: not fixed)."""

    keys: Keys
    pods: int | None


def templates_of(item: Item) -> Iterator[Item]:
    """Yield each pod template of an object as a pod of its own; nothing for a kind without known templates."""
    group = str(item.raw.get("apiVersion") or "").rpartition("/")[0]
    find = _FINDERS.get((group, str(item.raw.get("kind"))))
    spec = item.raw.get("spec")
    for template in find(spec) if find is not None and isinstance(spec, dict) else ():
        found = _at(item.raw, template.keys)
        if isinstance(found, dict) and isinstance(found.get("spec"), dict):
            yield _as_pod(item, template, found)


def knows(item: Item) -> bool:
    """Return whether an object is of a kind that is looked into."""
    group = str(item.raw.get("apiVersion") or "").rpartition("/")[0]
    return (group, str(item.raw.get("kind"))) in _FINDERS or foreign_kind(item.raw) is not None


def own_kind(item: Item) -> ForeignKind | None:
    """Return the kind that adapters read, if the object is of one."""
    return foreign_kind(item.raw)


def rebased(item: Item, draft: Draft) -> Draft:
    """Return a finding in a template as one in the object that has the template."""
    edits = tuple(replace(edit, path=f"{item.base}.{edit.path}") for edit in draft.edits)
    return replace(draft, path=f"{item.base}.{draft.path}", edits=edits)


def _as_pod(item: Item, template: Template, found: Obj) -> Item:
    metadata = item.raw.get("metadata")
    own = metadata if isinstance(metadata, dict) else {}
    given = found.get("metadata")
    kept = {name: given[name] for name in ("labels", "annotations") if isinstance(given, dict) and name in given}
    named = {name: own[name] for name in ("name", "namespace") if name in own}
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **named, **kept}, "spec": found["spec"]}
    base = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in template.keys).removeprefix(".")
    pod = Item(item.file, item.document, (*item.prefix, *template.keys), raw)
    pod.owner, pod.base, pod.pods = item, base, template.pods
    return pod


def _at(obj: Any, keys: Keys) -> Any:
    for key in keys:
        if isinstance(key, int):
            obj = obj[key] if isinstance(obj, list) and key < len(obj) else None
        else:
            obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def _entries(value: Any) -> Iterator[tuple[int, Obj]]:
    """Yield the mappings of a list with their places; whatever else was written there is left out."""
    for index, entry in enumerate(value if isinstance(value, list) else ()):
        if isinstance(entry, dict):
            yield index, entry


def _count(value: Any, default: int = 1) -> int:
    return value if isinstance(value, int) else default


def _replicated(spec: Obj, *above: str) -> Iterator[Template]:
    for index, job in _entries(spec.get("replicatedJobs")):
        inner = _at(job, ("template", "spec"))
        pods = _count(job.get("replicas")) * job_pods(inner if isinstance(inner, dict) else {})
        yield Template(("spec", *above, "replicatedJobs", index, "template", "spec", "template"), pods)


def _runtime(spec: Obj) -> Iterator[Template]:
    inner = _at(spec, ("template", "spec"))
    return _replicated(inner if isinstance(inner, dict) else {}, "template", "spec")


def _leader_worker(spec: Obj) -> Iterator[Template]:
    groups, size = _count(spec.get("replicas")), _count(_at(spec, ("leaderWorkerTemplate", "size")))
    above = ("spec", "leaderWorkerTemplate")
    led = isinstance(_at(spec, ("leaderWorkerTemplate", "leaderTemplate")), dict)
    if led:
        yield Template((*above, "leaderTemplate"), groups)
    yield Template((*above, "workerTemplate"), groups * (size - 1 if led else size))


def _ray(spec: Obj, *above: str) -> Iterator[Template]:
    yield Template(("spec", *above, "headGroupSpec", "template"), 1)
    for index, group in _entries(spec.get("workerGroupSpecs")):
        pods = _count(group.get("replicas")) * _count(group.get("numOfHosts"))
        yield Template(("spec", *above, "workerGroupSpecs", index, "template"), pods)


def _ray_job(spec: Obj) -> Iterator[Template]:
    cluster = spec.get("rayClusterSpec")
    yield from _ray(cluster if isinstance(cluster, dict) else {}, "rayClusterSpec")
    yield Template(("spec", "submitterPodTemplate"), 1)


def _ray_service(spec: Obj) -> Iterator[Template]:
    cluster = spec.get("rayClusterConfig")
    return _ray(cluster if isinstance(cluster, dict) else {}, "rayClusterConfig")


def _replica_specs(field: str) -> Callable[[Obj], Iterator[Template]]:
    def found(spec: Obj) -> Iterator[Template]:
        roles = spec.get(field)
        for role, replica in roles.items() if isinstance(roles, dict) else ():
            if isinstance(replica, dict):
                yield Template(("spec", field, role, "template"), _count(replica.get("replicas")))

    return found


def _pod_sets(spec: Obj) -> Iterator[Template]:
    for index, one in _entries(spec.get("podSets")):
        yield Template(("spec", "podSets", index, "template"), _count(one.get("count")))


_FINDERS: Mapping[tuple[str, str], Callable[[Obj], Iterator[Template]]] = {
    ("jobset.x-k8s.io", "JobSet"): _replicated,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker,
    ("ray.io", "RayCluster"): _ray,
    ("ray.io", "RayJob"): _ray_job,
    ("ray.io", "RayService"): _ray_service,
    ("trainer.kubeflow.org", "TrainingRuntime"): _runtime,
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): _runtime,
    ("kueue.x-k8s.io", "Workload"): _pod_sets,
    **{("kubeflow.org", kind): _replica_specs(field) for kind, field in REPLICA_SPECS.items()},
}
