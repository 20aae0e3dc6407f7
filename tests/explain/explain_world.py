"""Clusters of simulated nodes, and work on them as a person writes it: what is asked is asked of `haru.Snapshot`."""

from __future__ import annotations

from typing import Any

from haru.api.changes import AddNodes, Apply
from haru.api.snapshot import Snapshot
from haru.drivers.simulated.objects import device_classes
from haru.explain import Explanation

Obj = dict[str, Any]


def cluster(**profiles: int) -> Snapshot:
    """So many nodes of each profile (`dgx_h100` for dgx-h100) with their devices, and the drivers' classes."""
    added = (AddNodes(name.replace("_", "-"), count) for name, count in profiles.items())
    return Snapshot.of(device_classes()).changed(*added)


def template(name: str = "gpu", count: int = 1, of: str = "gpu.nvidia.com", **ask: Any) -> Obj:
    """A ResourceClaimTemplate for devices of a class."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": of, "count": count, **ask}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def pod(name: str, template: str = "", limits: Obj | None = None, group: str = "", cpu: str = "1", **spec: Any) -> Obj:
    """A pod whose claim is made from a template, or that has limits; of a PodGroup."""
    resources: Obj = {"requests": {"cpu": cpu}, "limits": limits or {}}
    made: Obj = {"containers": [{"name": "main", "image": "x", "resources": resources}], **spec}
    if template:
        made["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
        resources["claims"] = [{"name": "gpu"}]
    if group:
        made["schedulingGroup"] = {"podGroupName": group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": made}


def gang(name: str, size: int, **each: Any) -> list[Obj]:
    """A PodGroup that starts whole, and its pods."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }
    return [group, *(pod(f"{name}-{number}", group=name, **each) for number in range(size))]


def told(snapshot: Snapshot, *objects: Obj, about: str = "pod/p", **asked: Any) -> Explanation:
    """What is said of one object once these have been created, and new workloads have their pods."""
    answer = snapshot.changed(Apply(objects)).explain(about, **asked)
    assert isinstance(answer, Explanation)
    return answer


def told_as_is(snapshot: Snapshot, *objects: Obj, about: str, **asked: Any) -> Explanation:
    """What is said of one object if these are there just so."""
    answer = Snapshot.of([*snapshot, *objects]).explain(about, **asked)
    assert isinstance(answer, Explanation)
    return answer


def workload(kind: str, name: str, pods: int, *, suspend: bool = False, indexed: bool = False, **each: Any) -> Obj:
    """A Job, ReplicaSet or StatefulSet of so many pods; an `indexed` Job completes with as many."""
    spec = pod("template", **each)["spec"]
    labels = {"app": name}
    body: Obj = {"template": {"metadata": {"labels": labels}, "spec": spec}}
    if kind == "Job":
        spec["restartPolicy"] = "Never"
        body |= {"parallelism": pods, "completions": pods, "suspend": suspend}
        body["completionMode"] = "Indexed" if indexed else "NonIndexed"
    else:
        body |= {"replicas": pods, "selector": {"matchLabels": labels}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": body}
