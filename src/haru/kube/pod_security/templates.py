"""The pods inside workloads: who makes pods, and from what."""

from __future__ import annotations

from haru.kube.meta import Obj

WORKLOADS = frozenset(
    {
        ("", "replicationcontrollers"),
        ("", "podtemplates"),
        ("apps", "replicasets"),
        ("apps", "deployments"),
        ("apps", "statefulsets"),
        ("apps", "daemonsets"),
        ("batch", "jobs"),
        ("batch", "cronjobs"),
    }
)


def template_of(obj: Obj) -> Obj | None:
    """The template of the pods that a workload makes; None if it has none."""
    if obj.get("kind") == "PodTemplate":
        found: Obj | None = obj.get("template")
        return found
    spec = obj.get("spec") or {}
    if obj.get("kind") == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    template: Obj | None = spec.get("template")
    return template
