"""Groups that must stay in one domain: the choice of the domain, what settles it, and what is said when there is none.

Source: KEP-5732; the words are kube-scheduler's.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from engine_objects import (
    Obj,
    claim,
    decide_all,
    device_class,
    options,
    pod,
    pod_group,
    resource_slice,
)
from topology_objects import RACK, constraint, extended, gang, gpu_gang, holds, rack, racks_of, runs

from haru.engine.equivalence import filter_results
from haru.engine.equivalence.filter_runner import FilterRunner
from haru.engine.framework.profile import DEFAULT_PROFILE, FitStrategy, IgnoredResources
from haru.engine.podgroup import decide
from haru.engine.podgroup.gang_pre_enqueue import FITS_ALONE
from haru.engine.state.cache import SchedulerCache

GPU = "nvidia.com/gpu"


def gpu_pods(name: str, size: int, gpus: int, min_count: int) -> list[Obj]:
    """Members that ask a device plugin for cards."""
    made = gang(name, size, min_count, cpu="0")
    for obj in made[1:]:
        obj["spec"]["containers"][0]["resources"]["requests"] = {GPU: str(gpus)}
    return made


@pytest.mark.parametrize("seed", range(100))
def test_gang_is_placed_in_one_rack_at_any_load(seed: int) -> None:
    rng = random.Random(seed)
    objects = [*rack("a", 4, cpu="1"), *rack("b", 4, cpu="1")]
    room = {"a": 4, "b": 4}
    for number, name in enumerate(f"{r}-{i}" for r in "ab" for i in range(4)):
        if rng.random() < 0.2:
            objects.append(runs(f"load-{number}", name))
            room[name[0]] -= 1
    decision = decide_all([*objects, *gang("g", 4)], "g", seed=seed)
    if max(room.values()) < 4:
        assert (decision.status, len(decision.placed)) == ("unschedulable", 0)
    else:
        assert len(decision.placed) == 4
        assert len(racks_of(decision)) == 1
        assert room[racks_of(decision).pop()] == 4


def test_gang_larger_than_every_rack_is_unschedulable() -> None:
    objects = [*rack("a", 4, cpu="1"), *rack("b", 4, cpu="1"), *gang("g", 5)]
    decision = decide_all(objects, "g")
    assert decision.status == "unschedulable"
    assert not decision.placed
    assert decision.message == (
        "0/2 placements are available, first placement status: 0/4 nodes are available: 4 Insufficient cpu."
    )
    # Each member keeps its own diagnosis, of the first placement only.
    told = Counter(member.message for member in decision.members)
    assert told == {FITS_ALONE: 4, "0/4 nodes are available: 4 Insufficient cpu. no new claims to deallocate": 1}
    assert {member.reasons[0].type for member in decision.members} == {"TopologyDomain"}


def three_racks() -> list[Obj]:
    """4 nodes of 8 cards each; 24 cards of the first rack are in use, 8 of the second, none of the third."""
    objects = extended([*rack("a", 4, cpu="64"), *rack("b", 4, cpu="64"), *rack("c", 4, cpu="64")], GPU, "8")
    for name in ("a-0", "a-1", "a-2", "b-0"):
        made = runs(f"load-{name}", name, cpu="0")
        made["spec"]["containers"][0]["resources"]["requests"] = {GPU: "8"}
        objects.append(made)
    return objects


@pytest.mark.parametrize("seed", range(5))
def test_fullest_rack_that_fits_gang_is_chosen(seed: int) -> None:
    decision = decide_all([*three_racks(), *gpu_pods("g", 4, 2, 4)], "g", seed=seed)
    assert racks_of(decision) == {"a"}
    # With six members of which four suffice the full rack wins with four: 100 + 66 against 62 + 100.
    decision = decide_all([*three_racks(), *gpu_pods("g", 6, 2, 4)], "g", seed=seed)
    assert (racks_of(decision), len(decision.placed)) == ({"a"}, 4)
    # Where all six are needed only the others do.
    decision = decide_all([*three_racks(), *gpu_pods("g", 6, 2, 6)], "g", seed=seed)
    assert (racks_of(decision), len(decision.placed)) == ({"b"}, 6)


def test_placement_weights_decide_between_full_rack_and_more_members() -> None:
    objects = [*three_racks(), *gpu_pods("g", 6, 2, 4)]
    many = replace(DEFAULT_PROFILE, placement_weights={"NodeResourcesFit": 1, "PodGroupPodsCount": 3})
    decision = decide_all(objects, "g", profile=many)
    assert (racks_of(decision), len(decision.placed)) == ({"b"}, 6)
    # A profile that weighs the resource itself has its way: next to that much cpu the cards hardly count.
    objects += [runs(f"cpu-{i}", f"c-{i}", cpu="60") for i in range(4)]
    by_cpu = replace(DEFAULT_PROFILE, fit=FitStrategy(resources=(("cpu", 100), (GPU, 1))))
    assert racks_of(decide_all(objects, "g", profile=by_cpu)) == {"c"}


def test_devices_count_in_rack_utilization() -> None:
    """Rack b has the more cpu in use, rack a the more cards."""
    objects = [device_class(), *rack("a", 2, cpu="8", devices=4), *rack("b", 2, cpu="8", devices=4)]
    objects += [*holds("a-0", "gpu-0", "gpu-1"), runs("busy", "b-0", cpu="7")]
    assert racks_of(decide_all([*objects, *gpu_gang("g", 2, cpu="0")], "g")) == {"a"}
    # A group without cards goes by cpu and memory.
    assert racks_of(decide_all([*objects, *gang("g", 2, cpu="1")], "g")) == {"b"}


def test_equal_racks_are_chosen_evenly() -> None:
    objects = [*rack("a", 2), *rack("b", 2), *rack("c", 2), *gang("g", 2)]
    chosen = Counter(racks_of(decide_all(objects, "g", seed=seed)).pop() for seed in range(150))
    assert set(chosen) == {"a", "b", "c"}
    assert min(chosen.values()) > 30
    first = decide_all(objects, "g", seed=7)
    assert decide_all(list(reversed(objects)), "g", seed=7).placed == first.placed or len(first.placed) == 2
    assert racks_of(decide_all(objects, "g", seed=7)) == racks_of(first)


def test_nodes_without_topology_label_are_in_no_domain() -> None:
    decision = decide_all([*rack(None, 4), *gang("g", 2)], "g")
    assert (decision.status, decision.message) == ("unschedulable", "no feasible placements found")
    assert [member.status for member in decision.members] == ["unschedulable"] * 2
    decision = decide_all([*rack(None, 4), *rack("a", 1, cpu="1"), *gang("g", 2)], "g")
    assert decision.message.startswith("0/1 placements are available, first placement status: ")
    assert decide_all(gang("g", 2), "g").message == "no feasible placements found"


def test_empty_label_value_is_a_domain() -> None:
    objects = [*rack("", 2, cpu="2"), *rack("a", 1, cpu="2"), *gang("g", 4)]
    assert racks_of(decide_all(objects, "g")) == {"empty"}
    running = runs("r", "empty-0", group="g")
    decision = decide_all([*rack("", 2, cpu="2"), *rack("a", 4), *gang("g", 3), running], "g")
    assert racks_of(decision) == {"empty"}


def test_running_members_determine_the_domain() -> None:
    full = [*rack("a", 2, cpu="1"), *rack("b", 4), runs("r", "a-0", group="g"), runs("other", "a-1")]
    decision = decide_all([*full, *gang("g", 2, 1)], "g")
    assert decision.status == "unschedulable"
    assert decision.message.startswith("0/1 placements are available, first placement status: 0/2 nodes are available")
    decision = decide_all([*rack("a", 2, cpu="2"), *rack("b", 4), runs("r", "a-0", group="g"), *gang("g", 2, 3)], "g")
    assert racks_of(decision) == {"a"}


def test_members_running_in_two_domains_are_an_error() -> None:
    running = [runs("r0", "a-0", group="g"), runs("r1", "b-0", group="g")]
    objects = [*rack("a", 2), *rack("b", 2), *running, *gang("g", 1)]
    decision = decide_all(objects, "g")
    assert decision.status == "error"
    assert decision.message == "more than 1 domain found for pod group: a, b"
    assert {m.status for m in decision.members if m.pod.name == "g-0"} == {"error"}
    assert decision.reasons[0].data["domains"] == ["a", "b"]


def test_member_on_node_without_label_is_an_error() -> None:
    objects = [*rack(None, 1), *rack("a", 2), runs("r", "loose-0", group="g"), *gang("g", 1)]
    decision = decide_all(objects, "g")
    assert (decision.status, decision.message) == ("error", "no topology domain found for pod default/r")


def test_member_on_deleted_node_is_an_error() -> None:
    objects = [*rack("a", 2), runs("r", "gone", group="g"), *gang("g", 1)]
    decision = decide_all(objects, "g")
    assert decision.status == "error"
    assert decision.message.startswith("getting node for pod default/r: ")


def test_domain_is_free_again_after_all_members_ended() -> None:
    ended = runs("r", "a-0", group="g")
    ended["status"]["phase"] = "Succeeded"
    objects = [*rack("a", 1, cpu="1"), *rack("b", 2), ended, *gang("g", 2)]
    assert racks_of(decide_all(objects, "g")) == {"b"}


@pytest.mark.parametrize("seed", range(10))
def test_topology_gate_changes_nothing_without_constraint(seed: int) -> None:
    objects = [*rack("a", 3), *rack("b", 3), *rack(None, 2), pod_group("g", 4)]
    objects += [pod(f"g-{i}", cpu="2", group="g") for i in range(6)]
    assert decide_all(objects, "g", seed=seed, topology=True) == decide_all(objects, "g", seed=seed, topology=False)


def test_gate_off_ignores_topology_constraint() -> None:
    objects = [*rack("a", 1, cpu="1"), *rack("b", 1, cpu="1"), *gang("g", 2)]
    assert decide_all(objects, "g").status == "unschedulable"
    assert racks_of(decide_all(objects, "g", topology=False)) == {"a", "b"}


def test_basic_group_stays_in_one_domain() -> None:
    objects = [*rack("a", 2, cpu="1"), *rack("b", 3, cpu="1"), *gang("g", 5, None)]
    decision = decide_all(objects, "g")
    assert (racks_of(decision), len(decision.placed)) == ({"b"}, 3)
    assert decide_all([*rack("a", 2, cpu="500m"), *gang("g", 2, None)], "g").status == "unschedulable"


def test_error_in_one_domain_does_not_exclude_another() -> None:
    """A selector that fails on the devices of one rack."""
    objects: list[Obj] = [device_class(expressions=["device.attributes['gpu.example.com'].size >= 1"])]
    objects += [*rack("a", 1), *rack("b", 1)]
    sized = [{"name": f"gpu-{i}", "attributes": {"size": {"int": 2}}} for i in range(2)]
    objects += [resource_slice("a-0", 3), resource_slice("b-0", sized)]
    assert racks_of(decide_all([*objects, *gpu_gang("g", 2)], "g")) == {"b"}
    decision = decide_all([*objects[:4], *gpu_gang("g", 2)], "g")
    assert decision.status == "error"
    assert "size" in decision.message


def shared_gang(size: int, count: int) -> list[Obj]:
    """Members that share one claim."""
    group = pod_group("g", size, schedulingConstraints=constraint())
    return [group, claim("shared", count), *(pod(f"g-{i}", group="g", claims=["shared"]) for i in range(size))]


def fabric(name: str, devices: int) -> Obj:
    """Devices that all nodes of a rack can use, as a switch offers them."""
    term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": [name]}]}
    listed = [{"name": f"link-{i}"} for i in range(devices)]
    return resource_slice("", listed, pool=f"fabric-{name}", nodeSelector={"nodeSelectorTerms": [term]})


def test_shared_claim_and_members_are_in_one_rack() -> None:
    # Rack a has the devices but no room for all, rack b room but no devices, rack c both.
    objects = [device_class(), *rack("a", 2, cpu="1"), *rack("b", 4), *rack("c", 4, cpu="1")]
    objects += [fabric("a", 2), fabric("c", 2)]
    decision = decide_all([*objects, *shared_gang(3, 2)], "g")
    assert racks_of(decision) == {"c"}
    given = [a.allocation for m in decision.placed for a in m.allocations]
    assert [r["pool"] for r in given[0]["devices"]["results"]] == ["fabric-c", "fabric-c"]
    assert len(given) == 1


def test_failed_rack_leaves_no_allocation() -> None:
    """The claim is allocated in the fuller rack first, where the members do not fit; then in the other."""
    objects = [device_class(), *rack("a", 2, cpu="2"), *rack("b", 3, cpu="2"), fabric("a", 1), fabric("b", 1)]
    objects += [runs("load", "a-0", cpu="1")]
    work = shared_gang(5, 1)
    cluster = SchedulerCache.of([*objects, *work])
    decision = decide(cluster.snapshot(), [o for o in work if o["kind"] == "Pod"], group=work[0], options=options())
    assert racks_of(decision) == {"b"}
    (given,) = [a for m in decision.placed for a in m.allocations]
    assert given.allocation["devices"]["results"][0]["pool"] == "fabric-b"
    assert not cluster.snapshot().allocated.devices


def test_allocated_claim_determines_the_domain() -> None:
    objects = [device_class(), *rack("a", 2), *rack("b", 2), fabric("a", 1), fabric("b", 1)]
    work = shared_gang(2, 1)
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "fabric-b", "device": "link-0"}
    selector = objects[-1]["spec"]["nodeSelector"]
    work[1]["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}}
    for seed in range(5):
        assert racks_of(decide_all([*objects, *work], "g", seed=seed)) == {"b"}


DOMAINS = ["nvlinkDomain", "pcieRoot", "numaNode"]


@pytest.mark.parametrize("attribute", DOMAINS)
def test_devices_with_match_attribute_are_searched_in_each_rack(attribute: str) -> None:
    """Members want two devices that share a domain; the fuller rack has as many devices, but scattered."""

    def devices(*domains: int) -> list[Obj]:
        value = "int" if attribute == "numaNode" else "string"
        return [
            {"name": f"gpu-{i}", "attributes": {attribute: {value: d if value == "int" else f"d{d}"}}}
            for i, d in enumerate(domains)
        ]

    objects = [device_class(), *rack("a", 2), *rack("b", 2)]
    objects += [resource_slice("a-0", devices(0, 1, 2, 3)), resource_slice("a-1", devices(0, 0, 1, 2))]
    objects += [resource_slice("b-0", devices(0, 0, 1, 1, 2)), resource_slice("b-1", devices(0, 1, 0, 1, 2))]
    objects += holds("a-0", "gpu-0")
    made = gpu_gang("g", 4, 2)
    for obj in made:
        if obj["kind"] == "ResourceClaim":
            obj["spec"]["devices"]["constraints"] = [{"matchAttribute": f"gpu.example.com/{attribute}"}]
    decision = decide_all([*objects, *made], "g")
    assert racks_of(decision) == {"b"}
    where: dict[tuple[str, str], Any] = {}
    for item in objects:
        if item["kind"] == "ResourceSlice":
            for entry in item["spec"]["devices"]:
                where[item["spec"]["nodeName"], entry["name"]] = entry["attributes"][attribute]
    for member in decision.placed:
        results = member.allocations[0].allocation["devices"]["results"]
        first, second = (where[r["pool"], r["device"]] for r in results)
        assert first == second


def test_shared_claim_with_match_attribute_determines_rack() -> None:
    """All devices of a claim on one NVLink domain, and the members where they can be used."""
    objects = [device_class(), *rack("a", 2), *rack("b", 2)]
    for name, domains in (("a", "xyz"), ("b", "xyy")):
        item = fabric(name, 0)
        item["spec"]["devices"] = [
            {"name": f"link-{i}", "attributes": {"domain": {"string": d}}} for i, d in enumerate(domains)
        ]
        objects.append(item)
    work = shared_gang(4, 2)
    work[1]["spec"]["devices"]["constraints"] = [{"matchAttribute": "gpu.example.com/domain"}]
    decision = decide_all([*objects, *work], "g")
    assert racks_of(decision) == {"b"}
    (given,) = [a for m in decision.placed for a in m.allocations]
    assert [r["device"] for r in given.allocation["devices"]["results"]] == ["link-1", "link-2"]


def test_devices_visible_from_all_nodes_count_in_every_rack() -> None:
    objects = [device_class(), *rack("a", 2), *rack("b", 2), resource_slice("", 3, pool="everywhere", allNodes=True)]
    assert len(decide_all([*objects, *gpu_gang("g", 3)], "g").placed) == 3
    assert decide_all([*objects, *gpu_gang("g", 4)], "g").status == "unschedulable"


def test_request_with_alternatives_is_not_limited_to_the_first() -> None:
    objects = [device_class(), device_class("rare", ["false"]), *rack("a", 1, devices=2)]
    made = gpu_gang("g", 2)
    alternatives = [{"name": name, "deviceClassName": name, "count": 1} for name in ("rare", "gpu")]
    for obj in made:
        if obj["kind"] == "ResourceClaim":
            obj["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": alternatives}]
    assert len(decide_all([*objects, *made], "g").placed) == 2


def test_resource_ignored_by_profile_excludes_no_rack() -> None:
    objects = [*rack("a", 2), *gang("g", 2)]
    for obj in objects[-2:]:
        obj["spec"]["containers"][0]["resources"]["requests"]["example.com/magic"] = "1"
    assert decide_all(objects, "g").status == "unschedulable"
    profiles = [
        replace(DEFAULT_PROFILE, ignored=IgnoredResources(names=frozenset({"example.com/magic"}))),
        replace(DEFAULT_PROFILE, ignored=IgnoredResources(groups=frozenset({"example.com"}))),
    ]
    for profile in profiles:
        assert len(decide_all(objects, "g", profile=profile).placed) == 2
    without = replace(DEFAULT_PROFILE, filters=DEFAULT_PROFILE.filters - {"NodeResourcesFit"})
    assert len(decide_all(objects, "g", profile=without).placed) == 2


def test_extended_resource_excludes_no_rack_with_devices() -> None:
    objects = [device_class(extendedResourceName="example.com/gpu"), *rack("a", 1), *rack("b", 2, devices=1)]
    work = gang("g", 2)
    for obj in work[1:]:
        obj["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    assert racks_of(decide_all([*objects, *work], "g")) == {"b"}


def test_unschedulable_and_tainted_nodes_fit_no_member() -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    objects = [*rack("a", 2, cpu="1", unschedulable=True), *rack("b", 2, cpu="1", taints=[taint]), *gang("g", 2)]
    decision = decide_all(objects, "g")
    assert decision.message == (
        "0/2 placements are available, first placement status: 0/2 nodes are available: 2 node(s) were unschedulable."
    )
    assert racks_of(decide_all([*objects, *rack("c", 2, cpu="1")], "g")) == {"c"}


def test_hostname_topology_tries_few_of_60_domains() -> None:
    """With the host name as the label hardly any domain is tried."""
    objects = [device_class()]
    for i in range(60):
        objects += rack(f"r{i:02}", 1, devices=8)
        if i % 3:
            objects += holds(f"r{i:02}-0", "gpu-0")
    work = gpu_gang("g", 8, cpu="100m")
    work[0]["spec"]["schedulingConstraints"] = constraint("kubernetes.io/hostname")
    decision = decide_all([*objects, *work], "g")
    assert len({m.node for m in decision.placed}) == 1
    assert len(decision.placed) == 8
    too_many = gpu_gang("g", 9, cpu="100m")
    too_many[0]["spec"]["schedulingConstraints"] = constraint("kubernetes.io/hostname")
    decision = decide_all([*objects, *too_many], "g")
    assert decision.message.startswith("0/60 placements are available, first placement status: ")


def test_second_refused_gang_filters_only_changed_nodes_of_the_first_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered: list[str] = []
    filter_node = FilterRunner.filter_node

    def recorded(self: FilterRunner, *arguments: Any) -> None:
        filtered.append(arguments[-1].name)
        filter_node(self, *arguments)

    monkeypatch.setattr(FilterRunner, "filter_node", recorded)
    monkeypatch.setattr(filter_results, "_FEW", 100)  # no node answers for others
    objects = [*rack("a", 3, cpu="1"), *rack("b", 3, cpu="1"), runs("load", "a-1")]
    cluster = SchedulerCache.of(objects)
    for name, expected in (("g", ["a-0", "a-1", "a-2"]), ("h", ["a-1"])):
        group, *members = gang(name, 3, cpu="2")
        for obj in (group, *members):
            cluster.apply(obj)
        filtered.clear()
        found = decide(cluster.snapshot(), members, group=group, options=options())
        assert (found.status, filtered) == ("unschedulable", expected)
        alone = decide_all([*objects, group, *members], name)
        assert [member.message for member in found.members] == [member.message for member in alone.members]
        cluster.remove(objects.pop())
