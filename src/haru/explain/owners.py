"""Whose work it is: pods by the workload that a person knows them by.

A Deployment's pods belong to a ReplicaSet whose name ends in the template's hash, which the pods carry as a label; that
is how the Deployment is known without reading it.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from typing import NamedTuple

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj
from haru.engine.pods import PodInfo
from haru.explain.explanation import Holder
from haru.explain.hypothesis import consumers
from haru.kube.meta import get_condition

MOST_HOLDERS = 100
_HASH_LABEL = "pod-template-hash"
_SPARE = 1000


def workload_of(pod: PodInfo) -> str:
    """`deployment/notebooks`, `job/training`, `podgroup/x`, or `pod/x` for a pod of its own."""
    owner = pod.controller
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


class _Workload:
    """What is known of one workload while holders are counted."""

    __slots__ = ("claims", "devices", "pods")

    def __init__(self) -> None:
        self.devices = 0
        self.claims: list[str] = []
        self.pods: dict[str, PodInfo] = {}


class _Ownership(NamedTuple):
    """Whose a claim is: its users with their workloads, as long as claim and pods are the same."""

    claim: Obj | None
    pods: tuple[tuple[str, PodInfo | None], ...]
    users: tuple[tuple[tuple[str, str], PodInfo], ...]


class _Owners:
    """What was found out about claims, kept with the cluster."""

    def __init__(self) -> None:
        self._known: dict[str, _Ownership] = {}

    def of(self, snapshot: Snapshot, path: str) -> _Ownership:
        """Who uses a claim now."""
        claim, pods = snapshot.claims.get(path), snapshot.pods
        found = self._known.get(path)
        if found is not None and found.claim is claim and all(pods.get(name) is pod for name, pod in found.pods):
            return found
        if len(self._known) > 2 * len(snapshot.claims) + _SPARE:
            self._known.clear()
        namespace = path.partition("/")[0]
        users = consumers(snapshot, claim) if claim is not None else []
        entries = ((claim or {}).get("status") or {}).get("reservedFor") or ()
        named = [f"{namespace}/{entry.get('name')}" for entry in entries]
        made = _Ownership(
            claim,
            tuple([(name, pods.get(name)) for name in named]),
            tuple([((namespace, workload_of(user)), user) for user in users]),
        )
        if all(entry.get("resource") == "pods" for entry in entries):
            self._known[path] = made
        return made


def holders_of(snapshot: Snapshot, held: Mapping[tuple[str, ...], int]) -> tuple[tuple[Holder, ...], tuple[int, int]]:
    """The workloads behind claims, and how many more workloads with how many devices there are.

    `held` says how many devices are held by which claims (together). Those with the most devices are told, in order.
    """
    memory = snapshot.notes.entry("owners", None, _Owners)
    found: dict[tuple[str, str], _Workload] = {}
    owners: dict[str, list[_Workload]] = {}
    for paths, count in held.items():
        mine: list[_Workload] = []
        for path in paths:
            known = owners.get(path)
            if known is None:
                known = owners[path] = _workloads(path, memory.of(snapshot, path), found)
            mine += known
        for workload in mine if len(mine) < 2 else dict.fromkeys(mine):
            workload.devices += count
    told = dict.fromkeys(nsmallest(MOST_HOLDERS, found, key=lambda key: (-found[key].devices, key)))
    rest = [workload.devices for key, workload in found.items() if key not in told] if len(found) > len(told) else []
    return tuple(_holder(key, found[key]) for key in told), (len(rest), sum(rest))


def _workloads(path: str, owned: _Ownership, found: dict[tuple[str, str], _Workload]) -> list[_Workload]:
    """Whose claim it is: the workloads of its users, or itself."""
    mine: dict[_Workload, None] = {}
    for key, user in owned.users:
        workload = found.get(key)
        if workload is None:
            workload = found[key] = _Workload()
        workload.pods[user.key.path] = user
        mine[workload] = None
    if not mine:
        namespace, _, name = path.partition("/")
        mine[found.setdefault((namespace, f"resourceclaim/{name}"), _Workload())] = None
    for workload in mine:
        workload.claims.append(path)
    return list(mine)


def _holder(key: tuple[str, str], known: _Workload) -> Holder:
    pods = known.pods
    since = min((time for pod in pods.values() if (time := since_of(pod))), default="")
    priority = max((pod.priority for pod in pods.values()), default=None)
    return Holder(key[1], key[0], known.devices, tuple(sorted(pods)), tuple(sorted(known.claims)), priority, since)


def allocated_since(claim: Obj) -> str:
    """When a claim was allocated, where the API says so."""
    return str(((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp") or "")
