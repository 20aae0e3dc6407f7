"""Cases for real controllers: what is done to a namespace, step by step; after each the controllers come to rest.

A step is a list of kubectl's words and, for what is created, the object. `FIRST` in a name stands for the oldest pod.
"""

from __future__ import annotations

from controller_churn import GPU_CLASS, manifest, template, workload
from manifests import Obj

Step = list[tuple[str, ...] | Obj]
SIMULATED = "simulated.haru.dev"
FIRST = "FIRST"


def _patch(target: str, patch: str) -> tuple[str, ...]:
    return "patch", target, "--type=merge", f"--patch={patch}"


def _image(target: str, number: int) -> tuple[str, ...]:
    return "set", "image", target, f"c=busybox:{number}"


def _scale(target: str, replicas: int) -> tuple[str, ...]:
    return "scale", target, f"--replicas={replicas}"


def _delete(target: str, cascade: str = "background") -> tuple[str, ...]:
    return "delete", target, "--wait=false", f"--cascade={cascade}"


def _job(name: str, annotations: dict[str, str] | None = None, **spec: object) -> Obj:
    pods = template(name, restartPolicy="Never")
    pods["metadata"] = {"annotations": annotations or {}}
    return manifest("batch/v1", "Job", name, template=pods, **spec)


def _budget(name: str, app: str | None, **spec: object) -> Obj:
    selector = {"matchLabels": {"app": app}} if app else {}
    return manifest("policy/v1", "PodDisruptionBudget", name, selector=selector, **spec)


def _pod(name: str, app: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}}, **_spec_of(app)}


def _spec_of(app: str) -> Obj:
    return {"spec": template(app)["spec"]}


def _claimed(app: str) -> Obj:
    pods = template(app, resourceClaims=[{"name": "g", "resourceClaimTemplateName": "gpu"}])
    pods["spec"]["containers"][0]["resources"]["claims"] = [{"name": "g"}]
    return pods


_VOLUMES = [
    {
        "metadata": {"name": "v"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
]
_GPU = {"spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": GPU_CLASS}}]}}}
_FAILS = {f"{SIMULATED}/fail": "1"}
_ENDS = {f"{SIMULATED}/run-seconds": "1"}
_INDEXED = {"completionMode": "Indexed"}

CASES: dict[str, list[Step]] = {
    "deployment": [
        [workload("Deployment", "d", 3, template("d"))],
        [_image("deployment/d", 2)],
        [_scale("deployment/d", 5)],
        [("annotate", "deployment/d", "mine=1"), ("rollout", "pause", "deployment/d")],
        [_image("deployment/d", 3)],
        [("rollout", "resume", "deployment/d")],
        [("rollout", "undo", "deployment/d")],
        [_delete("deployment/d", "foreground")],
    ],
    "deployment-recreated": [
        [workload("Deployment", "d", 3, template("d"), strategy={"type": "Recreate"}, revisionHistoryLimit=1)],
        [_image("deployment/d", 2)],
        [_image("deployment/d", 3)],
        [_delete("deployment/d", "orphan")],
    ],
    "deployment-stuck": [
        [workload("Deployment", "d", 4, template("d"), progressDeadlineSeconds=5)],
        [_patch("deployment/d", '{"spec":{"template":{"spec":{"nodeSelector":{"no":"where"}}}}}')],
        [_scale("deployment/d", 10)],
        [_patch("deployment/d", '{"spec":{"template":{"spec":{"nodeSelector":null}}}}')],
    ],
    "refused": [
        [manifest("v1", "ResourceQuota", "q", hard={"pods": "2", "count/replicasets.apps": "1"})],
        [workload("ReplicaSet", "r", 1, template("r"))],
        [workload("Deployment", "d", 3, template("d"))],
        [_delete("replicaset/r")],
        [_patch("resourcequota/q", '{"spec":{"hard":{"pods":"9"}}}')],
    ],
    "adopted": [
        [_pod("o1", "r"), _pod("o2", "r")],
        [workload("ReplicaSet", "r", 3, template("r"))],
        [("label", "pod/o1", "app=else", "--overwrite")],
        [_delete("replicaset/r", "orphan")],
    ],
    "statefulset": [
        [workload("StatefulSet", "w", 3, template("w"), serviceName="w")],
        [_image("statefulset/w", 2)],
        [_patch("statefulset/w", '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}')],
        [_image("statefulset/w", 3)],
        [_delete("pod/w-0")],
        [_scale("statefulset/w", 1)],
    ],
    "statefulset-volumes": [
        [
            workload(
                "StatefulSet",
                "w",
                2,
                template("w", nodeSelector={"no": "where"}),
                serviceName="w",
                podManagementPolicy="Parallel",
                volumeClaimTemplates=_VOLUMES,
                persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete", "whenScaled": "Delete"},
            )
        ],
        [_scale("statefulset/w", 1)],
        [_patch("statefulset/w", '{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain"}}}')],
        [_delete("statefulset/w")],
    ],
    "daemonset": [
        [workload("DaemonSet", "d", None, template("d"))],
        [_image("daemonset/d", 2)],
        [_patch("daemonset/d", '{"spec":{"template":{"spec":{"nodeSelector":{"no":"where"}}}}}')],
    ],
    "job": [
        [_job("j", _ENDS, completions=3, parallelism=2), _job("none", parallelism=0)],
        [_job("i", _ENDS, completions=4, parallelism=2, **_INDEXED)],
        [_delete("job/j")],
    ],
    "job-failed": [
        [_job("j", _FAILS, backoffLimit=0)],
        [_job("k", _FAILS, completions=3, parallelism=3, backoffLimitPerIndex=0, **_INDEXED)],
    ],
    "job-suspended": [
        [_job("j", completions=4, parallelism=2, suspend=True)],
        [_patch("job/j", '{"spec":{"suspend":false,"parallelism":3}}')],
        [_delete(f"pod/{FIRST}")],
        [_patch("job/j", '{"spec":{"suspend":true}}')],
        [_patch("job/j", '{"spec":{"suspend":false,"activeDeadlineSeconds":1}}')],
    ],
    "budgets": [
        [workload("Deployment", "d", 4, template("d")), _pod("alone", "alone")],
        [_budget("a", "d", minAvailable=2), _budget("b", "alone", maxUnavailable=1)],
        [_budget("c", None, minAvailable="50%"), _budget("n", "nobody", maxUnavailable=1)],
    ],
    "claims": [
        [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": "gpu"},
                "spec": _GPU,
            }
        ],
        [workload("Deployment", "d", 2, _claimed("d"))],
        [_delete("resourceclaimtemplate/gpu"), _scale("deployment/d", 3)],
        [_scale("deployment/d", 0)],
    ],
}
