"""Less would do: fewer devices per request, less of their capacity, or a gang that starts with fewer members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from haru.engine import Options, Snapshot
from haru.engine.podgroup import min_count
from haru.explain import hypothesis
from haru.explain.diagnosis.diagnosis import Diagnosis
from haru.explain.diagnosis.gated import lower_min_count
from haru.explain.diagnosis.requests import Capacity
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.claim_changes import changed_claims, claim_changes
from haru.explain.remedies.node_openings import Openings
from haru.kube.meta import Obj
from haru.kube.names import counted
from haru.kube.quantity import Quantity, parse_quantity

_MOST_CAPACITIES = 8


def smaller_request(openings: Openings, found: Diagnosis) -> Iterator[Remedy]:
    """The largest number of devices per request that would fit now."""
    snapshot, work, options = openings.snapshot, openings.work, openings.options
    counts = [int(ask.get("count") or 1) for ask in _asks(snapshot, work)]
    most = max(counts, default=1)

    def changed(limit: int) -> dict[str, Obj]:
        def capped(ask: Obj) -> Obj:
            return {**ask, "count": limit} if int(ask.get("count") or 1) > limit else ask

        return changed_claims(snapshot, work, capped)

    low, high = 0, _first_hopeless(openings.capacity, found, most)
    middle = high - 1  # by division as many would do: that is mostly right
    while high - low > 1:
        if work.fits(hypothesis.with_claims(snapshot, changed(middle)), options):
            low = middle
        else:
            high = middle
        middle = (low + high) // 2
    if low:
        text = f"ask for {counted(low, 'device')} instead of {most}"
        costs = f"each pod has {most - low} fewer, and must be able to work so; its claim is made again"
        yield Remedy("LowerCount", text, claim_changes(snapshot, changed(low)), 14, True, costs)


def _first_hopeless(capacity: Capacity, found: Diagnosis, most: int) -> int:
    """The least devices per request with which the nodes cannot take the pods, by division; at most `most`."""
    open_ = [
        name
        for name, failures in (found.answers or {}).items()
        if not failures or failures[0].reason.type == "DevicesUnavailable"
    ]
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if sum(capacity.of(name, middle) for name in open_) >= capacity.needed:
            low = middle
        else:
            high = middle
    return high


def _asks(snapshot: Snapshot, work: WorkloadUnit) -> Iterator[Obj]:
    asks: list[Obj] = []

    def collect(ask: Obj) -> Obj:
        asks.append(ask)
        return {**ask, "seen": True}

    changed_claims(snapshot, work, collect)
    yield from (ask for ask in asks if ask.get("allocationMode", "ExactCount") == "ExactCount")


def smaller_capacity(openings: Openings, found: Diagnosis) -> Iterator[Remedy]:
    """The most of a capacity per device with which the work would fit now, where too few devices have what it asks."""
    if not any(stage.stage == "capacity" and stage.dropped for funnel in found.requests for stage in funnel.stages):
        return
    snapshot, work = openings.snapshot, openings.work
    wanted: dict[str, Quantity] = {}
    for ask in _asks(snapshot, work):
        for name, amount in _capacity_of(ask).items():
            wanted[name] = max(wanted.get(name, Quantity(0)), parse_quantity(amount))
    for name, most in wanted.items():
        for less in _published(snapshot, name, most):
            changed = changed_claims(snapshot, work, partial(_with_at_most, name=name, most=less))
            if work.fits(hypothesis.with_claims(snapshot, changed), openings.options):
                text = f"ask for {name} {less} of each device instead of {most}"
                costs = "each device has less, and must be enough so; the claims (or their template) are made again"
                yield Remedy("LowerRequest", text, claim_changes(snapshot, changed), 14, True, costs)
                break


def _capacity_of(ask: Obj) -> Mapping[str, str]:
    return (ask.get("capacity") or {}).get("requests") or {}


def _published(snapshot: Snapshot, name: str, below: Quantity) -> list[Quantity]:
    """What devices have of a capacity, less than this, the most first."""
    plain = name.rpartition("/")[2]
    shapes = {
        id(d.shape): d.shape for pool in snapshot.devices.pools.values() for one in pool.slices for d in one.devices
    }
    amounts = {
        capacity.text
        for shape in shapes.values()
        for known, capacity in shape.capacity
        if known.rpartition("/")[2] == plain
    }
    less = (amount for amount in map(parse_quantity, amounts) if Quantity(0) < amount < below)
    return sorted(less, reverse=True)[:_MOST_CAPACITIES]


def _with_at_most(ask: Obj, *, name: str, most: Quantity) -> Obj:
    amounts = _capacity_of(ask)
    if name not in amounts or parse_quantity(amounts[name]) <= most:
        return ask
    return {**ask, "capacity": {**ask["capacity"], "requests": {**amounts, name: str(most)}}}


def smaller_gang(snapshot: Snapshot, work: WorkloadUnit, options: Options, fit: int) -> Iterator[Remedy]:
    """As many members as find a place now, if that is any."""
    group = work.pod_group(snapshot)
    minimum = min_count(group)
    if group is None or minimum is None or work.group is None:
        return
    count = fit + snapshot.group_state(work.group).scheduled_count
    if not 0 < count < minimum:
        return
    gang = group["spec"]["schedulingPolicy"]["gang"]
    spec = {**group["spec"], "schedulingPolicy": {"gang": {**gang, "minCount": count}}}
    if work.fits(hypothesis.with_pod_group(snapshot, work.group.path, {**group, "spec": spec}), options):
        yield lower_min_count(snapshot, group, spec, count, True)
