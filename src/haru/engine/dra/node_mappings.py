"""Devices that are made of the node's own resources, or need some of them: how much an allocation takes.

A device may say that it counts against cpu, memory or another resource of its node: so much for the device, or so much
for each unit of a capacity that was allocated.
Source: KEP-5517 (DRANodeAllocatableResources, alpha in 1.36), its `nodeAllocatableResourceMappings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haru.engine.dra.errors import AllocationError
from haru.engine.dra.model.model import NodeMapping, PoolKey
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity

_NANO = 10**9


def mappings_of(snapshot: DeviceSnapshot, key: PoolKey, device: str) -> Sequence[NodeMapping]:
    """How a device counts against resources of its node, by the newest generation of its pool; mostly it does not."""
    pool = snapshot.pools.get(str(key))
    known = [item for item in pool.slices if device in item.mappings] if pool is not None else ()
    return max(known, key=lambda item: item.generation).mappings[device] if known else ()


def counts_against_node(snapshot: DeviceSnapshot, allocation: Obj) -> bool:
    """Whether any device of an allocation takes something of its node's resources."""
    results = (allocation.get("devices") or {}).get("results") or ()
    return any(mappings_of(snapshot, PoolKey(r["driver"], r["pool"]), r["device"]) for r in results)


def mapped_amounts(snapshot: DeviceSnapshot, claim: str, allocation: Obj) -> Mapping[str, Quantity]:
    """What a claim's devices take of their node's resources.

    Raises AllocationError where a capacity should count of which the allocation does not say how much it takes.
    """
    total: dict[str, Quantity] = {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        for mapping in mappings_of(snapshot, PoolKey(result["driver"], result["pool"]), result["device"]):
            amount = _amount(claim, mapping, result)
            if amount is not None:
                total[mapping.resource] = total.get(mapping.resource, Quantity(0)) + amount
    return total


def _amount(claim: str, mapping: NodeMapping, result: Obj) -> Quantity | None:
    if not mapping.capacity:
        return mapping.multiplier
    consumed = result.get("consumedCapacity")
    if consumed is None:
        raise AllocationError(
            f"claim {claim}, device {result['device']}: ConsumedCapacity is nil, but Capacity key "
            f"'{mapping.capacity}' is set in NodeAllocatableResourceMappings for resource {mapping.resource}"
        )
    taken = consumed.get(mapping.capacity)
    if taken is None:  # this capacity plays no part in the allocation
        return None
    amount = parse_quantity(taken)
    return Quantity(-(-amount.nano * mapping.multiplier.nano // _NANO), amount.format)
