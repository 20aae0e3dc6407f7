"""Enumerate all ways to allocate claims on a node, starting with the allocator's first answer.

When an allocation does not help the rest of a group, the enumeration runs the allocator again with one of its devices
left out, once for each device. Every other allocation lacks at least one of them, so none is missed.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from haru.engine.dra.allocator.allocation import DoesNotFit, allocate
from haru.engine.dra.errors import GaveUp
from haru.engine.dra.model.claims import ALL, Claim
from haru.engine.dra.model.model import Device, DeviceId, NodeView, Placement, PoolKey
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import Pool
from haru.engine.framework.options import Options
from haru.engine.podgroup.search_budget import SearchBudget
from haru.engine.state.cow_map import Patched
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.kube.meta import Obj

_NOWHERE = Placement()


def allocation_alternatives(
    overlay: Overlay, options: Options, budget: SearchBudget, node: NodeInfo, claims: Sequence[Claim]
) -> Iterator[tuple[Obj, ...]]:
    """Yield distinct allocations of the claims on the node, in the overlay's state at the first call."""
    if not claims:
        yield ()
        return
    ask: Callable[[DeviceSnapshot], object] = partial(
        allocate,
        allocated=overlay.allocated,
        node=NodeView(node.name, node.labels),
        claims=claims,
        features=options.features,
        new_share_id=options.new_share_id,
        step_budget=options.budgets.step_budget,
        scoring=options.profile.packing,
    )
    devices = overlay.snapshot.devices
    waiting: list[frozenset[DeviceId]] = [frozenset()]
    known: set[frozenset[DeviceId]] = set(waiting)
    offered: set[frozenset[DeviceId]] = set()
    while waiting:
        left_out = waiting.pop(0)
        results = _answer(ask, _without(devices, left_out), budget)
        if results is None:
            continue
        used = _devices_of(results)
        if used not in offered:
            offered.add(used)
            yield results
        exchangeable = _exchangeable(claims, results)
        if exchangeable is None:
            budget.unproven = True
            return
        for device in sorted(exchangeable):
            fewer = left_out | {device}
            if fewer not in known:
                known.add(fewer)
                waiting.append(fewer)


def _answer(
    ask: Callable[[DeviceSnapshot], object], devices: DeviceSnapshot, budget: SearchBudget
) -> tuple[Obj, ...] | None:
    budget.spend()
    try:
        answer = ask(devices)
    except GaveUp:
        budget.unproven = True
        return None
    return None if isinstance(answer, DoesNotFit) else tuple(getattr(answer, "results", ()))


def _exchangeable(claims: Sequence[Claim], results: Sequence[Obj]) -> frozenset[DeviceId] | None:
    """Return the devices that others may replace; None where leaving one of them out may change what "all" means.

    A request for all devices gets the same ones in every allocation, and no other request gets one of them, but for
    shares and with admin access. Whether it is served at all depends on its devices where it is one of several.
    """
    settled = [r for claim in claims for r in claim.requests if any(ask.mode == ALL for ask in r.asks)]
    if not settled:
        return _devices_of(results)
    bodies = [(allocation.get("devices") or {}).get("results") or () for allocation in results]
    if any(r.prioritized for r in settled) or any(r.get("shareID") or r.get("adminAccess") for r in chain(*bodies)):
        return None
    names = [{request.name for request in claim.requests if request not in settled} for claim in claims]
    return frozenset(
        DeviceId(result["driver"], result["pool"], result["device"])
        for replaceable, body in zip(names, bodies, strict=True)
        for result in body
        if result["request"].partition("/")[0] in replaceable
    )


def _devices_of(results: Sequence[Obj]) -> frozenset[DeviceId]:
    return frozenset(
        DeviceId(r["driver"], r["pool"], r["device"])
        for allocation in results
        for r in (allocation.get("devices") or {}).get("results") or ()
    )


def _without(snapshot: DeviceSnapshot, left_out: frozenset[DeviceId]) -> DeviceSnapshot:
    """Return the inventory with these devices placed on no node; counters that they consume stay accounted."""
    if not left_out:
        return snapshot
    changed: dict[str, Pool | None] = {}
    for key in {PoolKey(device.driver, device.pool) for device in left_out}:
        names = {device.device for device in left_out if (device.driver, device.pool) == key}
        pool = snapshot.pools[str(key)]
        slices = [replace(s, devices=tuple(_hidden(d, names) for d in s.devices)) for s in pool.slices]
        changed[str(key)] = Pool(key, slices, pool.tables)
    return replace(snapshot, pools=Patched(snapshot.pools, changed))


def _hidden(device: Device, names: set[str]) -> Device:
    return replace(device, placement=_NOWHERE) if device.name in names else device
