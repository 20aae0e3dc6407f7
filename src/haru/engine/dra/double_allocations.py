"""Find devices that several claims hold beyond what the device allows: two schedulers gave them out.

A device has one holder, unless it allows multiple allocations: then its shares are limited by its capacities. Devices
that consume counters of one set are limited by these together.
Source: KEP-4381; shares and capacity KEP-5075; counters KEP-4815.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from haru.engine.dra.allocated_state import AllocatedState, PoolUse
from haru.engine.dra.model.model import Device, DeviceId, PoolKey
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import Pool
from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True)
class DoubleAllocation:
    """A device, the claims that cannot hold it together (sorted), and what they exceed: nothing for a whole device."""

    device: DeviceId
    claims: tuple[str, ...]
    exceeded: str = ""

    def __str__(self) -> str:
        beyond = f" beyond its {self.exceeded}" if self.exceeded else ""
        return f"device {self.device} is allocated to {' and '.join(self.claims)}{beyond}"


def _any(_claim: str) -> bool:
    return True


def double_allocations(
    devices: DeviceSnapshot,
    allocated: AllocatedState,
    named: Iterable[DeviceId],
    counts: Callable[[str], bool] = _any,
) -> Iterator[DoubleAllocation]:
    """Look at some devices; holders for which `counts` is false hold nothing.

    Costs the holders of each device; where it consumes counters, those of its pool.
    """
    for device in named:
        key = PoolKey(device.driver, device.pool)
        found = _excess(devices.pools.get(str(key)), allocated.use(key), device, counts)
        if found is not None:
            yield found


def all_double_allocations(devices: DeviceSnapshot, allocated: AllocatedState) -> list[DoubleAllocation]:
    """Look at every device that is held."""
    held = sorted(allocated.held_devices())
    return list(double_allocations(devices, allocated, held))


def allocated_devices(allocation: Obj | None) -> list[DeviceId]:
    """The devices of an allocation, without those with admin access."""
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    return [DeviceId(r["driver"], r["pool"], r["device"]) for r in results if not r.get("adminAccess")]


def _excess(
    pool: Pool | None, use: PoolUse, device: DeviceId, counts: Callable[[str], bool]
) -> DoubleAllocation | None:
    whole = {claim for claim in use.devices.get(device.device, ()) if counts(claim)}
    shares = [share for share in use.shares.get(device.device, ()) if counts(share.holder)]
    claims = whole | {share.holder for share in shares}
    if len(whole) > 1 or (whole and len(claims) > 1):
        return DoubleAllocation(device, tuple(sorted(claims)))
    published = pool.device(device.device) if pool is not None and claims else None
    if pool is None or published is None:
        return None
    if len(claims) > 1:
        for name, capacity in published.shape.capacity:
            if sum(dict(share.consumed).get(name, 0) for share in shares) > capacity.value:
                return DoubleAllocation(device, tuple(sorted(claims)), f"capacity {name}")
    return _overdrawn(pool, use, device, published, counts) if published.consumes else None


def _overdrawn(
    pool: Pool, use: PoolUse, device: DeviceId, published: Device, counts: Callable[[str], bool]
) -> DoubleAllocation | None:
    drawing = {
        name: claims
        for name in use.names()
        if (claims := {claim for claim in use.holders(name) if counts(claim)}) and pool.device(name) is not None
    }
    for counter_set, amounts in published.consumes:
        for counter, _ in amounts:
            total, claims = 0, set[str]()
            for name, holders in drawing.items():
                amount = _consumed(pool.device(name), counter_set, counter)
                total += amount
                claims |= holders if amount else set()
            limit = pool.counter(counter_set, counter)
            if limit is not None and total > limit and len(claims) > 1:
                return DoubleAllocation(device, tuple(sorted(claims)), f"counter {counter_set}/{counter}")
    return None


def _consumed(device: Device | None, counter_set: str, counter: str) -> int:
    consumes = device.consumes if device is not None else ()
    return sum(dict(amounts).get(counter, 0) for name, amounts in consumes if name == counter_set)
