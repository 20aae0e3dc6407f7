"""A gang is bound if and only if some placement of enough members exists, and no device is ever given twice."""

from __future__ import annotations

import itertools
from typing import Any

from engine_objects import (
    DRIVER,
    Obj,
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
from plain_scheduler import PlainCluster

from haru.engine.dra import Allocated, NodeView, allocate
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.decision import Decision

ROOTS = st.sampled_from(["r0", "r1"])
CARD_COUNTERS = [{"name": "card", "counters": {"memory": {"value": "4"}}}]


@st.composite
def inventories(draw: st.DrawFn) -> list[Obj]:
    """Up to three nodes with up to four devices each; some devices are slices of one card."""
    objects: list[Obj] = [device_class()]
    for n in range(draw(st.integers(1, 3))):
        name = f"n{n}"
        objects.append(node(name, cpu=str(draw(st.integers(1, 4)))))
        devices = [
            {"name": f"d{i}", "attributes": {"root": {"string": draw(ROOTS)}}, **_consumption(draw)}
            for i in range(draw(st.integers(0, 4)))
        ]
        slices = [resource_slice(name, devices)]
        if any("consumesCounters" in device for device in devices):
            counters = resource_slice(name, [])
            counters["metadata"]["name"] += "-counters"
            counters["spec"]["sharedCounters"] = CARD_COUNTERS
            slices.append(counters)
        for item in slices:
            item["spec"]["pool"]["resourceSliceCount"] = len(slices)
        objects += slices
    return objects


def _consumption(draw: st.DrawFn) -> Obj:
    amount = draw(st.sampled_from([0, 0, 1, 2, 4]))
    if not amount:
        return {}
    return {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": str(amount)}}}]}


@st.composite
def demands(draw: st.DrawFn) -> Obj:
    """What one kind of member asks for."""
    count = draw(st.integers(1, 2))
    exact = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    spec: Obj = {"requests": [{"name": "gpu", "exactly": exact}]}
    if draw(st.booleans()):
        spec["constraints"] = [{"matchAttribute": f"{DRIVER}/root"}]
    if draw(st.integers(0, 3)) == 0:
        fewer = {"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        more = {"name": "two", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
        spec["requests"] = [{"name": "gpu", "firstAvailable": [more, fewer]}]
    return spec


def gang(kinds: list[tuple[Obj, int]], min_count: int) -> list[Obj]:
    objects: list[Obj] = [pod_group("g", min_count)]
    for k, (demand, count) in enumerate(kinds):
        for i in range(count):
            made = member_with_claim(f"m{k}-{i}", "g", cpu=str(1 + k % 2))
            made[1]["spec"]["devices"] = demand
            objects += made
    return objects


def most_that_fit(snapshot: Snapshot, objects: list[Obj]) -> int:
    """Exhaustive: every way to spread the members over the nodes, devices jointly allocated per node."""
    claims = {o["metadata"]["name"]: o for o in objects if o["kind"] == "ResourceClaim"}
    pods = [o for o in objects if o["kind"] == "Pod"]
    known: dict[tuple[str, tuple[int, ...]], bool] = {}

    def fits(name: str, here: tuple[int, ...]) -> bool:
        if (name, here) not in known:
            cpu = sum(int(pods[i]["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for i in here)
            wanted = [claims[f"{pods[i]['metadata']['name']}-gpu"] for i in here]
            info = snapshot.nodes[name]
            known[name, here] = cpu * 1000 <= info.allocatable["cpu"] and isinstance(
                allocate(
                    snapshot.devices,
                    snapshot.allocated,
                    NodeView(name, info.labels),
                    wanted,
                    options().features,
                    new_share_id=str,
                ),
                Allocated,
            )
        return known[name, here]

    best = 0
    for places in itertools.product([None, *snapshot.node_names], repeat=len(pods)):
        placed = sum(p is not None for p in places)
        if placed > best and all(
            fits(name, tuple(i for i, p in enumerate(places) if p == name)) for name in set(places) - {None}
        ):
            best = placed
    return best


def check_devices(objects: list[Obj], decision: Decision) -> None:
    """Every device at most once, no card overdrawn, everything on the node that it is allocated for."""
    taken: list[tuple[str, str]] = []
    for member in decision.placed:
        for given_ in member.allocations:
            for result in given_.allocation["devices"]["results"]:
                assert result["pool"] == member.node
                taken.append((result["pool"], result["device"]))
    assert len(taken) == len(set(taken))
    for item in (o for o in objects if o["kind"] == "ResourceSlice"):
        drawn = 0
        for device in item["spec"].get("devices") or ():
            if (item["spec"]["nodeName"], device["name"]) in taken:
                for consumption in device.get("consumesCounters") or ():
                    drawn += int(consumption["counters"]["memory"]["value"])
        assert drawn <= 4


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inventories(), demands(), st.integers(1, 5), st.integers(1, 5))
def test_homogeneous_gang_is_bound_iff_a_placement_exists(
    inventory: list[Obj], demand: Obj, count: int, min_count: int
) -> None:
    work = gang([(demand, count)], min(min_count, count))
    check(inventory + work, min(min_count, count))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inventories(), st.lists(st.tuples(demands(), st.integers(1, 2)), min_size=2, max_size=3), st.data())
def test_heterogeneous_gang_is_bound_iff_a_placement_exists(
    inventory: list[Obj], kinds: list[tuple[Obj, int]], data: st.DataObject
) -> None:
    total = sum(count for _, count in kinds)
    min_count = data.draw(st.integers(1, total))
    check(inventory + gang(kinds, min_count), min_count)


def check(objects: list[Obj], min_count: int) -> None:
    snapshot = SchedulerCache.of(objects).snapshot()
    most = most_that_fit(snapshot, objects)
    decision: Decision = decide_all(objects, "g")
    assert decision.status == ("scheduled" if most >= min_count else "unschedulable")
    if decision.status == "scheduled":
        assert len(decision.placed) == most
        check_devices(objects, decision)


@st.composite
def shared_cases(draw: st.DrawFn) -> tuple[list[Obj], list[Obj], int]:
    """Members that share one claim; devices are on nodes, or on a fabric that some nodes see."""
    objects: list[Obj] = [device_class()]
    racks = draw(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3))
    for n, rack in enumerate(racks):
        objects.append(node(f"n{n}", cpu=str(draw(st.integers(0, 3))), labels={"rack": rack}))
        if draw(st.booleans()):
            objects.append(resource_slice(f"n{n}", draw(st.integers(1, 2))))
    for rack in ("a", "b"):
        if draw(st.booleans()):
            term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}
            objects.append(
                resource_slice("", [{"name": "fabric"}], pool=rack, nodeSelector={"nodeSelectorTerms": [term]})
            )
    count = draw(st.integers(1, 4))
    min_count = draw(st.integers(1, count))
    work: list[Obj] = [pod_group("g", min_count), claim("shared")]
    work += [pod(f"m{i}", group="g", claims=["shared"]) for i in range(count)]
    return objects, work, min_count


@settings(max_examples=120, deadline=None)
@given(shared_cases())
def test_shared_claim_is_placed_where_enough_members_fit(case: tuple[list[Obj], list[Obj], int]) -> None:
    objects, work, min_count = case
    room = {o["metadata"]["name"]: int(o["status"]["allocatable"]["cpu"]) for o in objects if o["kind"] == "Node"}
    racks = {o["metadata"]["name"]: o["metadata"]["labels"]["rack"] for o in objects if o["kind"] == "Node"}
    reachable = []
    for item in (o["spec"] for o in objects if o["kind"] == "ResourceSlice"):
        rack = item["pool"]["name"]
        nodes = [item["nodeName"]] if "nodeName" in item else [n for n, r in racks.items() if r == rack]
        reachable.append(sum(room[n] for n in nodes))
    count = len(work) - 2
    most = min(count, max(reachable, default=0))
    decision: Decision = decide_all(objects + work, "g")
    assert decision.status == ("scheduled" if most >= min_count else "unschedulable")
    if decision.status == "scheduled":
        assert len(decision.placed) == most
        allocated: list[Any] = [a for m in decision.placed for a in m.allocations]
        assert len(allocated) == 1


ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@st.composite
def groups_with_rules(draw: st.DrawFn) -> tuple[list[Obj], list[Obj], int | None]:
    """Nodes with some pods, members that attract and repel each other, and minCount (None: the basic policy)."""
    apps = st.sampled_from("ab")
    objects: list[Obj] = []
    for n in range(draw(st.integers(1, 3))):
        objects.append(node(f"n{n}", cpu=str(draw(st.integers(1, 3))), labels={ZONE: draw(apps)}))
        if draw(st.integers(0, 2)) == 0:
            objects.append(labelled(pod(f"r{n}", node=f"n{n}"), draw(apps)))
    members = []
    for i in range(draw(st.integers(2, 4))):
        member = labelled(pod(f"m{i}", group="g", cpu=str(draw(st.integers(1, 2)))), draw(apps))
        selector = {
            "labelSelector": {"matchLabels": {"app": draw(apps)}},
            "topologyKey": draw(st.sampled_from([ZONE, HOST])),
        }
        rule = draw(st.sampled_from(["podAntiAffinity", "podAffinity", "spread", ""]))
        if rule == "spread":
            constraint = {**selector, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
            member["spec"]["topologySpreadConstraints"] = [constraint]
        elif rule:
            member["spec"]["affinity"] = {rule: {REQUIRED: [selector]}}
        members.append(member)
    return objects, members, draw(st.one_of(st.none(), st.integers(1, len(members))))


def labelled(obj: Obj, app: str) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "labels": {"app": app}}}


def most_in_any_order(objects: list[Obj], members: list[Obj]) -> int:
    """Exhaustive: members one after the other, in every order, wherever a plain scheduler would let them go."""
    seen: set[tuple[tuple[int, str], ...]] = {()}
    left: list[tuple[tuple[int, str], ...]] = [()]
    best = 0
    while left:
        state = left.pop()
        best, placed = max(best, len(state)), dict(state)
        there = [{**m, "spec": {**m["spec"], "nodeName": placed[i]}} for i, m in enumerate(members) if i in placed]
        cluster = PlainCluster([*objects, *there])
        for i, name in itertools.product(set(range(len(members))) - placed.keys(), cluster.nodes):
            after = tuple(sorted({**placed, i: name}.items()))
            if after not in seen and not cluster.refusal(members[i], cluster.nodes[name]):
                seen.add(after)
                left.append(after)
    return best


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(groups_with_rules())
def test_group_with_rules_between_pods_binds_as_many_members_as_fit(
    case: tuple[list[Obj], list[Obj], int | None],
) -> None:
    objects, members, min_count = case
    most = most_in_any_order(objects, members)
    decision: Decision = decide_all([*objects, pod_group("g", min_count), *members], "g")
    assert len(decision.placed) == (most if most >= (min_count or 1) else 0)
