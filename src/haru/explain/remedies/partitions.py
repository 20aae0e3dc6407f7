"""Whole cards and parts of them: several cards that work together are no use as parts.

Partitions of different cards have no fast link between them, and a partition has a part of the memory: who asks for
several whole cards for a pod, or for a gang, is not helped by as many partitions.
"""

from __future__ import annotations

from haru.engine import Decision, Snapshot
from haru.engine.dra import Device, Pool, PoolKey, Selection, compiled_selector_of
from haru.engine.podgroup import required_members
from haru.explain.cards import is_part
from haru.explain.diagnosis.diagnosis import Diagnosis
from haru.explain.diagnosis.workload_unit import WorkloadUnit


def needs_whole_cards(snapshot: Snapshot, work: WorkloadUnit, found: Diagnosis) -> bool:
    """Whether the work asks for several devices that work together, and not for parts of cards."""
    gang = work.group is not None and required_members(work.pod_group(snapshot)) > 1
    for kind, _ in found.members:
        asks = [ask for claim in kind.claims for request in claim.requests for ask in request.asks[:1]]
        several = sum(ask.count for ask in asks) > 1
        if (gang or several) and asks and not any(_selects_parts(snapshot, ask.selection) for ask in asks):
            return True
    return False


def _selects_parts(snapshot: Snapshot, selection: Selection) -> bool:
    """Whether what is selected is parts of cards, by the first device of it; no if nothing is."""
    judge = compiled_selector_of(selection, snapshot.devices.cache)
    for pool in snapshot.devices.pools.values():
        for item in pool.slices:
            for device in item.devices:
                if judge.verdict(device.shape) is True:
                    return is_part(pool, device)
    return False


def gives_parts(snapshot: Snapshot, decision: Decision) -> bool:
    """Whether anybody would get a part of a card."""
    results = (
        result
        for member in decision.placed
        for given in member.allocations
        for result in (given.allocation.get("devices") or {}).get("results") or ()
    )
    return any(_is_part(snapshot, result["driver"], result["pool"], result["device"]) for result in results)


def _is_part(snapshot: Snapshot, driver: str, pool: str, name: str) -> bool:
    found: Pool | None = snapshot.devices.pools.get(str(PoolKey(driver, pool)))
    device: Device | None = (
        next((d for s in found.slices for d in s.devices if d.name == name), None) if found else None
    )
    return found is not None and device is not None and is_part(found, device)
