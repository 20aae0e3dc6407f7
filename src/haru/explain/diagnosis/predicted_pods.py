"""Workloads whose pods do not exist: those that their controllers would make are judged in their place.

They are made and defaulted as on a server, and join the group that is made for them. Remedies change nothing that is
not there: what such a pod would have to say, the workload's template has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haru.engine import Reason, Snapshot
from haru.engine.state import PodInfo, namespaced_name
from haru.explain import hypothesis
from haru.explain.changes import patch
from haru.explain.diagnosis.gated import with_generated_claims
from haru.explain.diagnosis.pending import titled, waiting
from haru.explain.diagnosis.verdict import distinct
from haru.explain.diagnosis.workload_unit import Inquiry, WorkloadUnit
from haru.explain.explanation import Remedy, Verdict
from haru.explain.results import Explanation
from haru.gangs import KUEUE_WORKLOAD, KueueHold, kueue_hold
from haru.kube.meta import Obj, controller_of
from haru.kube.workload_pods import made_by

MAKERS = {
    "Job": ("batch/v1", "job", "parallelism"),
    "ReplicaSet": ("apps/v1", "replica set", "replicas"),
    "StatefulSet": ("apps/v1", "stateful set", "replicas"),
}
"""Who makes pods: in which version, how they are called, and the field that says how many."""
_MOST_PODS = 512
"""Of those that are placed each for itself, so many are tried."""


@dataclass(frozen=True, slots=True)
class _Future:
    """The cluster with the pods that are to come."""

    snapshot: Snapshot
    pods: tuple[PodInfo, ...]
    more: bool = False
    """Whether there are still more of them."""


def without_pods(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> Explanation:
    """A workload without pods: what would come of those that it makes."""
    _, word, field = MAKERS[obj["kind"]]
    path, spec = namespaced_name(obj), obj.get("spec") or {}
    count = int(1 if spec.get(field) is None else spec[field])
    if not count:
        reason = Reason("PodsMissing", f"it runs no pods: its {field} is 0", {field: 0})
        return titled(obj["kind"], obj, "FitsIf", (reason,))
    future = _future(snapshot, obj, inquiry)
    if not future.pods:
        return titled(obj["kind"], obj, "FitsIf", (Reason("PodsMissing", "it needs no more pods", {field: count}),))
    told, room = _judged(future, obj, inquiry)
    reason = Reason("PodsMissing", f"no pod of {word} {path} exists yet", {field: count})
    held = _kueue_hold(snapshot, obj) if spec.get("suspend") else None
    if spec.get("suspend"):
        reason = Reason("Suspended", f"{word} {path} is suspended{_kueue_text(held)}")
    starts = told.verdict == "Starting" and room == len(future.pods)
    verdict: Verdict = told.verdict
    if verdict == "Starting" or (verdict == "NeverFits" and room and obj["kind"] == "Job"):
        verdict = "FitsLater"  # pods of a Job end, and make room for its others
    if spec.get("suspend") and verdict != "NeverFits":
        verdict = "FitsLater" if held is not None and held.ends else "FitsIf"
    ways = [_of_what_is_there(snapshot, obj, remedy) for remedy in told.remedies]
    if spec.get("suspend") and inquiry.remedies:
        ways = [] if held is not None else _resumed(obj, ways, starts)  # Kueue would suspend it again
    return replace(
        told,
        verdict=verdict,
        summary=f"{reason.message}; {_then(told, future, room)}",
        reasons=distinct([reason, *told.reasons]),
        remedies=tuple(ways),
    )


def _future(snapshot: Snapshot, obj: Obj, inquiry: Inquiry) -> _Future:
    """The cluster as it is once the controllers have made the pods, their group and their claims."""
    maker = {"apiVersion": MAKERS[obj["kind"]][0], **obj}
    maker["metadata"] = {"namespace": "default", **obj["metadata"]}
    maker["spec"] = {**obj["spec"], "suspend": False} if obj["kind"] == "Job" else obj["spec"]
    pods: list[PodInfo] = []
    later, more = snapshot, False
    for made in made_by(maker, inquiry.gates, snapshot.pod_groups.values()):
        if made["kind"] == "PodGroup":
            later = hypothesis.with_pod_group(later, namespaced_name(made), made)
        elif made["kind"] == "Pod":
            more = len(pods) >= _MOST_PODS and pods[0].group is None
            if more:
                break
            pods.append(PodInfo.of(made))
    later = hypothesis.with_pods(later, pods)
    generated = with_generated_claims(later, pods)
    return _Future(generated[0] if generated is not None else later, tuple(pods), more)


def _judged(future: _Future, obj: Obj, inquiry: Inquiry) -> tuple[Explanation, int]:
    """What is said of the pods, as a group or of the first that has no place; how many have one now."""
    kind, snapshot, paths = obj["kind"], future.snapshot, tuple(pod.key.path for pod in future.pods)
    group = future.pods[0].group
    if group is not None:
        members = snapshot.group_state(group).unscheduled
        told = waiting(kind, obj, snapshot, WorkloadUnit(tuple(sorted({*paths, *members})), group), inquiry)
        return told, len(paths) if told.verdict == "Starting" else 0
    each = WorkloadUnit(paths)
    decision = each.decide(snapshot, inquiry.options)
    placed = {member.pod.path for member in decision.placed}
    waits = next((path for path in paths if path not in placed), None)
    if waits is None or not placed:
        return waiting(kind, obj, snapshot, WorkloadUnit(paths[:1]), inquiry), len(placed)
    # The others have their places by then, and none of them has to go for this one.
    with_others = hypothesis.with_places(snapshot, decision)
    return waiting(kind, obj, with_others, WorkloadUnit((waits, *sorted(placed))), inquiry), len(placed)


def _then(told: Explanation, future: _Future, room: int) -> str:
    """What is to be expected once the pods are made."""
    if told.verdict == "Starting" and room == len(future.pods):
        return f"there is room for at least {room} of them now" if future.more else "there is room for them now"
    if room:
        total = f"{len(future.pods)} pods" if not future.more else "pods"
        return f"there is room for {room} of its {total} now; the others would wait: {told.summary}"
    return f"then they would wait: {told.summary}"


def _of_what_is_there(snapshot: Snapshot, obj: Obj, remedy: Remedy) -> Remedy:
    """A remedy without changes of objects that do not exist: the workload has to say so."""
    missing = {
        _key(change) for change in remedy.changes if change["action"] != "create" and not _is_there(snapshot, change)
    }
    kept = tuple(change for change in remedy.changes if _key(change) not in missing)
    if kept or not missing:
        return replace(remedy, changes=kept)
    owner = f"{obj['kind'].lower()}/{obj['metadata']['name']}"
    if remedy.kind == "LowerMinCount":
        costs = f"the work has so many fewer pods: {owner} has to ask for no more"
    else:
        costs = f"{remedy.costs}; the template of {owner} has to say so".removeprefix("; ")
    return replace(remedy, changes=kept, costs=costs, command="")


def _key(change: Obj) -> tuple[str, str]:
    target = change.get("target") or change["object"]
    return target["kind"], namespaced_name(target)


def _is_there(snapshot: Snapshot, change: Obj) -> bool:
    kind, path = _key(change)
    known = {"Pod": snapshot.pods, "ResourceClaim": snapshot.claims, "PodGroup": snapshot.pod_groups}
    return kind not in known or path in known[kind]


def _kueue_hold(snapshot: Snapshot, job: Obj) -> KueueHold | None:
    """Why Kueue has suspended a Job, or the JobSet that made it; None if it has not."""
    gated = {"metadata": job["metadata"], "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}
    held = kueue_hold(gated, snapshot.objects(KUEUE_WORKLOAD.key).values())
    return held if held is not None and (held.workload or held.queue) else None


def _kueue_text(held: KueueHold | None) -> str:
    if held is None:
        return ""
    return f": Kueue holds it{f', see Workload {held.workload}' if held.workload else ''}: {held.state}"


def _resumed(obj: Obj, ways: Sequence[Remedy], starts: bool) -> list[Remedy]:
    """First that the Job is resumed, or the JobSet that made it; whatever else would help it helps with that."""
    namespace, _, name = namespaced_name(obj).partition("/")
    owner, version, kind = controller_of(obj) or {}, "batch/v1", "Job"
    if owner.get("kind") == "JobSet":  # it would suspend its Job again
        version, kind, name = str(owner["apiVersion"]), "JobSet", str(owner["name"])
    resume = patch(version, kind, name, {"spec": {"suspend": False}}, namespace)
    title = f"{kind.lower()} {name}"
    costs = "somebody suspended it for a reason" if starts else "somebody suspended it for a reason; its pods then wait"
    first = Remedy("Resume", f"resume {title}", (resume,), 0, starts and kind == "Job", costs)
    rest = [
        replace(
            remedy,
            summary=f"{remedy.summary}, and resume {title}",
            changes=(*remedy.changes, resume) if remedy.changes else (),
            command="",
        )
        for remedy in ways
    ]
    return sorted([first, *rest], key=lambda remedy: remedy.cost)
