"""Gangs on devices that several nodes share: the exact search per member, and its bounds."""

from __future__ import annotations

import itertools

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
    pod,
    pod_group,
    resource_slice,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_groups_exact import check, demands, gang, inventories

from haru.engine.podgroup import search_budget
from haru.engine.podgroup.backtracking_search import _devices
from haru.engine.state.decision import Decision

Device = tuple[str, str]
ROOTS = st.sampled_from(["r0", "r1"])
EXPRESSIONS = {f'device.attributes["{DRIVER}"].root == "{root}"': root for root in ("r0", "r1")}
SELECTORS = st.sampled_from([[], *([{"cel": {"expression": text}}] for text in EXPRESSIONS)])


@pytest.fixture(params=[0, search_budget.BOUND_AFTER])
def _looked_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is within reach is asked of at once, or after a while."""
    monkeypatch.setattr(search_budget, "BOUND_AFTER", request.param)


def devices(names: str, roots: list[str]) -> list[Obj]:
    return [{"name": f"{names}{i}", "attributes": {"root": {"string": root}}} for i, root in enumerate(roots)]


def fabric(names: list[Obj], racks: list[str]) -> Obj:
    """A pool of devices that every node of some racks sees."""
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": racks}]}
    return resource_slice("", names, pool="net", nodeSelector={"nodeSelectorTerms": [term]})


@st.composite
def demands_for_all(draw: st.DrawFn) -> Obj:
    """All devices, or all of a root, and perhaps one more, of which perhaps the root is given."""
    made = {"deviceClassName": "gpu", "allocationMode": "All", "selectors": draw(SELECTORS)}
    requests = [{"name": "all", "exactly": made}]
    if draw(st.booleans()):
        more = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": draw(SELECTORS)}
        requests.insert(draw(st.integers(0, 1)), {"name": "more", "exactly": more})
    return {"requests": requests}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Obj], list[tuple[Obj, int]], int]:
    """Up to three nodes with a device or none, up to four devices on a fabric, and a gang of up to five members."""
    objects: list[Obj] = [device_class()]
    for n in range(draw(st.integers(1, 3))):
        objects.append(node(f"n{n}", cpu=str(draw(st.integers(1, 4))), labels={"rack": draw(st.sampled_from("ab"))}))
        objects.append(resource_slice(f"n{n}", devices("d", draw(st.lists(ROOTS, max_size=1)))))
    racks = draw(st.sampled_from((["a"], ["a", "b"])))
    objects.append(fabric(devices("f", draw(st.lists(ROOTS, min_size=1, max_size=4))), racks))
    kinds = draw(st.lists(st.tuples(demands() | demands_for_all(), st.integers(1, 3)), min_size=1, max_size=2))
    total = sum(count for _, count in kinds)
    return objects, kinds, draw(st.integers(1, total))


def most_that_fit(objects: list[Obj], kinds: list[tuple[Obj, int]]) -> int:
    """Exhaustive: every member on every node with every set of devices that it can have there, or left out."""
    nodes = {o["metadata"]["name"]: o for o in objects if o["kind"] == "Node"}
    seen: dict[str, list[tuple[Device, str]]] = {name: [] for name in nodes}
    for item in (o["spec"] for o in objects if o["kind"] == "ResourceSlice"):
        for device in item["devices"]:
            found = (item["pool"]["name"], device["name"]), device["attributes"]["root"]["string"]
            for name, one in nodes.items():
                if item.get("nodeName") == name or _selects(item, one):
                    seen[name].append(found)
    members = [(demand, 1 + k % 2) for k, (demand, count) in enumerate(kinds) for _ in range(count)]
    room = {name: int(one["status"]["allocatable"]["cpu"]) for name, one in nodes.items()}

    def best(number: int, free: dict[str, int], taken: frozenset[Device]) -> int:
        if number == len(members):
            return 0
        demand, cpu = members[number]
        most = best(number + 1, free, taken)
        for name in nodes:
            if free[name] < cpu:
                continue
            for chosen in _sets(demand, seen[name], taken):
                most = max(most, 1 + best(number + 1, {**free, name: free[name] - cpu}, taken | chosen))
        return most

    return best(0, room, frozenset())


def _selects(item: Obj, one: Obj) -> bool:
    terms = (item.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    return any(one["metadata"]["labels"]["rack"] in term["matchExpressions"][0]["values"] for term in terms)


def _sets(demand: Obj, seen: list[tuple[Device, str]], taken: frozenset[Device]) -> list[frozenset[Device]]:
    free = [entry for entry in seen if entry[0] not in taken]
    request = demand["requests"][0]
    exact = [one["exactly"] for one in demand["requests"] if "exactly" in one]
    every = next((one for one in exact if one["allocationMode"] == "All"), None)
    if every is not None:
        whole = frozenset(device for device, _ in _selected(every, seen))
        if not whole or whole & taken:
            return []
        others = [one for one in exact if one is not every]
        more = [device for one in others for device, _ in _selected(one, free) if device not in whole]
        return [whole | {device} for device in more] if others else [whole]
    counts = {ask["count"] for ask in request.get("firstAvailable") or [request["exactly"]]}
    found = []
    for count in counts:
        for chosen in itertools.combinations(free, count):
            if not demand.get("constraints") or len({root for _, root in chosen}) == 1:
                found.append(frozenset(device for device, _ in chosen))
    return found


def _selected(ask: Obj, among: list[tuple[Device, str]]) -> list[tuple[Device, str]]:
    roots = [EXPRESSIONS[one["cel"]["expression"]] for one in ask["selectors"]]
    return [entry for entry in among if not roots or entry[1] in roots]


@pytest.mark.usefixtures("_looked_up")
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_gang_with_shared_devices_is_bound_iff_a_placement_exists(
    case: tuple[list[Obj], list[tuple[Obj, int]], int],
) -> None:
    objects, kinds, min_count = case
    most = most_that_fit(objects, kinds)
    decision: Decision = decide_all(objects + gang(kinds, min_count), "g")
    assert decision.status == ("scheduled" if most >= min_count else "unschedulable")
    if decision.status == "scheduled":
        taken = [
            (result["pool"], result["device"])
            for member in decision.placed
            for allocation in member.allocations
            for result in allocation.allocation["devices"]["results"]
        ]
        assert min_count <= len(decision.placed) <= most and len(taken) == len(set(taken))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(inventories(), st.lists(st.tuples(demands(), st.integers(1, 2)), min_size=2, max_size=3), st.data())
def test_capacity_bound_does_not_end_search_too_early(
    inventory: list[Obj], kinds: list[tuple[Obj, int]], data: st.DataObject
) -> None:
    min_count = data.draw(st.integers(1, sum(count for _, count in kinds)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_budget, "BOUND_AFTER", 0)
        check(inventory + gang(kinds, min_count), min_count)


def big(count: int, cards: int, nodes: int = 3) -> list[Obj]:
    """A gang of `count` on nodes that see the same cards, no two of which are alike."""
    objects: list[Obj] = [device_class()]
    objects += [node(f"n{n}", cpu="8", labels={"rack": "a"}) for n in range(nodes)]
    objects.append(fabric(devices("f", [f"r{i}" for i in range(cards)]), ["a"]))
    objects.append(pod_group("g", count))
    constraint = {"requests": ["gpu"], "matchAttribute": f"{DRIVER}/root"}
    for i in range(count):
        made = member_with_claim(f"m{i:02}", "g")
        made[1]["spec"]["devices"]["constraints"] = [constraint]
        objects += made
    return objects


def test_gang_larger_than_capacity_is_refused_without_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was searched for twenty thousand questions, and then nobody knew."""
    asked = []
    spend = search_budget.SearchBudget.spend

    def counted(self: search_budget.SearchBudget, questions: int = 1) -> None:
        asked.append(questions)
        spend(self, questions)

    monkeypatch.setattr(search_budget.SearchBudget, "spend", counted)
    decision: Decision = decide_all(big(16, 11), "g")
    assert decision.status == "unschedulable"
    assert not [reason for reason in decision.reasons if reason.type == "GaveUp"]
    assert sum(asked) < 4 * search_budget.BOUND_AFTER


def test_symmetric_devices_are_searched_once() -> None:
    """Seven of eight cards can be had, by eight members: in 5,040 orders, which were more than could be asked about."""
    objects = big(8, 8, nodes=1)
    [pool] = [o for o in objects if o["kind"] == "ResourceSlice"]
    pool["spec"]["devices"][0]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    decision: Decision = decide_all(objects, "g")
    assert decision.status == "unschedulable"
    assert not [reason for reason in decision.reasons if reason.type == "GaveUp"]


def test_device_that_is_whole_by_now_is_not_free_while_somebody_has_a_share_of_it() -> None:
    """Its driver has published it anew."""
    share = allocation("a", "gpu-0")
    share["devices"]["results"][0] |= {"shareID": "s", "consumedCapacity": {"memory": "1Gi"}}
    user = pod("user", node="a", claims=["held"])
    there = [node("a"), device_class(), allocated(claim("held"), share, user), user, claim("c")]
    waiting = pod("p", claims=["c"])
    for cards, status in ((1, "unschedulable"), (2, "scheduled")):
        decision = decide_all([*there, resource_slice("a", cards), waiting], only=[waiting])
        assert decision.status == status
    assert decision.members[0].allocations[0].allocation["devices"]["results"][0]["device"] == "gpu-1"


SHARED: Obj = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8"}}}
EVERYTHING: Obj = {"deviceClassName": "gpu", "allocationMode": "All"}
ONE: Obj = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}


@pytest.mark.parametrize(
    "requests",
    [
        [{"name": "all", "exactly": EVERYTHING}],
        [{"name": "r", "firstAvailable": [{"name": "all", **EVERYTHING}, {"name": "two", **ONE, "count": 2}]}],
        [{"name": "r", "firstAvailable": [{"name": "four", **ONE, "count": 4}, {"name": "all", **EVERYTHING}]}],
        [{"name": "all", "exactly": EVERYTHING}, {"name": "seen", "exactly": {**ONE, "adminAccess": True}}],
    ],
)
def test_gang_that_asks_for_all_devices_is_refused_though_some_of_them_can_be_shared(requests: list[Obj]) -> None:
    objects = [device_class(), *(node(name, labels={"rack": "a"}) for name in ("n0", "n1"))]
    objects += [fabric(devices("f", ["r0"]), ["a"]), resource_slice("n0", [{"name": "d0", **SHARED}])]
    for member in ("m0", "m1"):
        objects += [claim(f"{member}-c", requests=requests), pod(member, group="gang", claims=[f"{member}-c"])]
    decision = decide_all([*objects, pod_group("gang", 2)], "gang")
    assert decision.status == "unschedulable", decision.message


def test_gang_fits_if_one_member_takes_another_alternative_than_all_devices() -> None:
    """The devices of all nodes: who comes first would take them all."""
    choices = [{"name": "all", **EVERYTHING}, {"name": "one", **ONE}]
    objects = [device_class(), node("n0", labels={"rack": "a"}), fabric(devices("f", ["r0", "r0"]), ["a"])]
    for member in ("m0", "m1"):
        objects.append(claim(f"{member}-c", requests=[{"name": "r", "firstAvailable": choices}]))
        objects.append(pod(member, group="gang", claims=[f"{member}-c"]))
    decision = decide_all([*objects, pod_group("gang", 2)], "gang")
    assert decision.status == "scheduled", decision.message


def test_gang_fits_if_two_requests_of_a_member_change_their_shared_devices() -> None:
    """d0 has room for 2 and d1 for 3: what the second member asks of d1 leaves 1 of it, and 2 of the other."""
    sizes = [{"name": f"d{i}", **SHARED, "capacity": {"memory": {"value": v}}} for i, v in enumerate("23")]
    for one in sizes:
        one["attributes"] = {"name": {"string": one["name"]}}
    exact = [{**ONE, "capacity": {"requests": {"memory": amount}}} for amount in ("1", "2")]
    apart = [{"distinctAttribute": f"{DRIVER}/name"}]
    first = claim("c0", requests=[{"name": f"r{i}", "exactly": one} for i, one in enumerate(exact)])
    first["spec"]["devices"]["constraints"] = apart
    only = {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].name == "d1"'}}]}
    objects = [device_class(), node("n0", labels={"rack": "a"}), fabric(sizes, ["a"]), first]
    objects += [claim("c1", requests=[{"name": "r", "exactly": {**exact[1], **only}}]), pod_group("gang", 2)]
    objects += [pod(f"m{i}", group="gang", claims=[f"c{i}"]) for i in (0, 1)]
    decision = decide_all(objects, "gang")
    assert decision.status == "scheduled", decision.message


def test_consumed_shares_are_counted_per_device() -> None:
    """Two of one and one of another is not what one of the one and two of the other is."""

    def taken(*names: str) -> list[Obj]:
        share = {"driver": DRIVER, "pool": "p", "consumedCapacity": {"memory": "1Gi"}}
        return [{"devices": {"results": [{**share, "device": name}]}} for name in names]

    assert _devices(taken("d", "d", "e")) == _devices(taken("e", "d", "d")) != _devices(taken("d", "e", "e"))


@st.composite
def shares(draw: st.DrawFn) -> tuple[list[Obj], list[list[Obj]]]:
    """Up to three devices, most of which can be shared, and what members ask of them, the largest share first."""
    whole: Obj = {"capacity": {"memory": {"value": "2"}}}
    shareable = [
        {"allowMultipleAllocations": True, "capacity": {"memory": {"value": value}}} for value in ("3", "4", "5")
    ]
    found = draw(st.lists(st.sampled_from([whole, *shareable, *shareable]), min_size=1, max_size=2))
    amounts = st.sampled_from([[3, 1], [2, 1], [3, 2, 1], [2], [1]])
    members = draw(st.lists(st.lists(amounts, min_size=1, max_size=2), min_size=3, max_size=4))
    listed = [
        [{"name": f"r{number}", "firstAvailable": _larger_first(each)} for number, each in enumerate(member)]
        for member in members
    ]
    return [{"name": f"d{number}", **one} for number, one in enumerate(found)], listed


def _larger_first(amounts: list[int]) -> list[Obj]:
    ask = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return [
        {"name": f"s{amount}", **ask, "capacity": {"requests": {"memory": str(amount)}}}
        for amount in sorted(amounts, reverse=True)
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(shares())
def test_search_member_by_member_finds_shares_that_joint_allocation_finds(
    case: tuple[list[Obj], list[list[Obj]]],
) -> None:
    """Rules between pods that concern nobody: each member is tried by itself then."""
    term = {"labelSelector": {"matchLabels": {"other": "job"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = []
    for rules in ({}, {"affinity": apart}):
        objects = [device_class(), node("n0"), resource_slice("n0", case[0]), pod_group("g", len(case[1]))]
        for number, requests in enumerate(case[1]):
            objects.append(pod(f"m{number}", group="g", claims=[f"c{number}"], **rules))
            objects.append(claim(f"c{number}", requests=requests))
        found.append(decide_all(objects, "g").status)
    assert found[0] == found[1]
