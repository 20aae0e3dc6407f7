"""What cases for real controllers are made of: kubectl's words for a change, and objects."""

from __future__ import annotations

from typing import Any

from controller_churn import GPU_CLASS, manifest, template
from manifests import Obj

Step = list[tuple[str, ...] | Obj]
SIMULATED = "simulated.haru.dev"
FIRST = "FIRST"


def patch(target: str, patch: str) -> tuple[str, ...]:
    return "patch", target, "--type=merge", f"--patch={patch}"


def image(target: str, number: int) -> tuple[str, ...]:
    return "set", "image", target, f"c=busybox:{number}"


def scale(target: str, replicas: int) -> tuple[str, ...]:
    return "scale", target, f"--replicas={replicas}"


def delete(target: str, cascade: str = "background", *more: str) -> tuple[str, ...]:
    return "delete", target, "--wait=false", f"--cascade={cascade}", *more


def job(name: str, annotations: dict[str, str] | None = None, pods: Obj | None = None, **spec: Any) -> Obj:
    pods = pods or template(name)
    pods["spec"].setdefault("restartPolicy", "Never")
    pods["metadata"]["annotations"] = annotations or {}
    return manifest("batch/v1", "Job", name, template=pods, **spec)


def rolling(**limits: object) -> Obj:
    return {"type": "RollingUpdate", "rollingUpdate": limits}


def rules(action: str) -> Obj:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [1]}}]}


def succeeds(indexes: str, count: int) -> Obj:
    return {"rules": [{"succeededIndexes": indexes, "succeededCount": count}]}


def cron(name: str, **spec: object) -> Obj:
    pods = template(name, restartPolicy="Never")
    return manifest("batch/v1", "CronJob", name, schedule="0 0 1 1 *", jobTemplate={"spec": {"template": pods}}, **spec)


def budget(name: str, app: str | None, **spec: object) -> Obj:
    selector = {"matchLabels": {"app": app}} if app else {}
    return manifest("policy/v1", "PodDisruptionBudget", name, selector=selector, **spec)


def pod(name: str, app: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}}, **spec_of(app)}


def spec_of(app: str) -> Obj:
    return {"spec": template(app)["spec"]}


def claimed(app: str, **source: str) -> Obj:
    source = source or {"resourceClaimTemplateName": "gpu"}
    pods = template(app, resourceClaims=[{"name": "g", **source}])
    pods["spec"]["containers"][0]["resources"]["claims"] = [{"name": "g"}]
    return pods


def holder(name: str, **source: str) -> Obj:
    return {**pod(name, name), "spec": claimed(name, **source)["spec"]}


VOLUMES = [
    {
        "metadata": {"name": "v"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
]
GPU = {"spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": GPU_CLASS}}]}}}
FAILS = {f"{SIMULATED}/fail": "1"}
ENDS = {f"{SIMULATED}/run-seconds": "1"}
INDEXED: Obj = {"completionMode": "Indexed"}
