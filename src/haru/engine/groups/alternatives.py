"""Every way to serve claims on a node, one after the other: the allocator's first answer, then answers without it.

An answer that does not help the rest of a group is followed up by asking again with one of its devices left out, for
each of its devices: any other answer lacks at least one of them, so none is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from haru.engine.decision import Obj
from haru.engine.devices import Claim, DeviceId, DeviceSnapshot, DoesNotFit, GaveUp, NodeView, PoolKey, allocate
from haru.engine.devices.claims import ALL
from haru.engine.devices.model import Device, Placement
from haru.engine.devices.pools import Pool
from haru.engine.groups.budget import Budget
from haru.engine.groups.options import Options
from haru.engine.nodeinfo import NodeInfo
from haru.engine.overlay import Overlay
from haru.engine.persistent import Patched

_NOWHERE = Placement()


def alternatives(
    overlay: Overlay, options: Options, budget: Budget, node: NodeInfo, claims: Sequence[Claim]
) -> Iterator[tuple[Obj, ...]]:
    """Distinct allocations of the claims on the node as things stand when it is first asked."""
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
        step_budget=options.step_budget,
        scoring=options.profile.packing,
    )
    devices = overlay.snapshot.devices
    everything = _takes_all(claims)
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
        if everything:
            # Leaving a device out would change what "all" means, so other answers are not looked for.
            budget.missed = True
            return
        for device in sorted(used):
            fewer = left_out | {device}
            if fewer not in known:
                known.add(fewer)
                waiting.append(fewer)


def _answer(ask: Callable[[DeviceSnapshot], object], devices: DeviceSnapshot, budget: Budget) -> tuple[Obj, ...] | None:
    budget.spend()
    try:
        answer = ask(devices)
    except GaveUp:
        budget.missed = True
        return None
    return None if isinstance(answer, DoesNotFit) else tuple(getattr(answer, "results", ()))


def _takes_all(claims: Sequence[Claim]) -> bool:
    return any(ask.mode == ALL for claim in claims for request in claim.requests for ask in request.asks)


def _devices_of(results: Sequence[Obj]) -> frozenset[DeviceId]:
    return frozenset(
        DeviceId(r["driver"], r["pool"], r["device"])
        for allocation in results
        for r in (allocation.get("devices") or {}).get("results") or ()
    )


def _without(snapshot: DeviceSnapshot, left_out: frozenset[DeviceId]) -> DeviceSnapshot:
    """The inventory as if these devices could be used nowhere; what they consume while in use stays accounted for."""
    if not left_out:
        return snapshot
    changed: dict[str, Pool | None] = {}
    for key in {PoolKey(device.driver, device.pool) for device in left_out}:
        names = {device.device for device in left_out if (device.driver, device.pool) == key}
        pool = snapshot.pools[str(key)]
        slices = [replace(s, devices=tuple(_hidden(d, names) for d in s.devices)) for s in pool.slices]
        changed[str(key)] = Pool(key, slices)
    return replace(snapshot, pools=Patched(snapshot.pools, changed))


def _hidden(device: Device, names: set[str]) -> Device:
    return replace(device, placement=_NOWHERE) if device.name in names else device
