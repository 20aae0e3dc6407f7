"""Objects that are right in every respect, and the means to make one thing about them wrong."""

from __future__ import annotations

import copy
from typing import Any

from haru.kube import validation
from haru.kube.defaulting import apply_defaults
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind, by_kind
from haru.kube.validation.types import SelectorProblem

Obj = dict[str, Any]

NOW = "2026-03-01T10:00:00Z"
DEFAULT = FeatureGates()
ALL = FeatureGates.accelerator_defaults()
REMOVE = object()


def kind_of(obj: Obj) -> Kind:
    kind = by_kind(obj["apiVersion"], obj["kind"])
    assert kind is not None
    return kind


def any_selector(expression: str) -> SelectorProblem | None:
    return None


def picky_selector(expression: str) -> SelectorProblem | None:
    """Stands for the CEL room: refuses what contains `bad` or `slow`."""
    if "bad" in expression:
        return SelectorProblem("invalid", "compilation failed: ERROR: <input>:1:1: bad")
    return SelectorProblem("too-complex") if "slow" in expression else None


def put(obj: Obj, path: str, value: Any) -> Obj:
    """A copy with the value at a path such as `spec.devices.0.name`; REMOVE takes the field away."""
    changed = copy.deepcopy(obj)
    here: Any = changed
    *steps, last = path.split(".")
    for step in steps:
        here = here[int(step)] if isinstance(here, list) else here.setdefault(step, {})
    key: Any = int(last) if isinstance(here, list) else last
    if value is REMOVE:
        del here[key]
    else:
        here[key] = value
    return changed


def problems(obj: Obj, gates: FeatureGates = ALL, *, defaults: bool = True) -> list[str]:
    """The findings for a creation, as texts."""
    kind = kind_of(obj)
    if defaults:
        obj = apply_defaults(obj, kind, gates, NOW)
    return [str(error) for error in validation.validate_create(obj, kind, gates, picky_selector)]


def update_problems(new: Obj, old: Obj, gates: FeatureGates = ALL) -> list[str]:
    kind = kind_of(new)
    new, old = apply_defaults(new, kind, gates, NOW), apply_defaults(old, kind, gates, NOW)
    return [str(error) for error in validation.validate_update(new, old, kind, gates, picky_selector)]


def status_problems(new: Obj, old: Obj, gates: FeatureGates = ALL) -> list[str]:
    return [str(error) for error in validation.validate_status_update(new, old, kind_of(new), gates)]


def resource(kind: str, spec: Obj, version: str = "v1", **metadata: Any) -> Obj:
    namespaced = kind in ("ResourceClaim", "ResourceClaimTemplate")
    meta = {"name": "one", **({"namespace": "team"} if namespaced else {}), **metadata}
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": meta, "spec": spec}


def claim(version: str = "v1", **fields: Any) -> Obj:
    exact = {"deviceClassName": "gpu.example.com", **fields}
    request = {"name": "gpu", **exact} if version == "v1beta1" else {"name": "gpu", "exactly": exact}
    return resource("ResourceClaim", {"devices": {"requests": [request]}}, version)


def device(name: str = "gpu-0", **fields: Any) -> Obj:
    return {
        "name": name,
        "attributes": {"model": {"string": "H200"}, "gpu.example.com/driverVersion": {"version": "570.1.0"}},
        "capacity": {"memory": {"value": "141Gi"}},
        **fields,
    }


def slice_of(*devices: Obj, **spec: Any) -> Obj:
    pool = {"name": "worker-1", "generation": 1, "resourceSliceCount": 1}
    fields: Obj = {"driver": "gpu.example.com", "nodeName": "worker-1", "pool": pool, "devices": list(devices), **spec}
    return resource("ResourceSlice", {name: value for name, value in fields.items() if value is not REMOVE})


def group(**spec: Any) -> Obj:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "team"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec},
    }


def workload(*templates: Obj) -> Obj:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "Workload",
        "metadata": {"name": "training", "namespace": "team"},
        "spec": {"podGroupTemplates": list(templates)},
    }


def template(name: str = "workers") -> Obj:
    return {"name": name, "schedulingPolicy": {"gang": {"minCount": 4}}}


def pod(**spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": "team"},
        "spec": {"containers": [{"name": "main", "image": "registry.example.com/trainer:1"}], **spec},
    }


def controller(kind: str, **spec: Any) -> Obj:
    """A Deployment, ReplicaSet, StatefulSet, DaemonSet or Job around the pod above."""
    labels = {"app": "trainer"}
    template_of = {"metadata": {"labels": labels}, "spec": pod()["spec"]}
    selector: Obj = {"selector": {"matchLabels": labels}}
    if kind in ("Job", "CronJob"):
        template_of["spec"] = {**pod()["spec"], "restartPolicy": "Never"}
        selector = {"selector": {"matchLabels": labels}, "manualSelector": True}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "trainer", "namespace": "team"},
        "spec": {**selector, "template": template_of, **spec},
    }
