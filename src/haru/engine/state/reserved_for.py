"""The consumers of an allocated claim (pods and PodGroups), when their end frees it, and the workloads that they are.

The owners of claims are indexed with each event, so that the holders of devices are known without a look at every claim
and pod.
Source: KEP-4381 (`status.reservedFor`), KEP-5729 (a PodGroup as consumer); workloads are our own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

from haru.engine.state.cow_map import CowMap, FrozenMap
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.podgroup_state import PodGroupState
from haru.gangs import described_above, described_by, title_of
from haru.kube.meta import Obj, allocation_of

PODS, POD_GROUPS = "pods", "podgroups"
_KEPT = "kept"
_NAME_KEY = "metadata.name"
_USE = frozenset({"allocation", "reservedFor", "devices"})
"""What a claim's status says of its use."""
_STATUS, _RESERVED_FOR, _RESOURCE, _UID = map(itemgetter, ("status", "reservedFor", "resource", "uid"))


def consumer_key(resource: str, namespace: str, name: str) -> str:
    """A consumer by name: `pods/NAMESPACE/NAME` or `podgroups/NAMESPACE/NAME`."""
    return f"{resource}/{namespace}/{name}"


def consumer_keys(claim: Obj | None) -> frozenset[str]:
    """The consumers of a claim; none while it is not allocated."""
    status = (claim or {}).get("status") or {}
    if claim is None or not status.get("allocation"):
        return frozenset()
    namespace = claim["metadata"].get("namespace") or "default"
    entries = status.get("reservedFor") or ()
    keys = [consumer_key(entry.get("resource") or "", namespace, entry.get("name") or "") for entry in entries]
    return frozenset(keys)


def sole_user(claim: Obj | None) -> str | None:
    """Return the UID of the pod for which alone a claim is reserved, as most claims are; None for any other."""
    try:
        (entry,) = claim["status"]["reservedFor"]  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return None  # there is no claim, no status, or not one entry
    return entry.get("uid") if entry.get("resource") == PODS else None


def sole_users(claims: Sequence[Any]) -> list[str | None]:
    """`sole_user` of each; where all are reserved for one pod each, as mostly, no claim costs a call."""
    with suppress(KeyError, TypeError):
        lists = list(map(_RESERVED_FOR, map(_STATUS, claims)))
        entries = list(chain.from_iterable(lists))
        if set(map(len, lists)) <= {1} and set(map(_RESOURCE, entries)) <= {PODS}:
            return list(map(_UID, entries))
    return list(map(sole_user, claims))


@dataclass(frozen=True, slots=True)
class ReservedFor:
    """The consumers that exist: pods, PodGroups and their members, by path; `evicted`: groups with evicted members."""

    pods: Mapping[str, PodInfo]
    pod_groups: Mapping[str, Obj]
    groups: Mapping[str, PodGroupState]
    evicted: Collection[str]

    def are_gone(self, claim: Obj) -> bool:
        """Return whether all consumers of an allocated claim are gone: it is about to be freed."""
        status = claim.get("status") or {}
        entries = status.get("reservedFor") or ()
        if not status.get("allocation") or not entries:
            return False
        return not [entry for entry in entries if not self._is_gone(entry, claim)]

    def members(self, group: str, claim: str) -> frozenset[str]:
        """The members of a group that have places and use a claim."""
        state = self.groups.get(group)
        members = state.scheduled if state is not None else ()
        return frozenset(path for path in members if claim in self.pods[path].claim_paths)

    def _is_gone(self, entry: Obj, claim: Obj) -> bool:
        namespace, uid = claim["metadata"].get("namespace") or "default", entry.get("uid")
        path = f"{namespace}/{entry.get('name')}"
        if entry.get("resource") == PODS:
            pod = self.pods.get(path)
            return pod is None or pod.terminal or bool(uid and pod.key.uid != uid)
        if entry.get("resource") == POD_GROUPS:
            group = self.pod_groups.get(path)
            if group is None or (uid and group["metadata"].get("uid") != uid):
                return True
            return path in self.evicted and not self.members(path, f"{namespace}/{claim['metadata']['name']}")
        return False


def kept_by_groups(claim: Obj) -> Obj:
    """The claim for the case that members leave it to their group: it is free only once the group has gone."""
    status = claim["status"]
    entries = [{**e, _KEPT: True} if e.get("resource") == POD_GROUPS else e for e in status["reservedFor"]]
    return {**claim, "status": {**status, "reservedFor": entries}}


def is_kept(entry: Obj) -> bool:
    """Return whether a consumer is a group that keeps its claim though its members end."""
    return _KEPT in entry


def pinned_node(allocation: Obj) -> str | None:
    """The one node that an allocation can be used from, or None if its selector is of another form."""
    terms: Sequence[Obj] = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return None
    fields: Sequence[Obj] = terms[0].get("matchFields") or ()
    if len(fields) != 1 or fields[0].get("key") != _NAME_KEY or len(fields[0].get("values") or ()) != 1:
        return None
    return str(fields[0]["values"][0])


def freed(claim: Obj) -> Obj:
    """The claim as it is once nobody uses it any more: without allocation and reservations."""
    status = claim.get("status") or {}
    kept = {} if status.keys() <= _USE else {key: value for key, value in status.items() if key not in _USE}
    return {**claim, "status": kept}


_HASH_LABEL = "pod-template-hash"

Workload = tuple[str, str]
"""A workload: its namespace, and what it is called (`workload_of`)."""


def workload_of(pod: PodInfo) -> str:
    """`deployment/notebooks`, `job/training`, `jobset/sweep`, `podgroup/x`, or `pod/x` for a pod of its own.

    A Deployment's pods belong to a ReplicaSet whose name ends in the template's hash, which the pods carry as a label;
    that is how the Deployment is known without reading it. Likewise by labels what makes Jobs or StatefulSets.
    """
    if pod.group is not None and (described := described_by(pod.group.name)):
        return described
    owner = pod.controller if "ownerReferences" in pod.obj["metadata"] else None
    if owner is not None and owner.get("kind") and owner.get("name"):
        return _maker(pod, str(owner["kind"]), str(owner["name"]))
    if pod.group is None:
        return f"pod/{pod.key.name}"
    kind, name = title_of(pod.group.name)
    return f"{kind.lower()}/{name}"


def _maker(pod: PodInfo, kind: str, name: str) -> str:
    """What a pod's controller makes pods for: a Deployment, a JobSet or the like, or itself."""
    if kind == "ReplicaSet" and _HASH_LABEL in pod.labels:
        suffix = f"-{pod.labels[_HASH_LABEL]}"
        if name.endswith(suffix):
            return f"deployment/{name.removesuffix(suffix)}"
    above = described_above(pod.obj, kind) if pod.labels else ""
    return above or f"{kind.lower()}/{name}"


def is_user(entry: Obj, pod: PodInfo) -> bool:
    """Return whether a pod is the one of an entry in `reservedFor` (by UID) and has not ended."""
    return pod.key.uid == entry.get("uid") and not pod.terminal


def owners_of(path: str, claim: Obj, pods: Mapping[str, PodInfo]) -> tuple[Workload, ...] | None:
    """The workloads of the pods that an allocated claim is reserved for, or itself if there is none.

    None where PodGroups use it, too, whose members come and go.
    """
    namespace = path.partition("/")[0]
    entries: Sequence[Obj] = claim["status"].get("reservedFor") or ()
    if any(entry.get("resource") != PODS for entry in entries):
        return None
    named = [(entry, pods.get(f"{namespace}/{entry.get('name')}")) for entry in entries]
    return used_for(path, [pod for entry, pod in named if pod is not None and is_user(entry, pod)])


def used_for(path: str, users: Sequence[PodInfo]) -> tuple[Workload, ...]:
    """The workloads of a claim's users; the claim itself if it has none."""
    namespace, _, name = path.partition("/")
    if not users:
        return ((namespace, f"resourceclaim/{name}"),)
    found = [(namespace, workload_of(pod)) for pod in users]
    return tuple(found) if len(found) == 1 else tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, eq=False)
class OwnedPods:
    """The owners of allocated claims in the state of `claims` and `pods`; None: see `owners_of`."""

    by_claim: FrozenMap[tuple[Workload, ...] | None]
    claims: Mapping[str, Obj]
    pods: Mapping[str, PodInfo]

    def of(
        self, claims: Mapping[str, Obj], pods: Mapping[str, PodInfo]
    ) -> FrozenMap[tuple[Workload, ...] | None] | None:
        """Return the owners by the paths of claims; None for other claims and pods."""
        return self.by_claim if self.claims is claims and self.pods is pods else None


class WorkloadOwners:
    """Index the owners of allocated claims; each snapshot costs the claims and users that have changed."""

    def __init__(self) -> None:
        self._by_claim: CowMap[tuple[Workload, ...] | None] = CowMap()
        self._changed: set[str] = set()

    def changed(self, claims: Iterable[str]) -> None:
        """Note that these claims, or pods that use them, have changed."""
        self._changed.update(claims)

    def freeze(self, claims: FrozenMap[Obj], pods: FrozenMap[PodInfo]) -> OwnedPods:
        """Return the owners now, as an immutable value."""
        for path in self._changed:
            claim = claims.get(path)
            if claim is not None and allocation_of(claim):
                self._by_claim[path] = owners_of(path, claim, pods)
            else:
                self._by_claim.pop(path, None)
        self._changed.clear()
        return OwnedPods(self._by_claim.freeze(), claims, pods)
