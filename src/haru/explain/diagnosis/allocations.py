"""What is held: the devices of allocated claims, what they are, and who uses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from haru.engine import Reason, Snapshot
from haru.engine.dra import Device, DeviceId, PoolKey, double_allocations
from haru.engine.plugins import extended_resource_claim_use, resolve_claims
from haru.engine.state import PodInfo, namespaced_name, pinned_node
from haru.explain.diagnosis.holders import allocated_since
from haru.explain.explanation import HeldClaim, HeldDevice
from haru.explain.hypothesis import consumers
from haru.kube.meta import Obj, allocation_of
from haru.kube.names import counted

_PRODUCT_NAMES = ("productName", "product", "model")


def held_by(snapshot: Snapshot, pod: PodInfo) -> tuple[HeldClaim, ...]:
    """The allocated claims of a pod."""
    group = snapshot.pod_group(pod.group) if pod.group is not None else None
    uses = resolve_claims(snapshot, pod, group, workload_claims=True)
    if isinstance(uses, Reason):
        return ()
    special = extended_resource_claim_use(snapshot, pod)
    found = (held_claim(snapshot, use.claim) for use in (*uses, *((special,) if special is not None else ())))
    return tuple(held for held in found if held is not None)


def held_claim(snapshot: Snapshot, claim: Obj) -> HeldClaim | None:
    """What a claim holds; None if it is not allocated."""
    allocation = allocation_of(claim)
    if not allocation:
        return None
    results = (allocation.get("devices") or {}).get("results") or ()
    devices = tuple(
        HeldDevice(
            str(r.get("request") or ""),
            r["driver"],
            r["pool"],
            r["device"],
            product_of(snapshot, r["driver"], r["pool"], r["device"]),
            bool(r.get("adminAccess")),
        )
        for r in results
    )
    users = tuple(pod.key.path for pod in consumers(snapshot, claim))
    return HeldClaim(namespaced_name(claim), pinned_node(allocation) or "", devices, users, allocated_since(claim))


def product_of(snapshot: Snapshot, driver: str, pool: str, device: str) -> str:
    """What a device calls itself, or nothing."""
    found = find_device(snapshot, driver, pool, device)
    return product_name(driver, found) if found is not None else ""


def product_name(driver: str, device: Device) -> str:
    """What a device calls itself, or nothing."""
    for name in _PRODUCT_NAMES:
        attribute = device.shape.attribute(f"{driver}/{name}")
        if attribute is not None and isinstance(attribute.value, str):
            return attribute.value
    return ""


def find_device(snapshot: Snapshot, driver: str, pool: str, device: str) -> Device | None:
    """A published device by its identity."""
    known = snapshot.devices.pools.get(str(PoolKey(driver, pool)))
    slices = known.slices if known is not None else ()
    return next((d for item in slices for d in item.devices if d.name == device), None)


def frees_text(snapshot: Snapshot, held: tuple[HeldClaim, ...]) -> str:
    """`1 NVIDIA H100 80GB HBM3`, `2 devices`: what becomes free with these claims."""
    counts = Counter(d.product for claim in held for d in claim.devices if not d.admin)
    return ", ".join(f"{count} {name}" if name else counted(count, "device") for name, count in sorted(counts.items()))


def freed_text(snapshot: Snapshot, pods: Iterable[PodInfo]) -> str:
    """Return what becomes free with pods; a claim of several of them is counted once."""
    claims = {held.claim: held for pod in pods for held in held_by(snapshot, pod)}
    return frees_text(snapshot, tuple(claims.values()))


def allocated_twice(snapshot: Snapshot, holds: Iterable[HeldClaim]) -> list[Reason]:
    """One reason for each device that another claim holds, too, although it cannot."""
    held = (device for one in holds for device in one.devices if not device.admin)
    devices = dict.fromkeys(DeviceId(device.driver, device.pool, device.device) for device in held)
    return [
        Reason(
            "DeviceAllocatedTwice",
            f"{conflict}: delete the pod of one of them",
            {"device": str(conflict.device), "claims": list(conflict.claims), "exceeded": conflict.exceeded},
        )
        for conflict in double_allocations(snapshot.devices, snapshot.allocated, devices)
    ]
