"""Which running pods have to go, when, and why: their node or device has gone, or a taint drives them away.

The times are the eviction controllers' own arithmetic. Only what a change took away counts as gone: a device that no
driver published to begin with is not held against anybody.
Source: KEP-3902 (node taints), KEP-5055 (device taints); pod garbage collection, as behaviour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from haru.engine import Snapshot
from haru.engine.dra import DeviceId, claim_eviction, newest_slices
from haru.engine.plugins import eviction_time, no_execute_taints
from haru.engine.state import PodInfo, consumer_key
from haru.explain.changes import listed
from haru.kube.meta import Obj, allocation_of
from haru.whatif.objects import Objects

CauseType = Literal["Preempted", "NodeTaint", "DeviceTaint", "NodeGone", "DeviceGone", "Deleted"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a pod has to go: a type of a closed list, a sentence, and the names behind it."""

    type: CauseType
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod that has to go at a time."""

    path: str
    at: datetime
    cause: Cause


@dataclass(frozen=True)
class Ground:
    """What pods stand on: slices by pool, taint rules, and what a change took away."""

    slices: Mapping[tuple[str, str], tuple[Obj, ...]]
    rules: tuple[Obj, ...]
    lost_nodes: frozenset[str]
    lost_devices: frozenset[DeviceId]

    @staticmethod
    def of(objects: Objects, original: Objects) -> Ground:
        """The ground of a changed cluster, given the one it was made from."""
        slices, before = _by_pool(objects), _by_pool(original)
        lost: set[DeviceId] = set()
        for pool, known in before.items():
            now = slices.get(pool, ())
            if len(now) != len(known) or any(a is not b for a, b in zip(now, known, strict=True)):
                lost |= {DeviceId(*pool, name) for name in _device_names(known) - _device_names(now)}
        nodes = frozenset(original.of_kind("Node").keys() - objects.of_kind("Node").keys())
        return Ground(slices, tuple(objects.of_kind("DeviceTaintRule").values()), nodes, frozenset(lost))


def _by_pool(objects: Objects) -> dict[tuple[str, str], tuple[Obj, ...]]:
    found: dict[tuple[str, str], list[Obj]] = {}
    for _, item in sorted(objects.of_kind("ResourceSlice").items()):
        found.setdefault((item["spec"]["driver"], item["spec"]["pool"]["name"]), []).append(item)
    return {pool: tuple(slices) for pool, slices in found.items()}


def _device_names(slices: Iterable[Obj]) -> set[str]:
    return {device["name"] for item in newest_slices(slices) for device in item["spec"].get("devices") or ()}


def departures(snapshot: Snapshot, ground: Ground, now: datetime) -> list[Departure]:
    """The pods on nodes that have to go, now or later; each once, by the earliest of its causes."""
    by_node = {
        name: taints
        for name, info in snapshot.nodes.items()
        if info.present and (taints := no_execute_taints(info.spec.obj))
    }
    found: list[Departure] = []
    claims = _claims_that_drive_away(snapshot, ground, now)
    for path, pod in snapshot.pods.items():
        if not pod.node or pod.terminal or pod.deleting:
            continue
        due = [*_from_node(pod, by_node, ground, now), *(claims.get(path) or ())]
        if due:
            at, cause = min(due, key=lambda entry: entry[0])
            found.append(Departure(path, at, cause))
    return found


def _from_node(
    pod: PodInfo, tainted: Mapping[str, list[Obj]], ground: Ground, now: datetime
) -> Iterable[tuple[datetime, Cause]]:
    if pod.node in ground.lost_nodes:
        yield now, Cause("NodeGone", f"node {pod.node} is gone", {"node": pod.node})
    taints = tainted.get(pod.node)
    at = eviction_time(pod.obj, taints, now) if taints else None
    if taints and at is not None:
        text = ", ".join(f"{t['key']}{'=' + t['value'] if t.get('value') else ''}:NoExecute" for t in taints)
        yield at, Cause("NodeTaint", f"node {pod.node} has the taint {text}", {"node": pod.node})


def _claims_that_drive_away(
    snapshot: Snapshot, ground: Ground, now: datetime
) -> Mapping[str, list[tuple[datetime, Cause]]]:
    """By pod: when and why the devices that it uses make it go."""
    if not ground.rules and not ground.lost_devices and not any(map(_has_taints, ground.slices.values())):
        return {}
    found: dict[str, list[tuple[datetime, Cause]]] = {}
    for path, claim in snapshot.claims.items():
        results = _results(claim)
        due = list(_from_devices(results, ground, now)) if results else []
        for pod in _users(snapshot, path, claim) if due else ():
            found.setdefault(pod, []).extend(due)
    return found


def _has_taints(slices: Collection[Obj]) -> bool:
    return any(device.get("taints") for item in slices for device in item["spec"].get("devices") or ())


def _results(claim: Obj) -> list[Obj]:
    allocation = allocation_of(claim) or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _from_devices(results: list[Obj], ground: Ground, now: datetime) -> Iterable[tuple[datetime, Cause]]:
    held = [DeviceId(r["driver"], r["pool"], r["device"]) for r in results]
    lost = [device for device in held if device in ground.lost_devices]
    if lost:
        names = [f"{device.pool}/{device.device}" for device in lost]
        text = f"device {names[0]} is gone" if len(names) == 1 else f"devices {listed(names)} are gone"
        yield now, Cause("DeviceGone", text, {"devices": names})
    due = claim_eviction(results, lambda driver, pool: ground.slices.get((driver, pool), ()), ground.rules, now)
    if due is not None:
        yield due.at, Cause("DeviceTaint", f"device taint {'; '.join(due.taints)}", {"taints": list(due.taints)})


def _users(snapshot: Snapshot, path: str, claim: Obj) -> Iterable[str]:
    """The pods that a claim is reserved for, those of a PodGroup included."""
    namespace = claim["metadata"].get("namespace") or "default"
    for entry in (claim.get("status") or {}).get("reservedFor") or ():
        if entry.get("resource") == "podgroups":
            state = snapshot.podgroup_index.states.get(f"{namespace}/{entry.get('name')}")
            members = sorted(state.all) if state is not None else []
            yield from (m for m in members if _names_claim(snapshot.pods[m], path))
        elif path in (
            snapshot.claim_index.by_consumer.get(consumer_key("pods", namespace, str(entry.get("name")))) or ()
        ):
            yield f"{namespace}/{entry.get('name')}"


def _names_claim(pod: PodInfo, path: str) -> bool:
    """Whether a pod uses a claim, by its own or by a generated name."""
    recorded = {s["name"]: s.get("resourceClaimName") for s in pod.status.get("resourceClaimStatuses") or ()}
    entries = pod.spec.get("resourceClaims") or ()
    return any(
        f"{pod.key.namespace}/{entry.get('resourceClaimName') or recorded.get(entry['name'])}" == path
        for entry in entries
    )
