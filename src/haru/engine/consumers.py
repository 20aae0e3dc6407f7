"""Who uses an allocated claim: the pods and PodGroups that it is reserved for, and when their going frees it.

Source: KEP-4381 (`status.reservedFor`), KEP-5729 (a PodGroup as consumer).
"""

from __future__ import annotations

from collections.abc import Mapping

from haru.engine.decision import Obj
from haru.engine.pods import PodInfo


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


def is_orphaned(claim: Obj, pods: Mapping[str, PodInfo], groups: Mapping[str, Obj]) -> bool:
    """Whether an allocated claim is reserved for consumers that are all gone: it is about to be freed."""
    status = claim.get("status") or {}
    entries = status.get("reservedFor") or ()
    if not status.get("allocation") or not entries:
        return False
    namespace = claim["metadata"].get("namespace") or "default"
    return all(_is_gone(entry, f"{namespace}/{entry.get('name')}", pods, groups) for entry in entries)


def _is_gone(entry: Obj, path: str, pods: Mapping[str, PodInfo], groups: Mapping[str, Obj]) -> bool:
    uid = entry.get("uid")
    if entry.get("resource") == "pods":
        pod = pods.get(path)
        return pod is None or pod.terminal or bool(uid and pod.key.uid != uid)
    if entry.get("resource") == "podgroups":
        group = groups.get(path)
        return group is None or bool(uid and group["metadata"].get("uid") != uid)
    return False


def freed(claim: Obj) -> Obj:
    """The claim as it is once nobody uses it any more: without allocation and reservations."""
    status = claim.get("status") or {}
    kept = {key: value for key, value in status.items() if key not in ("allocation", "reservedFor", "devices")}
    return {**claim, "status": kept}
