"""The sieve never refuses a domain that takes the group; the choice is that of trying every domain; sums keep up."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    decide_all,
    device_class,
    member_with_claim,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from topology_objects import RACK, constraint

from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.podgroup.domain_classes import DomainClasses
from haru.engine.podgroup.domain_prefilter import DomainPreFilter
from haru.engine.podgroup.domain_search import DomainSearch
from haru.engine.podgroup.domain_totals import DeviceTotals, DomainTotals
from haru.engine.podgroup.placement_attempt import attempt_placement
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.decision import GroupKey
from haru.engine.state.pod_info import PodInfo

CLASSES = [device_class(), device_class("big", [f"device.attributes['{DRIVER}'].size > 1"])]
RACKS = st.sampled_from(["a", "b", "c", "", None])
SELECTOR = [{"cel": {"expression": f"device.attributes['{DRIVER}'].size == 2"}}]
COUNTERS = [{"name": "card", "counters": {"memory": {"value": "3"}}}]


@st.composite
def devices(draw: st.DrawFn, name: str) -> list[Obj]:
    """Up to four devices of one node, of two sizes, some of them parts of one card."""
    made: list[Obj] = []
    parts = draw(st.booleans())
    for i in range(draw(st.integers(0, 4))):
        size = draw(st.integers(1, 2))
        made.append({"name": f"d{i}", "attributes": {"size": {"int": size}, "root": {"int": draw(st.integers(0, 1))}}})
        if parts:
            made[-1]["consumesCounters"] = [{"counterSet": "card", "counters": {"memory": {"value": str(size)}}}]
    slices = [resource_slice(name, made)]
    if parts:
        counters = resource_slice(name, [])
        counters["metadata"]["name"] += "-counters"
        counters["spec"]["sharedCounters"] = COUNTERS
        slices.append(counters)
    for item in slices:
        item["spec"]["pool"]["resourceSliceCount"] = len(slices)
    return slices


@st.composite
def clusters(draw: st.DrawFn) -> list[Obj]:
    """Nodes of some racks and of none; some devices are taken, some pods run, some devices are a rack's own."""
    objects: list[Obj] = copy.deepcopy(CLASSES)
    for n in range(draw(st.integers(1, 5))):
        name, rack = f"n{n}", draw(RACKS)
        objects.append(node(name, cpu=str(draw(st.integers(0, 4))), labels={} if rack is None else {RACK: rack}))
        if draw(st.integers(0, 5)) == 0:
            objects[-1]["status"]["allocatable"]["pods"] = str(draw(st.integers(0, 2)))
        if draw(st.booleans()):
            slices = draw(devices(name))
            objects += slices
            if slices[0]["spec"]["devices"] and draw(st.booleans()):
                user = pod(f"user-{name}", cpu="0", node=name, claims=[f"held-{name}"])
                objects += [user, allocated(claim(f"held-{name}"), allocation(name, "d0"), user)]
        if draw(st.integers(0, 3)) == 0:
            objects.append(pod(f"load-{n}", cpu=str(draw(st.integers(1, 2))), node=name))
    for rack in draw(st.sampled_from([[], ["a"], ["a", "b"]])):
        term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": [rack]}]}
        wide = [{"name": "w", "attributes": {"size": {"int": 1}, "root": {"int": 0}}}]
        objects.append(resource_slice("", wide, pool=f"of-{rack}", nodeSelector={"nodeSelectorTerms": [term]}))
    return objects


@st.composite
def requests(draw: st.DrawFn) -> Obj:
    """What one claim asks for."""
    exact: Obj = {"deviceClassName": draw(st.sampled_from(["gpu", "big"])), "count": draw(st.integers(1, 2))}
    if draw(st.booleans()):
        exact["selectors"] = SELECTOR
    request: Obj = {"name": "r", "exactly": exact}
    if draw(st.integers(0, 3)) == 0:
        fewer = {"name": "one", "deviceClassName": "gpu", "count": 1}
        request = {"name": "r", "firstAvailable": [{"name": "first", **exact}, fewer]}
    found: Obj = {"requests": [request]}
    if draw(st.integers(0, 3)) == 0:
        found["constraints"] = [{"matchAttribute": f"{DRIVER}/root"}]
    return found


@st.composite
def groups(draw: st.DrawFn) -> list[Obj]:
    """Members of one or two kinds, with claims of their own, a shared one, or none."""
    count = draw(st.integers(1, 4))
    shared = draw(st.integers(0, 3)) == 0
    kinds = [(str(draw(st.integers(0, 2))), draw(st.one_of(st.none(), requests()))) for _ in range(2)]
    objects: list[Obj] = [pod_group("g", draw(st.integers(1, count)), schedulingConstraints=constraint())]
    if shared:
        objects.append(claim("shared", **draw(requests())))
    for i in range(count):
        cpu, asked = kinds[draw(st.integers(0, 1))]
        if shared and draw(st.integers(0, 3)):
            objects.append(pod(f"m{i}", cpu=cpu, group="g", claims=["shared"]))
        elif asked is None:
            objects.append(pod(f"m{i}", cpu=cpu, group="g"))
        else:
            made = member_with_claim(f"m{i}", "g", cpu=cpu)
            made[1]["spec"]["devices"] = asked
            objects += made
    return objects


def placements(snapshot: Snapshot, work: list[Obj], **kwargs: Any) -> tuple[DomainSearch, PodGroupInfo]:
    members = [PodInfo.of(o) for o in work if o["kind"] == "Pod"]
    needed = work[0]["spec"]["schedulingPolicy"]["gang"]["minCount"]
    info = PodGroupInfo(members, GroupKey("default", "g"), work[0], needed, options(**kwargs))
    return DomainSearch(snapshot, info, RACK), info


SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(clusters(), groups())
def test_domain_prefilter_excludes_no_domain_that_fits(inventory: list[Obj], work: list[Obj]) -> None:
    snapshot = SchedulerCache.of([*inventory, *work]).snapshot()
    found, info = placements(snapshot, work)
    for domain in found.values:
        attempt = attempt_placement(snapshot, info, found.nodes(domain))
        if attempt.fit >= info.needed and not attempt.broken:
            assert found.prefilter.max_members(domain) >= attempt.fit
            assert found.prefilter.max_members_by_node(domain) >= attempt.fit


@SETTINGS
@given(clusters(), groups(), st.integers(0, 3))
def test_chosen_domain_equals_choice_after_trying_all(inventory: list[Obj], work: list[Obj], seed: int) -> None:
    snapshot = SchedulerCache.of([*inventory, *work]).snapshot()
    found, info = placements(snapshot, work, seed=seed)
    fits: dict[str, int] = {}
    for domain in found.values:
        attempt = attempt_placement(snapshot, info, found.nodes(domain))
        if attempt.fit >= info.needed and not attempt.broken:
            fits[domain] = attempt.fit
    decision = decide_all([*inventory, *work], "g", seed=seed)
    assert (decision.status == "scheduled") == bool(fits)
    if not fits:
        return
    best = found.best(found.values)
    assert best is not None
    chosen = {snapshot.nodes[m.node or ""].labels[RACK] for m in decision.placed}
    assert chosen == {best.domain}
    most = max(fits.values())
    totals = {}
    for domain, count in fits.items():
        trial = next((t for t in found.tried if t.domain == domain), None) or found.trial(domain)
        totals[domain] = trial.fit + count * 100 // most
    assert totals[best.domain] == max(totals.values())


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, Obj]]:
    """What may happen to a cluster, some of it twice."""
    events: list[tuple[str, Obj]] = []
    names = st.sampled_from(["n0", "n1", "n2", "n3"])
    for number in range(draw(st.integers(1, 12))):
        name, rack = draw(names), draw(RACKS)
        labels = {} if rack is None else {RACK: rack}
        user = pod(f"p{draw(st.integers(0, 3))}", cpu=str(draw(st.integers(0, 2))), node=name)
        held = allocated(claim(f"c-{name}"), allocation(name, draw(st.sampled_from(["d0", "d1"]))), user)
        held["metadata"]["resourceVersion"] = str(number + 2)
        slices = [resource_slice(name, draw(st.integers(0, 3)), pool) for pool in ("", "", f"{name}-more")]
        for entry in (entry for made in slices for entry in made["spec"]["devices"]):
            entry["attributes"] = {"size": {"int": draw(st.integers(1, 2))}}
            if draw(st.integers(0, 9)) == 0:
                entry["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
        made = draw(st.sampled_from([node(name, str(draw(st.integers(0, 4))), labels), user, held, *slices]))
        events.append((draw(st.sampled_from(["apply", "apply", "remove"])), made))
    return events


@settings(max_examples=60, deadline=None)
@given(histories())
def test_domain_totals_follow_cluster_changes(history: list[tuple[str, Obj]]) -> None:
    cluster = SchedulerCache.of(copy.deepcopy(CLASSES))
    work = [pod_group("g", 1), *member_with_claim("m", "g")]
    work[2]["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = SELECTOR
    for number, (what, obj) in enumerate(history):
        getattr(cluster, what)(obj)
        if number % 3 == 0 or number == len(history) - 1:
            snapshot = cluster.snapshot()
            anew = replace(snapshot, decision_cache=DecisionCache())
            by_pool = replace(anew, decision_cache=DecisionCache(), node_device_classes=None)
            assert _state(snapshot, work) == _state(anew, work) == _state(by_pool, work)


def test_nodes_of_equal_racks_are_looked_at_for_the_one_that_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = [node(f"{rack}-{number}", "4", {RACK: rack}) for rack in "abcdef" for number in range(2)]
    work = [pod_group("g", 2, **constraint(RACK)), *(pod(f"m{number}", group="g", cpu="4") for number in range(2))]
    found, _ = placements(SchedulerCache.of([*inventory, *work]).snapshot(), work)
    looked_at: list[str] = []
    by_node = DomainPreFilter.max_members_by_node

    def counted(self: DomainPreFilter, domain: str) -> int:
        looked_at.append(domain)
        return by_node(self, domain)

    monkeypatch.setattr(DomainPreFilter, "max_members_by_node", counted)
    best = found.best(found.values)
    assert best is not None and looked_at == [best.domain]


def _state(snapshot: Snapshot, work: list[Obj]) -> Any:
    prefilter = placements(snapshot, work)[0].prefilter
    aggregates = DomainTotals.of(snapshot, RACK)
    sums = {
        value: (sorted(s.nodes), _present(s.free), _present(s.used), _present(s.capacity))
        for value, s in aggregates.domains.items()
    }
    asks = list(prefilter.request.asks.values())
    counts = [DeviceTotals.of(snapshot, aggregates, ask, options().features) for ask in asks]
    classes = sorted(map(sorted, DomainClasses.of(snapshot, aggregates, counts)))
    for equal in classes:
        assert len({(prefilter.max_members(value), prefilter.max_members_by_node(value)) for value in equal}) == 1
    return sums, [(c.free(value), c.node_local_count(value)) for c in counts for value in aggregates.values], classes


def _present(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}
