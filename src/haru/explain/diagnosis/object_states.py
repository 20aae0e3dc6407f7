"""What an object's own status answers: it runs, starts, has ended, goes away.

A verdict is about having a place; whether the work went well is the reason's to say.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine import Reason, Snapshot
from haru.engine.podgroup import has_quorum, required_members
from haru.engine.state import GroupKey, PodInfo
from haru.explain.diagnosis.running_pods import end_text, start_problems
from haru.explain.explanation import Verdict
from haru.kube.meta import Obj, get_condition
from haru.kube.names import counted

State = tuple[Verdict, Sequence[Reason]]


def pod_state(snapshot: Snapshot, pod: PodInfo) -> State | None:
    """The answer for a pod that does not wait for a place."""
    phase = pod.status.get("phase")
    if phase == "Succeeded":
        return "Runs", (Reason("Completed", "it has run to its end", {"node": pod.node}), *_kept(pod))
    if phase == "Failed":
        said = pod.status.get("message") or pod.status.get("reason")
        message = said or end_text(pod) or "a container ended with an error"
        return "Runs", (Reason("Failed", f"it has run and failed: {message}", {"node": pod.node}), *_kept(pod))
    if pod.deleting:
        return _deleting(pod)
    if not pod.node:
        return None
    if phase == "Running":
        return "Runs", (Reason("Running", f"it runs on node {pod.node}", {"node": pod.node}),)
    if pod.node not in snapshot.nodes or not snapshot.nodes[pod.node].present:
        message = f"it is bound to node {pod.node}, which does not exist"
        return "FitsIf", (Reason("NodeNameMismatch", message, {"node": pod.node}),)
    problems = start_problems(snapshot, pod)
    if problems:
        return "FitsIf", problems
    detail = _container_detail(pod)
    message = f"it has its place on node {pod.node} and is being started{detail}"
    return "Starting", (Reason("Starting", message, {"node": pod.node}),)


def _kept(pod: PodInfo) -> tuple[Reason, ...]:
    """Why a pod that has ended and is deleted is still there."""
    finalizers = pod.obj["metadata"].get("finalizers") or []
    if not pod.deleting or not finalizers:
        return ()
    message = f"it is being deleted, and kept by its finalizers {', '.join(finalizers)}"
    return (Reason("Terminating", message, {"finalizers": finalizers}),)


def _deleting(pod: PodInfo) -> State:
    if pod.node:
        message = f"it is being deleted and still uses its room on node {pod.node}"
        return "Runs", (Reason("Terminating", message, {"node": pod.node}),)
    return "NeverFits", (Reason("Terminating", "it is being deleted and is not scheduled any more"),)


def _container_detail(pod: PodInfo) -> str:
    for status in (*(pod.status.get("initContainerStatuses") or ()), *(pod.status.get("containerStatuses") or ())):
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return f" ({status.get('name')}: {waiting['reason']})"
    return ""


def settled_group(snapshot: Snapshot, key: GroupKey, group: Obj) -> State | None:
    """The answer for a group that has its quorum, or that has no pods at all."""
    state = snapshot.group_state(key)
    if group["metadata"].get("deletionTimestamp"):
        message = f"it is being deleted; it goes once its {state.count} pods have ended"
        return "Runs" if state.scheduled else "NeverFits", (Reason("Terminating", message),)
    if not state.all:
        message = f"no living pod names PodGroup {key.path}"
        return "FitsIf", (Reason("PodsMissing", message, {"minCount": required_members(group)}),)
    if not has_quorum(snapshot, key, group):
        return None
    pods = [snapshot.pods[path] for path in sorted(state.scheduled)]
    started = [pod for pod in pods if pod.status.get("phase") == "Running"]
    data = {"members": len(pods), "running": len(started)}
    if len(started) == len(pods):
        return "Runs", (
            Reason("Running", f"{counted(len(pods), 'member')} {'runs' if len(pods) == 1 else 'run'}", data),
        )
    text = f"{counted(len(pods), 'member')} with a place, {len(started)} of them running"
    return "Starting", (Reason("Starting", text, data),)


def ended_job(snapshot: Snapshot, job: Obj) -> State | None:
    """The answer for a job that has ended or goes away."""
    complete, failed = get_condition(job, "Complete"), get_condition(job, "Failed")
    if complete is not None and complete.get("status") == "True":
        return "Runs", (Reason("Completed", "it has run to its end"),)
    if failed is not None and failed.get("status") == "True":
        return "Runs", (Reason("Failed", f"it has run and failed: {failed.get('message') or failed.get('reason')}"),)
    if job["metadata"].get("deletionTimestamp"):
        return "NeverFits", (Reason("Terminating", "it is being deleted"),)
    return None
