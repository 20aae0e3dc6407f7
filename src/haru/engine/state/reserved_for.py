"""The consumers of an allocated claim (pods and PodGroups), and when their end frees it.

Source: KEP-4381 (`status.reservedFor`), KEP-5729 (a PodGroup as consumer).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from haru.engine.state.decision import Obj
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.podgroup_state import PodGroupState

PODS, POD_GROUPS = "pods", "podgroups"
_KEPT = "kept"


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
    return frozenset(consumer_key(entry.get("resource") or "", namespace, entry.get("name") or "") for entry in entries)


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
        return all(self._is_gone(entry, claim) for entry in entries)

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


def freed(claim: Obj) -> Obj:
    """The claim as it is once nobody uses it any more: without allocation and reservations."""
    status = claim.get("status") or {}
    kept = {key: value for key, value in status.items() if key not in ("allocation", "reservedFor", "devices")}
    return {**claim, "status": kept}
