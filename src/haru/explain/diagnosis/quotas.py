"""Pods and claims that were never made, because a ResourceQuota has no room for them.

What a workload would make next is put to the quotas of its namespace, with the arithmetic of admission.
Source: admission plugin ResourceQuota, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from haru.engine import Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain.changes import patch
from haru.explain.diagnosis.makers import MAKERS, lacking, waiting_makers, wanted_pods
from haru.explain.explanation import Remedy
from haru.kube.jobs import is_gang_job
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.quota.checking import QuotaRefusal, Write, charges, evaluator_of, in_scopes
from haru.kube.quota.claims import extended_names
from haru.kube.quota.usage import Evaluator, Surroundings, add
from haru.kube.workload_pods import made_by

_ALONE = {"WorkloadWithJob": False}
_NEVER_OVERDUE = datetime(1970, 1, 1, tzinfo=UTC)
Lacking = tuple[Obj, int]
"""An object that has still to be made, and how many like it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A quota's refusal of one object. `can_wait`: there will be room once others give back what they use.

    `raised` are the limits, by quota, with which all of the workload is let in.
    """

    reason: Reason
    namespace: str
    can_wait: bool
    raised: Mapping[str, Mapping[str, str]]

    def remedy(self, confirmed: bool) -> tuple[Remedy, ...]:
        """To raise the quotas by what is lacking; nothing where more than room is lacking."""
        if not self.reason.data.get("requested"):
            return ()
        text, changes = raise_quotas(self.namespace, self.raised)
        return (Remedy("RaiseQuota", text, changes, 1, confirmed, RAISED_COSTS),)


RAISED_COSTS = "the namespace may use more than it was given"


def raise_quotas(namespace: str, raised: Mapping[str, Mapping[str, str]]) -> tuple[str, tuple[Obj, ...]]:
    """Return in words, and as changes, how quotas get these limits."""
    texts = [
        f"{quota} to {', '.join(f'{name}={amount}' for name, amount in limits.items())}"
        for quota, limits in raised.items()
    ]
    changes = (
        patch("v1", "ResourceQuota", quota, {"spec": {"hard": dict(limits)}}, namespace)
        for quota, limits in raised.items()
    )
    return f"raise the quota{'s' if len(texts) > 1 else ''} {' and '.join(texts)}", tuple(changes)


def limits_for_more(snapshot: Snapshot, pod: PodInfo, count: int) -> dict[str, dict[str, str]]:
    """The limits that quotas lack for so many more pods like this one, and for their claims, by quota."""
    lacked = [(obj, count) for obj in (pod.obj, *_claims_of(snapshot, pod))]
    return _raised(_quotas_of(snapshot, pod.key.namespace), lacked, _around(snapshot))


def refusal(snapshot: Snapshot, obj: Obj, every: Sequence[Lacking] = (), at_once: int = 1) -> Refusal | None:
    """Why a pod or a claim would not be let in; None if quotas have room for it.

    `every` is all that its workload lacks, itself included; `at_once` of its kind the workload needs together.
    """
    namespace = obj["metadata"]["namespace"]
    quotas = _quotas_of(snapshot, namespace)
    if not quotas:
        return None
    around = _around(snapshot)
    try:
        charges(Write(_evaluator(obj), "", obj, None, around), quotas)
    except QuotaRefusal as error:
        data = {
            "quota": error.quota,
            "requested": dict(error.requested),
            "used": dict(error.used),
            "limited": dict(error.limited),
        }
        limits = {name: parse_quantity(amount) for name, amount in error.limited.items()}
        room = all(_times(parse_quantity(each), at_once) <= limits[name] for name, each in error.requested.items())
        reason = Reason("QuotaExceeded", str(error), data if error.quota else {})
        return Refusal(reason, namespace, bool(error.quota) and room, _raised(quotas, every or [(obj, 1)], around))
    return None


def _quotas_of(snapshot: Snapshot, namespace: str) -> list[Obj]:
    quotas = snapshot.objects("ResourceQuota").values()
    return [_as_told(one) for one in quotas if one["metadata"]["namespace"] == namespace and one.get("status")]


def _around(snapshot: Snapshot) -> Surroundings:
    return Surroundings(_NEVER_OVERDUE, extended_names(snapshot.objects("DeviceClass").values()))


def _evaluator(obj: Obj) -> Evaluator:
    found = evaluator_of("", "pods") if obj["kind"] == "Pod" else evaluator_of("resource.k8s.io", "resourceclaims")
    assert found is not None
    return found


def _times(amount: Quantity, count: int) -> Quantity:
    return sum([amount] * count, Quantity(0))


def _raised(quotas: Sequence[Obj], objects: Sequence[Lacking], around: Surroundings) -> dict[str, dict[str, str]]:
    """The limits that are lower than what is used with all these objects, raised to that."""
    found: dict[str, dict[str, str]] = {}
    for quota in quotas:
        hard, total = quota["status"]["hard"], {n: parse_quantity(v) for n, v in quota["status"]["used"].items()}
        for obj, count in objects:
            evaluator = _evaluator(obj)
            if in_scopes(evaluator, quota, obj):
                usage = evaluator.usage(obj, around)
                names = (name for name in evaluator.names(hard, around) if name in usage)
                add(total, {name: _times(usage[name], count) for name in names})
        limits = {name: str(total[name]) for name in sorted(hard) if total[name] > parse_quantity(hard[name])}
        if limits:
            found[quota["metadata"]["name"]] = limits
    return found


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


def unmade(snapshot: Snapshot, maker: Obj, missing: int | None = None) -> Unmade | None:
    """What a Job, ReplicaSet, StatefulSet or DaemonSet lacks because quotas refuse it; `missing`: the pods it lacks."""
    if not snapshot.objects("ResourceQuota"):
        return None
    missing = lacking(snapshot, maker) if missing is None else missing
    if not missing:
        return None
    pod = _next_pod(maker)
    lacked = [pod.obj, *_claims_of(snapshot, pod)]
    at_once = wanted_pods(maker) if maker["kind"] == "Job" and is_gang_job(maker) else 1
    refused = refusal(snapshot, pod.obj, [(obj, missing) for obj in lacked], at_once)
    return Unmade(pod, missing, refused) if refused is not None else None


def all_unmade(snapshot: Snapshot) -> Iterator[Unmade]:
    """What all workloads lack for that reason."""
    if not snapshot.objects("ResourceQuota"):
        return
    for maker, missing in waiting_makers(snapshot):
        found = unmade(snapshot, maker, missing) if maker["kind"] in MAKERS else None
        if found is not None:
            yield found


def _claims_of(snapshot: Snapshot, pod: PodInfo) -> list[Obj]:
    """The claims that are made for a pod from templates, as far as quotas count them."""
    templates = snapshot.objects("ResourceClaimTemplate")
    named = (templates.get(f"{pod.key.namespace}/{entry.template_name}") for entry in pod.claims)
    specs = (((template.get("spec") or {}).get("spec") or {}) for template in named if template is not None)
    return [{"kind": "ResourceClaim", "metadata": {"namespace": pod.key.namespace}, "spec": spec} for spec in specs]


def _next_pod(maker: Obj) -> PodInfo:
    """The pod that a workload would make next, for itself."""
    name, metadata = f"{maker['metadata']['name']}-refused", {"namespace": "default", **maker["metadata"]}
    versioned = {"apiVersion": "batch/v1" if maker["kind"] == "Job" else "apps/v1", **maker, "metadata": metadata}
    if maker["kind"] == "DaemonSet":
        versioned |= {"kind": "ReplicaSet"}  # to quotas its pods are like any others
    pod = next(made_by({**versioned, "status": {}}, _ALONE))
    created = metadata.get("creationTimestamp")
    return PodInfo.of({**pod, "metadata": {**pod["metadata"], "name": name, "uid": name, "creationTimestamp": created}})
