"""Gangs that a scheduler which places one member after the other gets wrong: each case by its name."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    member_with_claim,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision


def run(objects: list[Obj], group: str = "g", **kwargs: Any) -> Decision:
    snapshot = SchedulerCache.of(objects).snapshot()
    own = [o for o in objects if o["kind"] == "Pod" and o["spec"].get("schedulingGroup") == {"podGroupName": group}]
    return decide(snapshot, own, group=snapshot.pod_groups[f"default/{group}"], options=options(**kwargs))


def given(decision: Decision) -> dict[str, tuple[str, ...]]:
    """Claim to devices, of all members that were placed."""
    return {
        a.path.partition("/")[2]: tuple(f"{r['pool']}/{r['device']}" for r in a.allocation["devices"]["results"])
        for member in decision.placed
        for a in member.allocations
    }


# -- one whole or two halves ------------------------------------------------------------------------------------------


KIND = f'device.attributes["{DRIVER}"].size'
CLASSES = [device_class("whole", [f'{KIND} == "whole"']), device_class("half", [f'{KIND} == "half"'])]
WHOLE: Obj = {"name": "whole", "deviceClassName": "whole", "allocationMode": "ExactCount", "count": 1}
HALVES: Obj = {"name": "halves", "deviceClassName": "half", "allocationMode": "ExactCount", "count": 2}


def card(number: int, *parts: str) -> list[Obj]:
    """A card that can be had whole or in halves, as far as it is published so."""
    attributes = {"whole": "whole", "half-0": "half", "half-1": "half"}
    memory = {"whole": "2", "half-0": "1", "half-1": "1"}
    return [
        {
            "name": f"card-{number}-{part}",
            "attributes": {"size": {"string": attributes[part]}},
            "consumesCounters": [{"counterSet": f"card-{number}", "counters": {"memory": {"value": memory[part]}}}],
        }
        for part in parts
    ]


def cards(node_name: str, *listed: list[Obj]) -> list[Obj]:
    counters = [{"name": f"card-{i}", "counters": {"memory": {"value": "2"}}} for i in range(3)]
    devices = resource_slice(node_name, [d for each in listed for d in each])
    sets = resource_slice(node_name, [], sharedCounters=counters)
    sets["metadata"]["name"] += "-counters"
    del sets["spec"]["devices"]
    for each in (devices, sets):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    return [devices, sets]


EVERY = ("whole", "half-0", "half-1")


def either(order: tuple[Obj, Obj], how_many: int) -> list[Obj]:
    """A gang whose pods take one whole card or two halves, in this order of preference."""
    objects: list[Obj] = [pod_group("g", how_many)]
    for number in range(how_many):
        member = pod(f"p{number}", group="g", claims=[("gpu", "t", f"p{number}-gpu")])
        requests = [{"name": "gpu", "firstAvailable": list(order)}]
        objects += [member, claim(f"p{number}-gpu", owner=member, requests=requests)]
    return objects


@pytest.mark.parametrize("order", [(WHOLE, HALVES), (HALVES, WHOLE)], ids=["whole first", "halves first"])
@pytest.mark.parametrize("seed", range(4))
def test_gang_with_alternatives_gets_one_whole_and_two_half_cards(order: tuple[Obj, Obj], seed: int) -> None:
    """Of three cards one is not to be cut, and of the two others only a half each is left."""
    in_use = claim("used", requests=[{"name": "gpu", "exactly": {**HALVES, "deviceClassName": "half"}}])
    taken = allocated(in_use, allocation("n", "card-0-half-0", "card-1-half-0"), pod("old"))
    base = [*CLASSES, node("n"), *cards("n", card(0, *EVERY), card(1, *EVERY), card(2, "whole")), taken]
    base.append(pod("old", node="n", claims=["used"]))
    decision = run([*base, *either(order, 2)], seed=seed)
    assert decision.status == "scheduled"
    got = sorted(given(decision).values(), key=len)
    assert got == [("n/card-2-whole",), ("n/card-0-half-1", "n/card-1-half-1")]
    assert run([*base, *either(order, 3)], seed=seed).status == "unschedulable"


@pytest.mark.parametrize("order", [(WHOLE, HALVES), (HALVES, WHOLE)], ids=["whole first", "halves first"])
def test_gang_with_alternatives_may_spread_over_nodes(order: tuple[Obj, Obj]) -> None:
    """One node has only whole cards, the other only halves; neither has enough for all."""
    base = [*CLASSES, node("a"), *cards("a", card(0, "whole")), node("b"), *cards("b", card(1, "half-0", "half-1"))]
    decision = run([*base, *either(order, 2)])
    assert decision.status == "scheduled"
    assert sorted(given(decision).values()) == [("a/card-0-whole",), ("b/card-1-half-0", "b/card-1-half-1")]


# -- shared claims ----------------------------------------------------------------------------------------------------


def racks(**sizes: int) -> list[Obj]:
    """Nodes of one cpu each, by rack; each rack has one channel that all of its nodes can use."""
    objects: list[Obj] = [device_class(), device_class("channel", [f'device.attributes["{DRIVER}"].kind == "channel"'])]
    for rack, size in sizes.items():
        objects += [node(f"{rack}-{i}", cpu="1", labels={"rack": rack}) for i in range(size)]
        term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}
        channel = {"name": "channel", "attributes": {"kind": {"string": "channel"}}}
        where = {"nodeSelectorTerms": [term]}
        objects.append(resource_slice("", [channel], pool=f"fabric-{rack}", nodeSelector=where))
    return objects


CHANNEL = [{"name": "gpu", "exactly": {"deviceClassName": "channel", "allocationMode": "ExactCount", "count": 1}}]
SHARED = {"name": "link", "resourceClaimName": "link"}


@pytest.mark.parametrize("seed", range(6))
def test_shared_claim_moves_to_device_where_gang_fits(seed: int) -> None:
    objects = [*racks(a=2, b=4, c=3), pod_group("g", 4, claims=[SHARED]), claim("link", requests=CHANNEL)]
    objects += [pod(f"p{i}", group="g", claims=["link"]) for i in range(4)]
    decision = run(objects, seed=seed)
    assert decision.status == "scheduled"
    assert {(m.node or "")[0] for m in decision.placed} == {"b"}
    assert given(decision) == {"link": ("fabric-b/channel",)}


@pytest.mark.parametrize("seed", range(6))
def test_gang_with_shared_and_own_claims_chooses_rack_with_both(seed: int) -> None:
    """A channel for all and a card for each: the rack with the most nodes lacks cards."""
    objects = racks(a=5, b=4, c=3)
    for name in ("a-0", "a-1", "a-2", "b-0", "b-1", "b-2", "b-3", "c-0", "c-1", "c-2"):
        cards_ = [{"name": "gpu-0", "attributes": {"kind": {"string": "card"}}}]
        objects.append(resource_slice(name, cards_))
    objects += [device_class("card", [f'device.attributes["{DRIVER}"].kind == "card"'])]
    objects += [pod_group("g", 4, claims=[SHARED]), claim("link", requests=CHANNEL)]
    exactly = {"deviceClassName": "card", "allocationMode": "ExactCount", "count": 1}
    for number in range(4):
        member = pod(f"p{number}", group="g", claims=["link", ("gpu", "t", f"p{number}-gpu")])
        objects += [member, claim(f"p{number}-gpu", owner=member, requests=[{"name": "gpu", "exactly": exactly}])]
    decision = run(objects, seed=seed)
    assert decision.status == "scheduled"
    assert sorted(m.node or "" for m in decision.placed) == ["b-0", "b-1", "b-2", "b-3"]
    assert given(decision)["link"] == ("fabric-b/channel",)
    assert len({given(decision)[f"p{i}-gpu"] for i in range(4)}) == 4
    consumers = {a.path: a.reserve_for["resource"] for m in decision.placed for a in m.allocations}
    assert consumers == {"default/link": "podgroups", **{f"default/p{i}-gpu": "pods" for i in range(4)}}


def test_claim_of_257_members_is_reserved_for_the_group() -> None:
    """A claim is reserved for 256 users at most; the group is one."""
    objects = [device_class(), node("n", cpu="400"), resource_slice("n", 1)]
    objects[1]["status"]["allocatable"]["pods"] = "400"
    shared = {"name": "gpu", "resourceClaimName": "gpu"}
    objects += [pod_group("g", 257, claims=[shared]), claim("gpu")]
    objects += [pod(f"p{i}", group="g", claims=["gpu"]) for i in range(257)]
    decision = run(objects)
    assert len(decision.placed) == 257
    consumers = [a.reserve_for for m in decision.placed for a in m.allocations]
    consumers += [r.reserve_for for m in decision.placed for r in m.reservations]
    assert len(consumers) == 257
    assert {consumer["uid"] for consumer in consumers} == {"uid-group-g"}


@pytest.mark.parametrize(("minimum", "placed"), [(257, 0), (256, 256), (1, 256)])
def test_claim_that_is_reserved_for_each_member_takes_256_of_them(minimum: int, placed: int) -> None:
    """The API takes no more users of a claim: more members would all be sent in vain, again and again."""
    objects = [device_class(), node("n", cpu="600"), resource_slice("n", 1)]
    objects[1]["status"]["allocatable"]["pods"] = "400"
    objects += [pod_group("g", minimum), claim("gpu")]
    objects += [pod(f"p{i}", group="g", claims=["gpu"], cpu=str(1 + i % 2)) for i in range(260)]
    decision = run(objects)
    assert decision.status == ("scheduled" if placed else "unschedulable")
    assert len(decision.placed) == placed
    assert {r.type for m in decision.members for r in m.reasons} >= {"ClaimReservedFull"}


# -- gangs beside each other ------------------------------------------------------------------------------------------


def settle(objects: list[Obj], names: str, seed: int) -> dict[str, int]:
    """Decide the gangs one after the other, each seeing what the others got; how many members each has."""
    cluster = SchedulerCache.of(objects)
    ends = {}
    for name in names:
        snapshot = cluster.snapshot()
        own = [o for o in objects if o["kind"] == "Pod" and o["spec"].get("schedulingGroup") == {"podGroupName": name}]
        decision = decide(snapshot, own, group=snapshot.pod_groups[f"default/{name}"], options=options(seed=seed))
        ends[name] = len(decision.placed)
        for member in decision.placed:
            cluster.assume_pod(member.pod, member.node or "")
            for entry in member.allocations:
                cluster.assume_claim({**snapshot.claims[entry.path], "status": {"allocation": entry.allocation}})
    return ends


def gangs(names: str, size: int, minimum: int | None = None, **kwargs: Any) -> list[Obj]:
    """Members of several gangs, one of each in turn."""
    objects: list[Obj] = [pod_group(name, minimum or size) for name in names]
    for number in range(size):
        for name in names:
            objects += member_with_claim(f"{name}{number}", name, **kwargs)
    return objects


@pytest.mark.parametrize("seed", range(5))
def test_one_of_two_gangs_that_could_each_hold_half_is_placed(seed: int) -> None:
    objects = [device_class(), *(o for i in range(2) for o in (node(f"n{i}"), resource_slice(f"n{i}", 2)))]
    assert settle([*objects, *gangs("ab", 4)], "ab", seed) == {"a": 4, "b": 0}
    assert settle([*objects, *gangs("ab", 4)], "ba", seed) == {"b": 4, "a": 0}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("order", ["abcd", "dcba", "bdac"])
def test_two_of_four_interleaved_gangs_are_placed(order: str, seed: int) -> None:
    """Twelve members in turn, room for seven: two gangs are whole, and the one place left stays free."""
    objects = [device_class(), node("n0"), resource_slice("n0", 4), node("n1"), resource_slice("n1", 3)]
    ends = settle([*objects, *gangs("abcd", 3)], order, seed)
    assert ends == {**dict.fromkeys(order[:2], 3), **dict.fromkeys(order[2:], 0)}


def test_failed_member_of_running_gang_is_replaced_alone() -> None:
    objects: list[Obj] = [device_class(), pod_group("g", 2)]
    for name, place in (("stays", "n0"), ("failed", "n1")):
        objects += [node(place, cpu="2"), resource_slice(place, 1), *member_with_claim(name, "g", node=place)]
    stays = next(o for o in objects if o["kind"] == "ResourceClaim" and "stays" in o["metadata"]["name"])
    objects[objects.index(stays)] = allocated(stays, allocation("n0", "gpu-0"), pod("stays"))
    failed = next(o for o in objects if o["metadata"]["name"] == "failed")
    failed["status"]["phase"] = "Failed"
    replacement = member_with_claim("new", "g")
    cluster = SchedulerCache.of([*objects, *replacement])
    snapshot = cluster.snapshot()
    decision = decide(snapshot, replacement[:1], group=snapshot.pod_groups["default/g"], options=options())
    assert decision.status == "scheduled"
    assert [(m.pod.name, m.node) for m in decision.placed] == [("new", "n1")]
    assert given(decision) == {"new-gpu": ("n1/gpu-0",)}


@pytest.mark.parametrize(("devices", "placed"), [(1, 0), (2, 2), (3, 3), (4, 4), (9, 5)])
def test_members_beyond_min_count_use_remaining_devices(devices: int, placed: int) -> None:
    objects = [device_class(), node("n"), resource_slice("n", devices), *gangs("g", 5, minimum=2)]
    decision = run(objects)
    assert (decision.status, len(decision.placed)) == ("scheduled" if placed else "unschedulable", placed)


@pytest.mark.parametrize("seed", range(4))
def test_members_of_mixed_priorities_are_placed_by_priority(seed: int) -> None:
    """The gang needs all three; whoever is more important chooses first, and nobody is left out for it."""
    objects: list[Obj] = [device_class(), pod_group("g", 3)]
    for name, count in (("n0", 4), ("n1", 2), ("n2", 1)):
        objects += [node(name, cpu="1"), resource_slice(name, count)]
    for name, priority, count in (("low", 0, 4), ("high", 10, 1), ("middle", 5, 2)):
        objects += member_with_claim(name, "g", count, priority=priority)
    decision = run(objects, seed=seed)
    assert [m.pod.name for m in decision.members] == ["high", "middle", "low"]
    assert {m.pod.name: m.node for m in decision.placed} == {"high": "n2", "middle": "n1", "low": "n0"}


# -- an attribute that one node's devices lack ------------------------------------------------------------------------


def lacks_attribute(lacking: str, members: int, *, held: bool) -> list[Obj]:
    """Of nodes a and b one has devices without `numa`; a gang whose claims want two devices of one `numa`."""
    objects = [device_class(), pod_group("g", members, priority=9)]
    for name in ("a", "b"):
        attribute = "other" if name == lacking else "numa"
        devices: list[Obj] = [{"name": f"gpu-{i}", "attributes": {attribute: {"int": 0}}} for i in range(2)]
        objects += [node(name), resource_slice(name, devices)]
        if held:
            user = pod(f"low-{name}", node=name, claims=[f"held-{name}"], priority=0)
            to = allocation(name, "gpu-0", "gpu-1")
            objects += [user, allocated(claim(f"held-{name}", 2), to, user)]
    for i in range(members):
        member, own = member_with_claim(f"m{i}", "g", 2, priority=9)
        own["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/numa"}]
        objects += [member, own]
    return objects


@pytest.mark.parametrize("lacking", ["a", "b"])
def test_node_without_compared_attribute_takes_no_member(lacking: str) -> None:
    assert run(lacks_attribute(lacking, 2, held=False)).status == "unschedulable"


@pytest.mark.parametrize(("lacking", "victim"), [("a", "low-b"), ("b", "low-a")])
def test_node_without_compared_attribute_has_no_victims(lacking: str, victim: str) -> None:
    decision = run(lacks_attribute(lacking, 1, held=True), preempt_for_groups=True)
    assert (decision.status, [eviction.pod.name for eviction in decision.evictions]) == ("nominated", [victim])


@pytest.mark.parametrize("extra", [0, 1])
def test_gang_whose_members_take_all_devices_of_a_node_is_refused_with_proof(extra: int) -> None:
    """One member a node, and all devices there: what there is for it has no alternatives, so two nodes take two."""
    every = {"requests": [{"name": "all", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}
    selector = [{"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "nic"'}}]
    one = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1, "selectors": selector}
    apart = {"labelSelector": {"matchLabels": {"job": "j"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    devices = [
        {"name": name, "attributes": {"kind": {"string": name[:3]}}} for name in ("gpu0", "gpu1", "nic0", "nic1")
    ]
    objects = [device_class(expressions=[f'device.attributes["{DRIVER}"].kind == "gpu"']), device_class("any")]
    objects += [one for name in ("n0", "n1") for one in (node(name), resource_slice(name, devices))]
    requests = every["requests"] + [{"name": "one", "exactly": one}] * extra
    for number in range(3):
        member = pod(f"m{number}", group="g", claims=[f"c{number}"], affinity=affinity)
        member["metadata"]["labels"] = {"job": "j"}
        objects += [member, claim(f"c{number}", requests=requests)]
    assert run([*objects, pod_group("g", 2)]).status == "scheduled"
    refused = run([*objects, pod_group("g", 3)])
    assert (refused.status, len(refused.placed)) == ("unschedulable", 0), refused.message


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("members", "status"), [(2, "scheduled"), (4, "scheduled"), (5, "unschedulable")])
def test_gang_takes_smaller_shares_of_one_device_where_larger_ones_leave_too_little(
    members: int, status: str, apart: bool
) -> None:
    """Each would rather have three parts of four, but has enough with one; with rules between pods, and without."""

    def share(name: str, memory: str) -> Obj:
        ask = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        return {"name": name, **ask, "capacity": {"requests": {"memory": memory}}}

    device = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "4"}}}
    objects = [device_class(), node("n0"), node("n1"), resource_slice("", [device], pool="net", allNodes=True)]
    term = {"labelSelector": {"matchLabels": {"other": "job"}}, "topologyKey": "kubernetes.io/hostname"}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term] * apart}}
    for number in range(members):
        request = {"name": "gpu", "firstAvailable": [share("much", "3"), share("little", "1")]}
        objects.append(pod(f"m{number}", group="g", claims=[f"c{number}"], affinity=rules))
        objects.append(claim(f"c{number}", requests=[request]))
    decision = run([*objects, pod_group("g", members)])
    assert decision.status == status, decision.message


@pytest.mark.parametrize(("fast", "status"), [(1, "scheduled"), (0, "unschedulable")])
@pytest.mark.parametrize("apart", [False, True])
def test_alternative_that_nobody_has_to_take_may_be_contradictory(fast: int, status: str, apart: bool) -> None:
    """The first member would take the only device of the second, which lets it be: all devices there are not distinct.

    With rules between pods, and without.
    """

    def devices(*sizes: int) -> list[Obj]:
        return [{"name": f"d{i}", "attributes": {"size": {"int": size}}} for i, size in enumerate(sizes)]

    def asks(name: str, mode: Obj, selector: str) -> Obj:
        chosen = [{"cel": {"expression": f"device.attributes['{DRIVER}'].size {selector}"}}]
        return {"name": name, "deviceClassName": "gpu", **mode, "selectors": chosen}

    one: Obj = {"allocationMode": "ExactCount", "count": 1}
    first = [{"name": "r", "firstAvailable": [asks("s0", one, "== 1"), asks("s1", {"allocationMode": "All"}, "> 0")]}]
    second = [{"name": "r", "firstAvailable": [asks("s0", one, "== 1")]}]
    distinct = [{"distinctAttribute": f"{DRIVER}/size"}]
    term = {"labelSelector": {"matchLabels": {"other": "job"}}, "topologyKey": "kubernetes.io/hostname"}
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term] * apart}}
    members = [
        pod("m0", group="g", claims=["c0"], affinity={**rules, "nodeAffinity": preferred}, priority=1),
        pod("m1", group="g", claims=["c1"], nodeSelector={"kubernetes.io/hostname": "n0"}),
    ]
    objects = [
        device_class(),
        *members,
        claim("c0", requests=first, constraints=distinct),
        claim("c1", requests=second),
    ]
    objects += [
        node("n0"),
        node("n1"),
        resource_slice("n0", devices(1, 2, 2)),
        resource_slice("n1", devices(*[1] * fast)),
    ]
    decision = run([*objects, pod_group("g", 2)])
    assert decision.status == status, decision.message
    if fast:
        assert given(decision) == {"c0": ("n1/d0",), "c1": ("n0/d0",)}


def test_gang_whose_members_take_all_devices_of_a_node_evicts_who_has_one_of_them() -> None:
    every = [{"name": "all", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]
    apart = {"labelSelector": {"matchLabels": {"job": "j"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    low = pod("low", node="n0", claims=["held"])
    objects = [device_class(), low, allocated(claim("held"), allocation("n0", "gpu-3"), low)]
    for number in range(3):
        member = pod(f"m{number}", group="g", claims=[f"c{number}"], affinity=affinity, priority=10)
        member["metadata"]["labels"] = {"job": "j"}
        objects += [member, claim(f"c{number}", requests=every), node(f"n{number}"), resource_slice(f"n{number}", 8)]
    decision = run([*objects, pod_group("g", 3, priority=10)], preempt_for_groups=True)
    assert (decision.status, [one.pod.name for one in decision.evictions]) == ("nominated", ["low"]), decision.message


@pytest.mark.parametrize("needed", [1, 2])
def test_claim_for_one_pod_only_is_used_by_one_member(needed: int) -> None:
    """Members that ask alike are decided by one state, which must not take one of them for another."""
    asked = {"accessModes": ["ReadWriteOncePod"], "volumeName": "v"}
    bound = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default"}}
    csi = {"csi": {"driver": "csi.example.com", "volumeHandle": "v"}}
    objects = [
        {**bound, "spec": asked},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": csi},
        *(device_class(), node("n0", cpu="4"), node("n1", cpu="4"), resource_slice("n0", 2), resource_slice("n1", 2)),
    ]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    for number in range(3):
        claims = [f"gpu-{number}"] if number else None
        objects.append(pod(f"m{number}", group="g", cpu="2", claims=claims, volumes=volumes))
        objects += [claim(one) for one in claims or ()]
    decision = run([*objects, pod_group("g", needed)])
    assert (decision.status, len(decision.placed)) == (("scheduled", 1) if needed == 1 else ("unschedulable", 0))
