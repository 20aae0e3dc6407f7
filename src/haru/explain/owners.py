"""Whose work it is: pods by the workload that a person knows them by.

A Deployment's pods belong to a ReplicaSet whose name ends in the template's hash, which the pods carry as a label; that
is how the Deployment is known without reading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj
from haru.engine.pods import PodInfo
from haru.explain.explanation import Holder
from haru.explain.hypothesis import consumers
from haru.kube.meta import controller_of, get_condition

_HASH_LABEL = "pod-template-hash"


def workload_of(pod: PodInfo) -> str:
    """`deployment/notebooks`, `job/training`, `podgroup/x`, or `pod/x` for a pod of its own."""
    owner = controller_of(pod.obj)
    if owner is not None and owner.get("kind") and owner.get("name"):
        kind, name = str(owner["kind"]).lower(), str(owner["name"])
        suffix = f"-{pod.labels.get(_HASH_LABEL)}"
        if kind == "replicaset" and _HASH_LABEL in pod.labels and name.endswith(suffix):
            return f"deployment/{name.removesuffix(suffix)}"
        return f"{kind}/{name}"
    return f"podgroup/{pod.group.name}" if pod.group is not None else f"pod/{pod.key.name}"


def since_of(pod: PodInfo) -> str:
    """When a pod got its place, as far as its status tells."""
    bound = get_condition(pod.obj, "PodScheduled")
    if bound is not None and bound.get("status") == "True" and bound.get("lastTransitionTime"):
        return str(bound["lastTransitionTime"])
    return str(pod.status.get("startTime") or pod.obj["metadata"].get("creationTimestamp") or "")


def holders_of(snapshot: Snapshot, held: Mapping[str, Iterable[str]]) -> tuple[Holder, ...]:
    """The workloads behind claims; `held` names the devices of each claim. The one with the most devices first."""
    devices: dict[tuple[str, str], set[str]] = {}
    claims: dict[tuple[str, str], set[str]] = {}
    pods: dict[tuple[str, str], dict[str, PodInfo]] = {}
    for path, names in held.items():
        namespace, _, name = path.partition("/")
        claim = snapshot.claims.get(path)
        users = consumers(snapshot, claim) if claim is not None else []
        for key in {(namespace, workload_of(user)) for user in users} or {(namespace, f"resourceclaim/{name}")}:
            devices.setdefault(key, set()).update(names)
            claims.setdefault(key, set()).add(path)
            pods.setdefault(key, {}).update((u.key.path, u) for u in users if workload_of(u) == key[1])
    found = [_holder(key, len(devices[key]), claims[key], pods[key]) for key in devices]
    return tuple(sorted(found, key=lambda h: (-h.devices, h.namespace, h.name)))


def _holder(key: tuple[str, str], devices: int, claims: set[str], pods: Mapping[str, PodInfo]) -> Holder:
    times = sorted(time for pod in pods.values() if (time := since_of(pod)))
    priority = max((pod.priority for pod in pods.values()), default=None)
    return Holder(
        key[1], key[0], devices, tuple(sorted(pods)), tuple(sorted(claims)), priority, times[0] if times else ""
    )


def allocated_since(claim: Obj) -> str:
    """When a claim was allocated, where the API says so."""
    return str(((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp") or "")
