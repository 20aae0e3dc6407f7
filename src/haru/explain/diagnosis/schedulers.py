"""Which schedulers there are, as far as objects tell, and work whose scheduler is none of them.

Known are the default scheduler, and every name under which a pod was placed or tried, an event was told, or a Lease of
kube-system is held.
"""

from __future__ import annotations

from haru.engine import Options, Reason, Snapshot
from haru.engine.state import published_partition
from haru.explain import hypothesis
from haru.explain.changes import listed
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.pod_changes import changed_pods, pod_changes
from haru.kube.decoding import suggest_name
from haru.kube.meta import Obj, get_condition, labels_of, name_of, namespace_of

DEFAULT_SCHEDULER = "default-scheduler"
_IDENTITY = "apiserver.kubernetes.io/identity"
_NO_SCHEDULER_NAMES = ("kube-scheduler", "kube-controller-manager", "cloud-controller-manager", "haru-fleet-")
"""How Leases of components begin that are held under no schedulerName; kube-scheduler's is the default one."""
_TOLD_BY_SCHEDULERS = frozenset({"Scheduled", "FailedScheduling"})


def unknown_scheduler(snapshot: Snapshot, work: WorkloadUnit) -> Reason | None:
    """That the work's scheduler is none that is known; None if it is."""
    names = dict.fromkeys(pod.scheduler_name for pod in work.pending(snapshot))
    if not names.keys() - {DEFAULT_SCHEDULER}:
        return None
    known = _known(snapshot)
    name = next((name for name in names if name not in known), None)
    if name is None:
        return None
    text = f"no scheduler {name} is known here: it never placed or tried a pod; known: {listed(sorted(known))}"
    return Reason("SchedulerUnknown", text, {"schedulerName": name, "known": sorted(known)})


def in_partition(snapshot: Snapshot, work: WorkloadUnit) -> Snapshot:
    """The cluster as the work's scheduler sees it, which may have published a partition on its Lease."""
    names = {pod.scheduler_name for pod in work.pending(snapshot)}
    for lease in snapshot.objects("Lease").values():
        found = published_partition(lease)
        if found is not None and not names.isdisjoint(found[0]) and not found[1].is_whole:
            return snapshot.confined_to(found[1])
    return snapshot


def _known(snapshot: Snapshot) -> set[str]:
    found = {DEFAULT_SCHEDULER}
    for pod in snapshot.pods.values():
        if pod.scheduler_name not in found and (pod.node or _was_tried(pod.obj)):
            found.add(pod.scheduler_name)
    for event in snapshot.objects("Event").values():
        if event.get("reason") in _TOLD_BY_SCHEDULERS:
            found.add(str(event.get("reportingComponent") or (event.get("source") or {}).get("component") or ""))
    leases = snapshot.objects("Lease").values()
    for lease in leases:
        published = published_partition(lease)
        # An API server of 1.26 or newer has a Lease of its own there.
        of_server = labels_of(lease).get(_IDENTITY)
        if (
            namespace_of(lease) == "kube-system"
            and not of_server
            and not name_of(lease).startswith(_NO_SCHEDULER_NAMES)
        ):
            found.add(name_of(lease))
        found |= set(published[0]) if published is not None else set()
    return found - {""}


def _was_tried(pod: Obj) -> bool:
    """Whether a scheduler wrote that it found no place; that a pod is gated is written by the API server."""
    condition = get_condition(pod, "PodScheduled")
    return condition is not None and condition.get("reason") not in (None, "SchedulingGated")


def other_scheduler(snapshot: Snapshot, work: WorkloadUnit, options: Options, unknown: Reason) -> Remedy:
    """To name a scheduler that is known: the one that was probably meant, else the default one."""
    name, known = str(unknown.data["schedulerName"]), [str(each) for each in unknown.data["known"]]
    close = suggest_name(name, known)
    instead = close or DEFAULT_SCHEDULER

    def renamed(spec: Obj) -> Obj:
        return {**spec, "schedulerName": instead}

    pods = changed_pods(snapshot, work, renamed)
    fits = work.fits(hypothesis.with_pods(snapshot, pods), options)
    changes, costs = pod_changes(snapshot, pods, renamed)
    text = f"name the scheduler {instead} in place of {name}" + (": did you mean that?" if close else "")
    return Remedy("CorrectName" if close else "UseScheduler", text, changes, 0, fits, costs)
