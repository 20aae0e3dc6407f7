"""Enumerate all ways to allocate claims on a node, starting with the allocator's first answer.

When an allocation does not help the rest of a group, the enumeration runs the allocator again with one of its devices
left out, once for each device. Every other allocation lacks at least one of them, but for those that take other shares
of the same devices: alternatives that were given a share are left out by turns as well. So none is missed.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
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
_Alternative = tuple[str, str]
"""A claim and, as `request/alternative`, what was chosen in it."""


def allocation_alternatives(
    overlay: Overlay, options: Options, budget: SearchBudget, node: NodeInfo, claims: Sequence[Claim]
) -> Iterator[tuple[Obj, ...]]:
    """Yield distinct allocations of the claims on the node, in the overlay's state at the first call."""
    if not claims:
        yield ()
        return
    ask: Callable[..., object] = partial(
        allocate,
        allocated=overlay.allocated,
        node=NodeView(node.name, node.labels),
        features=options.features,
        new_share_id=options.new_share_id,
        step_budget=options.budgets.step_budget,
        scoring=options.profile.packing,
    )
    everywhere = overlay.snapshot.devices
    waiting: list[tuple[frozenset[DeviceId], frozenset[_Alternative]]] = [(frozenset(), frozenset())]
    known = set(waiting)
    offered: set[Hashable] = set()
    while waiting:
        devices, alternatives = waiting.pop(0)
        left = _with_other_alternatives(claims, alternatives)
        if any(not request.asks for claim in left for request in claim.requests):
            continue
        results = _answer(partial(ask, _without(everywhere, devices), claims=left), budget)
        if results is None:
            continue
        shares = _shared_alternatives(claims, results)
        key = _devices_of(results), shares
        if key not in offered:
            offered.add(key)
            yield results
        exchangeable = _exchangeable(claims, results)
        if exchangeable is None:
            budget.unproven = True
            return
        more = [(devices | {device}, alternatives) for device in sorted(exchangeable)]
        more += [(devices, alternatives | {chosen}) for chosen in sorted(shares)]
        for fewer in more:
            if fewer not in known:
                known.add(fewer)
                waiting.append(fewer)


def _answer(ask: Callable[[], object], budget: SearchBudget) -> tuple[Obj, ...] | None:
    budget.spend()
    try:
        answer = ask()
    except GaveUp:
        budget.unproven = True
        return None
    return None if isinstance(answer, DoesNotFit) else tuple(getattr(answer, "results", ()))


def _shared_alternatives(claims: Sequence[Claim], results: Sequence[Obj]) -> frozenset[_Alternative]:
    """Return the alternatives that were given a share of a device: another one may take another share of it."""
    return frozenset(
        (claim.name, result["request"])
        for claim, allocation in zip(claims, results, strict=True)
        for result in (allocation.get("devices") or {}).get("results") or ()
        if result.get("shareID") and "/" in result["request"]
    )


def _with_other_alternatives(claims: Sequence[Claim], left_out: frozenset[_Alternative]) -> Sequence[Claim]:
    if not left_out:
        return claims
    return [
        claim._replace(
            requests=tuple(
                request._replace(asks=tuple(a for a in request.asks if (claim.name, a.result_name) not in left_out))
                for request in claim.requests
            )
        )
        for claim in claims
    ]


def _exchangeable(claims: Sequence[Claim], results: Sequence[Obj]) -> frozenset[DeviceId] | None:
    """Return the devices that others may replace; None where leaving one of them out may change what "all" means.

    A request for all devices gets the same ones in every allocation, and no other request gets one of them, but for
    shares and with admin access. Whether it is served at all depends on its devices where it is one of several.
    Requests for all devices alone leave no choice.
    """
    settled = [r for claim in claims for r in claim.requests if any(ask.mode == ALL for ask in r.asks)]
    if not settled:
        return _devices_of(results)
    if len(settled) == sum(len(claim.requests) for claim in claims) and not any(r.prioritized for r in settled):
        return frozenset()
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
