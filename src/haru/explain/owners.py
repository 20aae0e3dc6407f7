"""Whose work it is: pods by the workload that a person knows them by.

A Deployment's pods belong to a ReplicaSet whose name ends in the template's hash, which the pods carry as a label; that
is how the Deployment is known without reading it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest, nsmallest

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj
from haru.engine.persistent import differing
from haru.engine.pods import PodInfo
from haru.explain.busy import idle_devices
from haru.explain.explanation import Holder
from haru.explain.hypothesis import consumers
from haru.kube.meta import get_condition

MOST_HOLDERS = 100
_HASH_LABEL = "pod-template-hash"
_SPARE = 1000
_MOST_TOLD = 8
_NO_CLAIM: Obj = {}
_Held = Mapping[tuple[str, ...], int]
_Told = tuple[tuple[Holder, ...], tuple[int, int]]


def workload_of(pod: PodInfo) -> str:
    """`deployment/notebooks`, `job/training`, `podgroup/x`, or `pod/x` for a pod of its own."""
    owner = pod.controller if "ownerReferences" in pod.obj["metadata"] else None
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
    """A workload that is told of."""

    __slots__ = ("claims", "devices", "pods")

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.claims: list[str] = []
        self.pods: dict[str, PodInfo] = {}


_Workkey = tuple[str, str]
"""A workload: its namespace, and what it is called (`workload_of`)."""
_Ownership = tuple[tuple[_Workkey, ...], tuple[tuple[_Workkey, str, PodInfo], ...]]
"""Whose a claim is: the workloads of its users, or itself; and each user's workload, path and pod."""


class _Owners:
    """What was found out about claims, kept with the cluster; it follows it at the cost of what has changed."""

    def __init__(self) -> None:
        self._known: dict[str, _Ownership] = {}
        self._relying: dict[str, tuple[str, ...]] = {}
        self._seen: Snapshot | None = None
        self._told: list[tuple[_Held, _Told]] = []

    def catch_up(self, snapshot: Snapshot) -> None:
        """Forget what may be out of date."""
        last, self._seen = self._seen, None
        stale: set[str] = set()
        if last is None or len(self._known) > 2 * len(snapshot.claims) + _SPARE:
            self._known, self._relying, self._told = {}, {}, []
        else:
            stale = differing(snapshot.claims, last.claims)
            for pod in differing(snapshot.pods, last.pods):
                stale.update(self._relying.pop(pod, ()))
        if not stale.isdisjoint(self._known):
            self._told = []
        for path in stale:
            self._known.pop(path, None)
        self._seen = snapshot

    def told(self, held: _Held) -> _Told | None:
        """What was told of the same holdings, if nothing about them has changed."""
        return next((found for known, found in self._told if known == held), None)

    def tell(self, held: _Held, found: _Told) -> None:
        """Keep what is told, unless it has to be found out each time."""
        if all(path in self._known for paths in held for path in paths):
            self._told = [*self._told[-_MOST_TOLD + 1 :], (dict(held), found)]

    def of(self, snapshot: Snapshot, path: str) -> _Ownership:
        """Whose a claim is now."""
        found = self._known.get(path)
        if found is not None:
            return found
        claim = snapshot.claims.get(path)
        namespace = path.partition("/")[0]
        entries: Sequence[Obj] = ((claim or _NO_CLAIM).get("status") or _NO_CLAIM).get("reservedFor") or ()
        if len(entries) == 1 and entries[0].get("resource") == "pods":
            # As with most claims, of which there may be many: a pod that has it for itself.
            entry = entries[0]
            pod_path = f"{namespace}/{entry.get('name')}"
            pod = snapshot.pods.get(pod_path)
            if pod is not None and pod.key.uid == entry.get("uid") and not pod.terminal:
                keys = ((namespace, workload_of(pod)),)
                made: _Ownership = keys, ((keys[0], pod_path, pod),)
                self._known[path] = made
                known = self._relying.setdefault(pod_path, (path,))
                if path not in known:
                    self._relying[pod_path] = (*known, path)
                return made
        users = consumers(snapshot, claim) if claim is not None else []
        owned = tuple([((namespace, workload_of(user)), user.key.path, user) for user in users])
        itself = (namespace, f"resourceclaim/{path.partition('/')[2]}")
        made = tuple(dict.fromkeys(key for key, _, _ in owned)) or (itself,), owned
        if all(entry.get("resource") == "pods" for entry in entries):
            self._keep(path, made, [f"{namespace}/{entry.get('name')}" for entry in entries])
        return made

    def _keep(self, claim: str, owned: _Ownership, pods: Sequence[str]) -> None:
        """Whose a claim is depends on these pods, whether they are there or not."""
        self._known[claim] = owned
        for pod in pods:
            known = self._relying.get(pod, ())
            if claim not in known:
                self._relying[pod] = (*known, claim)


def holders_of(snapshot: Snapshot, held: _Held) -> _Told:
    """The workloads behind claims, and how many more workloads with how many devices there are.

    `held` says how many devices are held by which claims (together). Those with the most devices are told, in order.
    """
    memory = snapshot.notes.entry("owners", None, _Owners)
    memory.catch_up(snapshot)
    known_answer = memory.told(held)
    if known_answer is not None:
        return known_answer
    devices: dict[_Workkey, int] = {}
    found: dict[str, _Ownership] = {}
    for paths, count in held.items():
        mine: tuple[_Workkey, ...] = ()
        for path in paths:
            ownership = found.get(path)
            if ownership is None:
                ownership = found[path] = memory.of(snapshot, path)
            mine = mine + ownership[0] if mine else ownership[0]
        for key in mine if len(mine) < 2 else dict.fromkeys(mine):
            devices[key] = devices.get(key, 0) + count
    least = nlargest(MOST_HOLDERS, devices.values())[-1] if devices else 0
    told = sorted(key for key, count in devices.items() if count > least)
    told += nsmallest(MOST_HOLDERS - len(told), [key for key, count in devices.items() if count == least])
    told.sort(key=lambda key: (-devices[key], key))
    workloads = {key: _Workload(devices[key]) for key in told}
    for path, (keys, users) in found.items():
        for key in keys:
            if key in workloads:
                workloads[key].claims.append(path)
                workloads[key].pods.update((name, pod) for owner, name, pod in users if owner == key)
    unnamed = len(devices) - len(told), sum(devices.values()) - sum(devices[key] for key in told)
    answer = tuple(_holder(snapshot, key, workloads[key]) for key in told), unnamed
    memory.tell(held, answer)
    return answer


def _holder(snapshot: Snapshot, key: _Workkey, known: _Workload) -> Holder:
    pods = known.pods
    since = min((time for pod in pods.values() if (time := since_of(pod))), default="")
    priority = max((pod.priority for pod in pods.values()), default=None)
    claims = tuple(sorted(known.claims))
    idle = idle_devices(snapshot, claims, list(pods.values()))
    return Holder(key[1], key[0], known.devices, tuple(sorted(pods)), claims, priority, since, idle)


def allocated_since(claim: Obj) -> str:
    """When a claim was allocated, where the API says so."""
    return str(((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp") or "")
