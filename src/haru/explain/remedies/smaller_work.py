"""Less would do: fewer devices per request, or a gang that starts with fewer members."""

from __future__ import annotations

from collections.abc import Iterator

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
from haru.explain.render.wording import counted
from haru.kube.meta import Obj


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
