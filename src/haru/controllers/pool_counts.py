"""How full a driver's pools are: the answer to a ResourcePoolStatusRequest (pure).

Only the newest generation of a pool counts. A device is *allocated* if a claim holds it or a share of it (admin access
holds nothing), and *unavailable* if nobody holds it but nobody could get it either: it is tainted against scheduling,
or what its partitions or its card have left of a shared counter is too little for it. A pool that the allocator would
not touch, because slices are missing or contradict each other, has a `validationError` in place of counts.
Source: KEP-5677; what is allocated and what counters have left is the allocator's own arithmetic (KEP-4815, 5075).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from haru.engine.dra import AllocatedState, DeviceSnapshot, PoolKey, PoolUse, PoolView, Slice
from haru.kube.meta import Obj
from haru.kube.validation.classes import MAX_POOL_ERROR_BYTES

DEFAULT_LIMIT = 100


class PoolCounts(NamedTuple):
    """How many pools the request asks about, the first of them with their counts, and how many of those are incomplete.

    `pools` are `PoolStatus` objects of resource.k8s.io/v1alpha3, at most `spec.limit` of them, by driver and name.
    """

    pool_count: int
    pools: tuple[Obj, ...]
    incomplete: int


def count_pools(
    spec: Mapping[str, Any],
    slices: Iterable[Obj],
    claims: Iterable[Obj],
    rules: Iterable[Obj] = (),
    *,
    partitionable: bool = True,
) -> PoolCounts:
    """Counts the devices of the pools that a request's `spec` selects.

    `rules` are DeviceTaintRules. Without `partitionable` (gate DRAPartitionableDevices) shared counters bind nobody.
    Raises KeyError, TypeError or ValueError for objects that no API server would have stored.
    """
    chosen = [obj for obj in slices if _selected(spec, obj["spec"])]
    pools = sorted(DeviceSnapshot.of(chosen, taint_rules=rules).pools.values(), key=lambda pool: pool.key)
    held = AllocatedState.from_claims(claims)
    told, incomplete = [], 0
    for pool in pools[: spec.get("limit") or DEFAULT_LIMIT]:
        newest = max(item.generation for item in pool.slices)
        current = [item for item in pool.slices if item.generation == newest]
        announced = current[0].slice_count
        if len(current) == announced:
            counts = _counts(pool.key, current, held.use(pool.key), partitionable)
        else:
            incomplete += 1
            counts = _error(f"incomplete: {len(current)} of {announced} slices of generation {newest} are there")
        identity = {"driver": pool.key.driver, "poolName": pool.key.pool, "generation": newest}
        told.append({**identity, **_node(current), **counts})
    return PoolCounts(len(pools), tuple(told), incomplete)


def _selected(spec: Mapping[str, Any], of_slice: Mapping[str, Any]) -> bool:
    return of_slice["driver"] == spec["driver"] and spec.get("poolName") in (None, of_slice["pool"]["name"])


def _node(slices: Sequence[Slice]) -> Obj:
    """The pool's node, if it has one only."""
    names = {item.placement.node_name for item in slices}
    return {"nodeName": names.pop()} if len(names) == 1 and "" not in names else {}


def _counts(key: PoolKey, slices: Sequence[Slice], use: PoolUse, partitionable: bool) -> Obj:
    view = PoolView(key, slices, (), True, partitionable)
    if view.status == "invalid":
        return _error(f"invalid: {view.problem}")
    held, left = use.names(), view.counters_left(use)
    unavailable = 0
    for device, charge in zip(view.devices, view.charges, strict=True):
        if device.name not in held:
            tainted = any(taint.repels for taint in device.taints)
            short = partitionable and any(left[counter] < amount for counter, amount in charge)
            unavailable += tainted or short
    total = len(view.devices)
    return {
        "resourceSliceCount": len(slices),
        "totalDevices": total,
        "allocatedDevices": len(held),
        "availableDevices": max(0, total - len(held) - unavailable),
        "unavailableDevices": unavailable,
    }


def _error(text: str) -> Obj:
    return {"validationError": text.encode()[:MAX_POOL_ERROR_BYTES].decode(errors="ignore")}
