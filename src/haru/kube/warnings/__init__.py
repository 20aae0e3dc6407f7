"""What a client is warned of whose object is accepted, but may not mean what its author thinks.

Objects are looked at as they are stored: defaulted, admitted, judged. Pods are looked at when they are made and not
when they change, workloads when their spec changes. `haru.kube.lifecycle` tells of API versions on their way out.
Source: the warnings of the kinds' strategies in 1.36, as behaviour (KEP-1693).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice

from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.names import is_dns1123_label
from haru.kube.warnings.claims import driver_warnings, volume_claim_warnings, volume_warnings
from haru.kube.warnings.custom import finalizer_warnings
from haru.kube.warnings.definitions import definition_warnings
from haru.kube.warnings.namespaces import account_warnings, quota_warnings
from haru.kube.warnings.networks import ingress_warnings, network_policy_warnings
from haru.kube.warnings.nodes import (
    node_warnings,
    runtime_class_warnings,
    storage_capacity_warnings,
    storage_class_warnings,
)
from haru.kube.warnings.pods import pod_warnings
from haru.kube.warnings.secrets import secret_warnings
from haru.kube.warnings.services import service_warnings, slice_warnings

__all__ = ["warnings_on_create", "warnings_on_update"]

_HOSTNAMES = "which can result in surprising behavior; a DNS label is recommended"
_LIMIT = 1000
"""Nobody reads as many, and ports that clash do so in pairs."""
_MANY_COMPLETIONS, _MANY_AT_ONCE = 100_000, 10_000


def warnings_on_create(obj: Obj, kind: Kind) -> list[str]:
    """List the warnings about a new object; most kinds have none."""
    if kind.custom is not None:
        return list(finalizer_warnings(obj))
    found = _CREATED.get((kind.group, kind.kind))
    return list(islice(found(obj), _LIMIT)) if found is not None else []


def warnings_on_update(new: Obj, old: Obj, kind: Kind) -> list[str]:
    """List the warnings about an object whose spec has changed, or the finalizers of a custom resource."""
    if kind.custom is not None:
        return list(finalizer_warnings(new, old))
    found = _CHANGED.get((kind.group, kind.kind))
    if found is None or ((kind.group, kind.kind) not in _EVERY_TIME and _same_spec(new, old)):
        return []
    known = set(found(old)) if found in (definition_warnings, account_warnings) else set()
    return list(islice((warning for warning in found(new) if warning not in known), _LIMIT))


def _same_spec(new: Obj, old: Obj) -> bool:
    generation = new["metadata"].get("generation")
    return generation is not None and bool(generation == old["metadata"].get("generation"))


def _pod(obj: Obj) -> Iterator[str]:
    yield from _hostname(obj, "the Pod's hostname")
    yield from pod_warnings(obj)


def _hostname(obj: Obj, where: str = "Pod names and hostnames") -> Iterator[str]:
    problems = is_dns1123_label(obj["metadata"].get("name") or "")
    if problems:
        yield f"metadata.name: this is used in {where}, {_HOSTNAMES}: [{' '.join(problems)}]"


def _template(obj: Obj) -> Iterator[str]:
    return pod_warnings((obj.get("spec") or {}).get("template") or {}, "spec.template")


def _pod_template(obj: Obj) -> Iterator[str]:
    return pod_warnings(obj.get("template") or {}, "template")


def _stateful_set(obj: Obj) -> Iterator[str]:
    yield from _template(obj)
    spec = obj.get("spec") or {}
    for number, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        yield from volume_claim_warnings(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{number}]")
    if (spec.get("revisionHistoryLimit") or 0) < 0:
        yield (
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
        )


def _job(obj: Obj) -> Iterator[str]:
    return _job_spec(obj.get("spec") or {}, "spec")


def _cron_job(obj: Obj) -> Iterator[str]:
    template = (obj.get("spec") or {}).get("jobTemplate") or {}
    return _job_spec(template.get("spec") or {}, "spec.jobTemplate.spec")


def _job_spec(spec: Obj, path: str) -> Iterator[str]:
    if (
        spec.get("completionMode") == "Indexed"
        and (spec.get("completions") or 0) > _MANY_COMPLETIONS
        and (spec.get("parallelism") or 0) > _MANY_AT_ONCE
    ):
        yield (
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "
            "10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    yield from pod_warnings(spec.get("template") or {}, f"{path}.template")


def _volume_claim(obj: Obj) -> Iterator[str]:
    return volume_claim_warnings(obj.get("spec") or {}, "spec")


def _slice(obj: Obj) -> Iterator[str]:
    driver = (obj.get("spec") or {}).get("driver") or ""
    if driver != driver.lower():
        yield f"spec.driver: driver names should be lowercase; {_quoted(driver)} contains uppercase characters"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _named(rest: Callable[[Obj], Iterator[str]]) -> Callable[[Obj], Iterator[str]]:
    def found(obj: Obj) -> Iterator[str]:
        yield from _hostname(obj)
        yield from rest(obj)

    return found


_Warnings = dict[tuple[str, str], Callable[[Obj], Iterator[str]]]

_CHANGED: _Warnings = {
    ("", "Service"): service_warnings,
    ("", "PersistentVolume"): volume_warnings,
    ("", "Secret"): secret_warnings,
    ("", "ServiceAccount"): account_warnings,
    ("", "Node"): node_warnings,
    ("networking.k8s.io", "NetworkPolicy"): network_policy_warnings,
    ("storage.k8s.io", "StorageClass"): storage_class_warnings,
    ("storage.k8s.io", "CSIStorageCapacity"): storage_capacity_warnings,
    ("", "PodTemplate"): _pod_template,
    ("", "ReplicationController"): _template,
    ("", "PersistentVolumeClaim"): _volume_claim,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definition_warnings,
    ("resource.k8s.io", "ResourceSlice"): _slice,
    ("apps", "DaemonSet"): _template,
    ("apps", "Deployment"): _template,
    ("apps", "ReplicaSet"): _template,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _job,
}
_EVERY_TIME = {
    ("resource.k8s.io", "ResourceSlice"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "CSIStorageCapacity"),
}
_IN_NAMES = {("", "ReplicationController"), ("apps", "Deployment"), ("apps", "ReplicaSet")} | {
    ("batch", "CronJob"),
    ("batch", "Job"),
}
_CREATED: _Warnings = {
    ("", "Service"): service_warnings,
    ("", "PersistentVolume"): volume_warnings,
    ("storage.k8s.io", "CSIDriver"): driver_warnings,
    ("discovery.k8s.io", "EndpointSlice"): slice_warnings,
    **{kind: _named(found) if kind in _IN_NAMES else found for kind, found in _CHANGED.items()},
    ("", "Pod"): _pod,
    ("", "Secret"): secret_warnings,
    ("", "ResourceQuota"): quota_warnings,
    ("networking.k8s.io", "Ingress"): ingress_warnings,
    ("node.k8s.io", "RuntimeClass"): runtime_class_warnings,
}
