"""How devices stand at the moment: held, shared, blocked, tainted, unusable or free, and by whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from haru.engine import Options, Snapshot
from haru.engine.dra import CounterUse, Device, DeviceId, NodeView, PoolKey, PoolView, claims_holding
from haru.explain.diagnosis.allocations import product_name
from haru.explain.diagnosis.holders import holders_of
from haru.explain.explanation import Holder
from haru.explain.stories.values import DeviceState, DeviceStatus, Draw
from haru.explain.utilization import IDLE_BELOW_PERCENT, utilization


def views_of(snapshot: Snapshot, node: str, options: Options) -> Sequence[PoolView]:
    """The pools that a node sees. Raises AllocationError where one cannot be read."""
    info = snapshot.nodes.get(node)
    labels = info.labels if info is not None else {}
    return snapshot.devices.views(NodeView(node, labels), options.features.PartitionableDevices)


def states_of(snapshot: Snapshot, view: PoolView) -> list[DeviceState]:
    """All devices of a pool, as a node sees it."""
    counters = CounterUse(view, snapshot.allocated.use(view.key)) if view.totals else None
    return [_state(snapshot, view, index, device, counters) for index, device in enumerate(view.devices)]


def _state(snapshot: Snapshot, view: PoolView, index: int, device: Device, counters: CounterUse | None) -> DeviceState:
    use = snapshot.allocated.use(view.key)
    holding = claims_holding(use, device.name)
    blocked = counters.shortage(index) if counters is not None else (set(), ())
    if holding:
        status: DeviceStatus = "Held" if device.name in use.devices else "Shared"
    elif view.status != "ok":
        status = "Unusable"
    elif blocked[0]:
        status, holding = "Blocked", blocked[1]
    else:
        status = "Tainted" if any(taint.repels for taint in device.taints) else "Free"
    return DeviceState(
        view.key.driver,
        view.key.pool,
        device.name,
        product_name(view.key.driver, device),
        status,
        tuple(_of_device(snapshot, holder, view, device) for holder in _holders(snapshot, holding)),
        tuple(str(taint) for taint in device.taints),
        tuple(_draws(view, index, view.counters_left(use))) if view.totals else (),
    )


def _holders(snapshot: Snapshot, claims: Sequence[str]) -> tuple[Holder, ...]:
    return holders_of(snapshot, {tuple(claims): 1})[0] if claims else ()


def _of_device(snapshot: Snapshot, holder: Holder, view: PoolView, device: Device) -> Holder:
    """The holder with what is known of this device alone."""
    where = DeviceId(*view.key, device.name)
    pods = [snapshot.pods[path] for path in holder.pods]
    found = [utilization(snapshot, claim, pods, where) for claim in holder.claims]
    known = [percent for percent in found if percent is not None]
    return replace(holder, idle=int(max(known) < IDLE_BELOW_PERCENT) if known else None)


def _draws(view: PoolView, index: int, left: Sequence[int]) -> list[Draw]:
    return [
        Draw("/".join(view.counter_names[counter]), amount, left[counter], view.totals[counter])
        for counter, amount in view.charges[index]
    ]


def beside(view: PoolView, index: int) -> list[int]:
    """The other devices of a pool that draw on the same counters, by their places."""
    if not view.totals:
        return []
    own = {counter for counter, _ in view.charges[index]}
    charges = enumerate(view.charges)
    return [number for number, charge in charges if number != index and any(c in own for c, _ in charge)]


def nodes_of(snapshot: Snapshot, key: PoolKey, device: str) -> list[str]:
    """The nodes that a device's slice names; nothing for one that several may use."""
    pool = snapshot.devices.pools.get(str(key))
    slices = pool.slices if pool is not None else ()
    found = {s.placement.node_name for s in slices if any(d.name == device for d in s.devices)}
    return sorted(found - {""})
