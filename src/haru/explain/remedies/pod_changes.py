"""Pods that would have to be written differently: what is to be done for it, and how that is tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from haru.engine import Snapshot
from haru.engine.state import PodInfo
from haru.explain.changes import create, delete, listed, patch, pod_manifest, replacement
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.remedies.json_diff import merge_patch
from haru.kube.meta import Obj, controller_of

Change = Callable[[Obj], Obj]
_OF_JOB_CONTROLLER = ("controller-uid", "batch.kubernetes.io/controller-uid")


def changed_pods(snapshot: Snapshot, work: WorkloadUnit, change: Change) -> list[PodInfo]:
    """The waiting pods of the work whose spec is another one after the change, with it."""
    pods = work.pending(snapshot)
    specs = [change(dict(pod.spec)) for pod in pods]
    return [PodInfo.of({**p.obj, "spec": spec}) for p, spec in zip(pods, specs, strict=True) if spec != p.spec]


def with_container(spec: Obj, name: str, change: Change) -> Obj:
    """Return the spec of a pod with one of its containers, or init containers, changed."""
    parts = {part: spec[part] for part in ("initContainers", "containers") if spec.get(part)}
    return {**spec, **{k: [change(one) if one["name"] == name else one for one in v] for k, v in parts.items()}}


def pod_changes(snapshot: Snapshot, pods: Sequence[PodInfo], change: Change) -> tuple[tuple[Obj, ...], str]:
    """How pods become like that, and what it costs: a pod's spec is fixed, so it is deleted and created again.

    Pods of a controller are changed by its template; nothing where that is not known.
    """
    owners = {
        (owner["kind"], pod.key.namespace, owner["name"]) for pod in pods if (owner := pod.controller) is not None
    }
    if not owners:
        gone = [delete("v1", "Pod", pod.key.name, pod.key.namespace) for pod in pods]
        return (*gone, *(create(pod_manifest(pod.obj)) for pod in pods)), "the pods are made again"
    names = listed(sorted(f"{kind.lower()}/{name}" for kind, _, name in owners))
    found = [owner_changes(snapshot, *owner, pods, change) for owner in sorted(owners)]
    told = [each for each in found if each is not None]
    if len(told) < len(found) or any(pod.controller is None for pod in pods):
        return (), f"the pods' template has to say so: that of {names}"
    return tuple(step for steps, _ in told for step in steps), listed([costs for _, costs in told])


def owner_changes(
    snapshot: Snapshot, kind: str, namespace: str, name: str, pods: Sequence[PodInfo], change: Change
) -> tuple[tuple[Obj, ...], str] | None:
    """How the template of a controller becomes like that, and what it costs.

    None where nothing would come of it, or it is not known.
    """
    owner = snapshot.objects(kind).get(f"{namespace}/{name}")
    template = ((owner or {}).get("spec") or {}).get("template") or {}
    before = template.get("spec") or {}
    after = change(dict(before))
    if owner is None or after == before:
        return None
    if kind == "Job":
        costs = f"job/{name} is made again, because its template cannot be changed"
        return replacement({"apiVersion": "batch/v1", **owner, "kind": kind}, _job_spec(owner, after)), costs
    body = {"spec": {"template": {"spec": merge_patch(before, after)}}}
    above = controller_of(owner)
    if kind == "ReplicaSet" and above is not None and above["kind"] == "Deployment":
        rolled = patch("apps/v1", "Deployment", above["name"], body, namespace)
        return (rolled,), f"deployment/{above['name']} makes all of its pods again"
    if kind == "DaemonSet" and (owner["spec"].get("updateStrategy") or {}).get("type") != "OnDelete":
        return (patch("apps/v1", kind, name, body, namespace),), f"daemonset/{name} makes its pods again"
    gone = [delete("v1", "Pod", p.key.name, namespace) for p in pods if (p.controller or {}).get("name") == name]
    return (patch("apps/v1", kind, name, body, namespace), *gone), f"{kind.lower()}/{name} makes the pods again"


def _job_spec(job: Obj, pod_spec: Obj) -> Obj:
    """The spec of a Job as one would write it: the selector and the labels that the server adds are made again."""
    spec = {key: value for key, value in job["spec"].items() if key != "selector" or job["spec"].get("manualSelector")}
    template, meta = dict(spec.get("template") or {}), dict((spec.get("template") or {}).get("metadata") or {})
    if meta.get("labels"):
        kept = {key: value for key, value in meta["labels"].items() if key not in _OF_JOB_CONTROLLER}
        template["metadata"] = {**meta, "labels": kept}
    return {**spec, "template": {**template, "spec": pod_spec}}
