"""What Kueue holds: the Workload that a gated pod waits for, and why it is not admitted.

Source: kubernetes-sigs/kueue v0.19, apis/kueue/v1beta2 (conditions, gates) and pkg/controller/jobs/pod, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from haru.gangs.adapters.kueue import GROUP_LABEL
from haru.gangs.gang import annotation, label
from haru.kube.meta import Obj, get_condition

GATES = frozenset({"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job"})
"""The scheduling gates that Kueue sets and takes away."""
WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


class KueueHold(NamedTuple):
    """Why Kueue holds a pod: the Workload (empty: there is none yet), its state in words, its queues.

    `queue` is the LocalQueue, `cluster_queue` that behind it, if that is known; `is_active` is false for a Workload
    that somebody, or Kueue itself after too many evictions, has deactivated.
    """

    workload: str
    state: str
    queue: str
    cluster_queue: str = ""
    is_active: bool = True

    @property
    def ends(self) -> bool:
        """Whether Kueue lets it go by itself some day: not if nobody may have as much as it asks for."""
        return self.is_active and not asks_too_much(self.state)


def asks_too_much(state: str) -> bool:
    """Whether a Workload asks for more than its queues may ever have, as Kueue says of its quota."""
    return "> maximum capacity (" in state


def kueue_hold(
    pod: Obj, workloads: Iterable[Obj], owners: Iterable[Obj] = (), queues: Iterable[Obj] = ()
) -> KueueHold | None:
    """Return why Kueue holds a pod; None if none of its gates is Kueue's.

    `owners` are objects that may own it, `queues` the LocalQueues that are known.
    """
    gates = {str(gate.get("name")) for gate in (pod.get("spec") or {}).get("schedulingGates") or ()}
    if not gates & GATES:
        return None
    namespace = pod["metadata"].get("namespace") or "default"
    found = workload_of(pod, workloads, owners)
    if found is None:
        queue = label(pod, KUEUE_QUEUE_LABEL)
        return KueueHold("", "Kueue has no Workload for it yet", queue, _cluster_queue(namespace, queue, queues))
    spec = found.get("spec") or {}
    queue = str(spec.get("queueName") or label(pod, KUEUE_QUEUE_LABEL))
    above = str(((found.get("status") or {}).get("admission") or {}).get("clusterQueue") or "")
    above = above or _cluster_queue(namespace, queue, queues)
    return KueueHold(str(found["metadata"]["name"]), state_of(found), queue, above, spec.get("active") is not False)


def _cluster_queue(namespace: str, name: str, queues: Iterable[Obj]) -> str:
    """The ClusterQueue behind a LocalQueue."""
    for queue in queues:
        if queue["metadata"]["name"] == name and (queue["metadata"].get("namespace") or "default") == namespace:
            return str((queue.get("spec") or {}).get("clusterQueue") or "")
    return ""


def workload_of(pod: Obj, workloads: Iterable[Obj], owners: Iterable[Obj] = ()) -> Obj | None:
    """Return the pod's Workload: by annotation, by the name of its pod group, or by an owner that both have."""
    namespace = pod["metadata"].get("namespace") or "default"
    there = [each for each in workloads if (each["metadata"].get("namespace") or "default") == namespace]
    names = [name for name in (annotation(pod, WORKLOAD_ANNOTATION), label(pod, GROUP_LABEL)) if name]
    named = next((each for name in names for each in there if each["metadata"]["name"] == name), None)
    if named is not None:
        return named
    wanted = set(_ancestors(pod, {str(each["metadata"].get("uid")): each for each in owners}))
    return next((each for each in there if wanted & set(_owner_uids(each))), None)


def state_of(workload: Obj) -> str:
    """Return what a Workload and its conditions say of its admission, in one sentence."""
    active = (workload.get("spec") or {}).get("active") is not False
    parts = [] if active else ["it is deactivated (spec.active: false)"]
    for name in ("Finished", "Evicted", "Preempted"):
        condition = get_condition(workload, name) or {}
        known = any(part.endswith(f": {_message(condition)}") for part in parts)
        if condition.get("status") == "True" and not known:
            parts.append(f"{name}: {_message(condition)}")
    requeued = get_condition(workload, "Requeued") or {}
    if requeued.get("status") == "False":
        parts.append(f"not queued again: {_message(requeued)}")
    again = ((workload.get("status") or {}).get("requeueState") or {}).get("requeueAt")
    if again and active:
        parts.append(f"it is queued again at {again}")
    parts += _admission(workload)
    return "; ".join(parts) or "Kueue has not looked at it yet"


def _admission(workload: Obj) -> list[str]:
    """How far its admission is."""
    admitted, reserved = get_condition(workload, "Admitted") or {}, get_condition(workload, "QuotaReserved") or {}
    if admitted.get("status") == "True":
        return ["it is admitted, and the gates are about to go"]
    if reserved.get("status") == "True":
        return [f"quota is reserved, but it is not admitted{_checks(workload)}"]
    return [f"no quota is reserved: {_message(reserved)}"] if reserved.get("status") == "False" else []


def _message(condition: Obj) -> str:
    return str(condition.get("message") or condition.get("reason") or "")


def _checks(workload: Obj) -> str:
    checks = (workload.get("status") or {}).get("admissionChecks") or ()
    open_ = [f"{check.get('name')} {check.get('state')}" for check in checks if check.get("state") != "Ready"]
    return f": admission check {', '.join(open_)}" if open_ else " yet"


def _owner_uids(obj: Obj) -> Iterator[str]:
    return (str(owner.get("uid")) for owner in obj["metadata"].get("ownerReferences") or ())


def _ancestors(pod: Obj, known: dict[str, Obj]) -> Iterator[str]:
    """Return the UIDs of a pod, of its owners, and of theirs as far as they are known."""
    yield str(pod["metadata"].get("uid"))
    waiting, seen = list(_owner_uids(pod)), set()
    while waiting:
        uid = waiting.pop()
        if uid in seen:
            continue
        seen.add(uid)
        yield uid
        if uid in known:
            waiting += _owner_uids(known[uid])
