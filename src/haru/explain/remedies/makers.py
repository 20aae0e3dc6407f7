"""Who makes pods, and who tells their makers how many.

Source: batch/v1 Job (`managedBy`, KEP-4368); kubernetes-sigs/kueue v0.19, the label of its queues.
"""

from __future__ import annotations

from collections.abc import Callable

from haru.engine import Snapshot
from haru.engine.state import PodInfo, workload_of
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.gangs import KUEUE_QUEUE_LABEL
from haru.kube.meta import Obj, controller_of, labels_of

_ABOVE = {"ReplicaSet": "Deployment", "Job": "CronJob"}
"""Who makes them, and leaves the number of their pods to people (a Deployment: to its own field)."""
_JOB_CONTROLLER = "kubernetes.io/job-controller"


def told_by(found: Obj, kind: str) -> str:
    """Return who else says how many pods a ReplicaSet, StatefulSet or Job makes, and would undo what a person says."""
    above = controller_of(found)
    if above is not None and above["kind"] != _ABOVE.get(kind):
        return f"{str(above['kind']).lower()}/{above['name']}"
    if kind == "Job" and KUEUE_QUEUE_LABEL in labels_of(found):
        return "Kueue"
    manager = str((found.get("spec") or {}).get("managedBy") or _JOB_CONTROLLER) if kind == "Job" else _JOB_CONTROLLER
    return "" if manager == _JOB_CONTROLLER else manager


def maker_of(snapshot: Snapshot, pod: PodInfo) -> str:
    """Return who makes a pod again once it is gone; as of a pod of its own, nobody: `pod/x`, `podgroup/x`."""
    owner = pod.controller or {}
    found = snapshot.objects(str(owner.get("kind"))).get(f"{pod.key.namespace}/{owner.get('name')}")
    return (told_by(found, owner["kind"]) if found is not None else "") or workload_of(pod)


def is_of_same_maker(snapshot: Snapshot, work: WorkloadUnit) -> Callable[[PodInfo], bool]:
    """Return whether a pod is of who makes the work's own pods.

    To end such a one does not help: it is one replica in place of another, and of fewer those that wait go first.
    """
    own = {controller["uid"] for pod in work.pending(snapshot) if (controller := pod.controller) is not None}
    return lambda pod: (pod.controller or {}).get("uid") in own
