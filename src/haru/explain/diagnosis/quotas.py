"""Pods and claims that were never made, because a ResourceQuota has no room for them.

What a workload would make next is put to the quotas of its namespace, with the arithmetic of admission.
Source: admission plugin ResourceQuota, as behaviour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from haru.engine import Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain.changes import patch
from haru.explain.explanation import Remedy
from haru.kube.meta import Obj, controller_of, get_condition
from haru.kube.quantity import parse_quantity
from haru.kube.quota.checking import QuotaRefusal, Write, charges, evaluator_of
from haru.kube.quota.claims import extended_names
from haru.kube.quota.usage import Surroundings
from haru.kube.workload_pods import made_by

_ALONE = {"WorkloadWithJob": False}
_NEVER_OVERDUE = datetime(1970, 1, 1, tzinfo=UTC)
MAKERS = ("Job", "ReplicaSet", "StatefulSet")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A quota's refusal of one object. `can_wait`: there will be room once others give back what they use."""

    reason: Reason
    namespace: str
    can_wait: bool

    def remedy(self, confirmed: bool) -> tuple[Remedy, ...]:
        """To raise the quota by what is lacking; nothing where more than room is lacking."""
        data = self.reason.data
        if not data.get("requested"):
            return ()
        wanted = {
            name: str(parse_quantity(data["used"][name]) + parse_quantity(amount))
            for name, amount in data["requested"].items()
        }
        listed = ", ".join(f"{name}={amount}" for name, amount in wanted.items())
        text = f"raise the quota {data['quota']} to {listed}"
        change = patch("v1", "ResourceQuota", data["quota"], {"spec": {"hard": wanted}}, self.namespace)
        return (Remedy("RaiseQuota", text, (change,), 1, confirmed, "the namespace may use more than it was given"),)


def refusal(snapshot: Snapshot, obj: Obj) -> Refusal | None:
    """Why a pod or a claim would not be let in; None if quotas have room for it."""
    namespace = obj["metadata"]["namespace"]
    quotas = [
        _as_told(quota)
        for quota in snapshot.objects("ResourceQuota").values()
        if quota["metadata"]["namespace"] == namespace and quota.get("status")
    ]
    group, plural = ("", "pods") if obj["kind"] == "Pod" else ("resource.k8s.io", "resourceclaims")
    evaluator = evaluator_of(group, plural)
    if not quotas or evaluator is None:
        return None
    around = Surroundings(_NEVER_OVERDUE, extended_names(snapshot.objects("DeviceClass").values()))
    try:
        charges(Write(evaluator, "", obj, None, around), quotas)
    except QuotaRefusal as error:
        data = {
            "quota": error.quota,
            "requested": dict(error.requested),
            "used": dict(error.used),
            "limited": dict(error.limited),
        }
        room = all(parse_quantity(error.requested[n]) <= parse_quantity(error.limited[n]) for n in error.requested)
        reason = Reason("QuotaExceeded", str(error), data if error.quota else {})
        return Refusal(reason, namespace, bool(error.quota) and room)
    return None


def _as_told(quota: Obj) -> Obj:
    """A quota as its controller is about to have it: it limits what it is told to limit."""
    hard, used = (quota.get("spec") or {}).get("hard") or {}, quota["status"].get("used") or {}
    return {**quota, "status": {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **used}}}


@dataclass(frozen=True, slots=True)
class Unmade:
    """Pods that a workload lacks because they are refused; `pod` stands for the next one."""

    pod: PodInfo
    count: int
    refusal: Refusal


def unmade(snapshot: Snapshot, maker: Obj, living: int | None = None) -> Unmade | None:
    """What a Job, ReplicaSet or StatefulSet lacks because quotas refuse it; `living` are its pods that did not end."""
    if not snapshot.objects("ResourceQuota"):
        return None
    missing = lacking(snapshot, maker, living)
    if not missing:
        return None
    pod = _next_pod(maker)
    refused = refusal(snapshot, pod.obj)
    return Unmade(pod, missing, refused) if refused is not None else None


def lacking(snapshot: Snapshot, maker: Obj, living: int | None = None) -> int:
    """How many pods a Job, ReplicaSet or StatefulSet lacks; `living` are its pods that did not end."""
    if living is None:
        living = _living(snapshot)[maker["metadata"].get("uid")]
    return max(0, _wanted(maker) - living)


def all_unmade(snapshot: Snapshot) -> Iterator[Unmade]:
    """What all workloads lack for that reason."""
    if not snapshot.objects("ResourceQuota"):
        return
    living = _living(snapshot)
    for kind in MAKERS:
        for maker in snapshot.objects(kind).values():
            found = unmade(snapshot, {**maker, "kind": kind}, living[maker["metadata"].get("uid")])
            if found is not None:
                yield found


def _living(snapshot: Snapshot) -> Counter[str | None]:
    """How many living pods each owner has, by uid."""
    owners = (controller_of(pod.obj) for pod in snapshot.pods.values() if not (pod.terminal or pod.deleting))
    return Counter(owner["uid"] for owner in owners if owner is not None)


def _wanted(maker: Obj) -> int:
    """How many living pods a workload wants to have."""
    spec, status = maker.get("spec") or {}, maker.get("status") or {}
    if maker["metadata"].get("deletionTimestamp"):
        return 0
    if maker["kind"] != "Job":
        return int(1 if spec.get("replicas") is None else spec["replicas"])
    ended = any((get_condition(maker, name) or {}).get("status") == "True" for name in ("Complete", "Failed"))
    if spec.get("suspend") or ended:
        return 0
    wanted = int(1 if spec.get("parallelism") is None else spec["parallelism"])
    if spec.get("completions") is None:
        return wanted
    return min(wanted, int(spec["completions"]) - int(status.get("succeeded") or 0))


def _next_pod(maker: Obj) -> PodInfo:
    """The pod that a workload would make next, for itself."""
    name, metadata = f"{maker['metadata']['name']}-refused", {"namespace": "default", **maker["metadata"]}
    versioned = {"apiVersion": "batch/v1" if maker["kind"] == "Job" else "apps/v1", **maker, "metadata": metadata}
    pod = next(made_by({**versioned, "status": {}}, _ALONE))
    created = metadata.get("creationTimestamp")
    return PodInfo.of({**pod, "metadata": {**pod["metadata"], "name": name, "uid": name, "creationTimestamp": created}})
