"""Devices that take of their node's own resources: what counts, where it is too much, who may share (KEP-5517)."""

from __future__ import annotations

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
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.dra.errors import AllocationError
from haru.engine.dra.extended_resources import ANNOTATION
from haru.engine.dra.node_mappings import mapped_amounts
from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision, MemberDecision
from haru.engine.state.pod_info import PodInfo

GI = 2**30


def mapped(name: str, **mappings: Any) -> Obj:
    """A device that counts against node resources: `memory="8Gi"` per device, `cpu=("cores", "2")` per unit."""
    given = {}
    for resource, value in mappings.items():
        key, multiplier = value if isinstance(value, tuple) else ("", value)
        given[resource] = {"allocationMultiplier": multiplier, **({"capacityKey": key} if key else {})}
    return {"name": name, "nodeAllocatableResourceMappings": given}


def shared(name: str, cores: int, **mappings: Any) -> Obj:
    """A device that claims share by cores."""
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    capacity = {"cores": {"value": str(cores), "requestPolicy": policy}}
    return {**mapped(name, **mappings), "allowMultipleAllocations": True, "capacity": capacity}


def wanting_cores(name: str, cores: str, owner: Obj | None = None) -> Obj:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    request = {"name": "gpu", "exactly": {**exactly, "capacity": {"requests": {"cores": cores}}}}
    return claim(name, owner=owner, requests=[request])


def user(name: str, *claims: str, cpu: str = "1", group: str = "", where: str = "", **spec: Any) -> Obj:
    """A pod whose container uses its claims."""
    made = pod(name, cpu, group=group, node=where, claims=list(claims), **spec)
    if "containers" not in spec:
        made["spec"]["containers"][0]["resources"]["claims"] = [{"name": c} for c in claims]
    return made


def run(objects: list[Obj], group: str = "", **kwargs: Any) -> Decision:
    return decide_all(objects, group, **{"node_allocatable": True, **kwargs})


def only(decision: Decision) -> MemberDecision:
    assert decision.status == "scheduled", decision.message
    [member] = decision.placed
    return member


def entry(name: str, *containers: str, **resources: str) -> Obj:
    return {"resourceClaimName": name, "containers": list(containers), "resources": resources}


AMOUNTS = [
    ("one device", mapped("gpu-0", memory="2Gi"), {}, {"memory": "2Gi"}),
    ("several resources", mapped("gpu-0", memory="2Gi", cpu="1500m"), {}, {"cpu": "1500m", "memory": "2Gi"}),
    ("a capacity", shared("gpu-0", 8, cpu=("cores", "2")), {"cores": "3"}, {"cpu": "6"}),
    ("a capacity and a fraction", shared("gpu-0", 8, cpu=("cores", "250m")), {"cores": "3"}, {"cpu": "750m"}),
    ("another capacity", shared("gpu-0", 8, cpu=("cores", "2"), memory="1Gi"), {"x": "1"}, {"memory": "1Gi"}),
    ("no multiplier", {"name": "gpu-0", "nodeAllocatableResourceMappings": {"cpu": {}}}, {}, {"cpu": "1"}),
    ("no mapping", {"name": "gpu-0"}, {}, {}),
]


@pytest.mark.parametrize(("what", "device", "consumed", "expected"), AMOUNTS, ids=lambda v: v if type(v) is str else "")
def test_allocation_maps_to_node_allocatable_amounts(what: str, device: Obj, consumed: Obj, expected: Obj) -> None:
    snapshot = SchedulerCache.of([resource_slice("a", [device])]).snapshot()
    given = allocation("a", "gpu-0")
    if consumed:
        given["devices"]["results"][0]["consumedCapacity"] = consumed
    found = mapped_amounts(snapshot.devices, "ns/c", given)
    assert {name: str(amount) for name, amount in found.items()} == expected


def test_capacity_missing_in_allocation_is_an_error() -> None:
    snapshot = SchedulerCache.of([resource_slice("a", [mapped("gpu-0", cpu=("cores", "1"))])]).snapshot()
    with pytest.raises(
        AllocationError, match="claim ns/c, device gpu-0: ConsumedCapacity is nil, but Capacity key 'cores'"
    ):
        mapped_amounts(snapshot.devices, "ns/c", allocation("a", "gpu-0"))
    objects = [device_class(), node("a"), resource_slice("a", [mapped("gpu-0", cpu=("cores", "1"))])]
    decision = run([*objects, claim("c"), user("p", "c")])
    assert (decision.status, decision.reasons[0].type) == ("error", "SelectorError")


def cards(name: str, count: int, cores: str = "8", **mappings: Any) -> list[Obj]:
    """A node with devices that all take the same of it."""
    return [node(name, cpu=cores), resource_slice(name, [mapped(f"gpu-{i}", **mappings) for i in range(count)])]


def test_mapped_amounts_are_added_to_pod_requests() -> None:
    objects = [device_class(), *cards("a", 2, memory="30Gi"), claim("c", 2)]
    member = only(run([*objects, user("p", "c")]))
    assert member.claimed == (entry("c", "main", memory="60Gi"),)
    full = user("p", "c")
    full["spec"]["containers"][0]["resources"]["requests"]["memory"] = "5Gi"
    decision = run([*objects, full])
    assert decision.message == "0/1 nodes are available: 1 Insufficient memory."
    reason = decision.members[0].reasons[0]
    assert decision.members[0].plugins == ("DynamicResources",)
    assert {k: reason.data[k] for k in ("requested", "used", "allocatable")} == {
        "requested": 65 * GI,
        "used": 0,
        "allocatable": 64 * GI,
    }


def test_gate_off_ignores_node_allocatable_mappings() -> None:
    objects = [device_class(), *cards("a", 2, memory="40Gi"), claim("c", 2), user("p", "c")]
    member = only(run(objects, node_allocatable=False))
    assert member.claimed == ()
    assert run(objects).status == "unschedulable"


def test_inventory_knows_whether_any_device_is_mapped() -> None:
    cluster = SchedulerCache.of([node("a"), resource_slice("a", 2)])
    assert not cluster.snapshot().devices.mapped
    cluster.apply(resource_slice("b", [mapped("gpu-0", cpu="1")]))
    assert cluster.snapshot().devices.mapped
    cluster.apply(resource_slice("b", 1))
    assert not cluster.snapshot().devices.mapped
    cluster.apply(resource_slice("b", [mapped("gpu-0", cpu="1")]))
    cluster.remove(resource_slice("b", 1))
    assert not cluster.snapshot().devices.mapped


def test_mapped_amounts_of_bound_pods_count_on_their_node() -> None:
    objects = [device_class(), *cards("a", 4, memory="30Gi"), claim("c"), user("p", "c")]
    there = user("there", "d", where="a")
    there["status"]["nodeAllocatableResourceClaimStatuses"] = [entry("d", "main", memory="40Gi")]
    held = allocated(claim("d"), allocation("a", "gpu-3"), there)
    assert run([*objects, there, held]).message == "0/1 nodes are available: 1 Insufficient memory."
    assert SchedulerCache.of([node("a"), there]).snapshot().nodes["a"].requested["memory"] == 40 * GI


def test_mapped_amounts_of_bound_pods_count_in_scores() -> None:
    """The larger node would be emptier, were it not for what the devices of its pod take."""
    busy = user("busy", "held", cpu="1", where="large")
    busy["status"]["nodeAllocatableResourceClaimStatuses"] = [entry("held", "main", cpu="5", memory="40Gi")]
    objects = [node("large", cpu="8"), node("small", cpu="4"), busy]
    assert only(run([*objects, pod("p", cpu="2")], only=[])).node == "small"


def test_assumed_pod_counts_with_mapped_amounts_until_watch_confirms() -> None:
    cluster = SchedulerCache.of([device_class(), *cards("a", 1, memory="40Gi"), claim("c"), user("p", "c")])
    decision = decide(cluster.snapshot(), [user("p", "c")], group=None, options=options(node_allocatable=True))
    member = only(decision)
    cluster.assume_pod(member.pod, "a", member.claimed)
    assert cluster.snapshot().nodes["a"].requested == {"cpu": 1000, "memory": 40 * GI}
    cluster.apply({**user("p", "c"), "status": {"phase": "Pending", "conditions": []}})
    assert cluster.snapshot().nodes["a"].requested["memory"] == 40 * GI
    cluster.forget_pod(member.pod)
    assert cluster.snapshot().nodes["a"].requested == {}
    cluster.assume_pod(member.pod, "a", member.claimed)
    bound = user("p", "c", where="a")
    bound["status"]["nodeAllocatableResourceClaimStatuses"] = list(member.claimed)
    cluster.apply(bound)
    assert cluster.snapshot().nodes["a"].requested["memory"] == 40 * GI


def test_mapped_amounts_of_earlier_attempt_are_replaced() -> None:
    work = user("p", "c")
    work["status"]["nodeAllocatableResourceClaimStatuses"] = [entry("c", "main", memory="50Gi")]
    member = only(run([device_class(), *cards("a", 1, memory="40Gi"), claim("c"), work]))
    assert member.claimed == (entry("c", "main", memory="40Gi"),)


def test_status_lists_claims_by_name_with_their_containers() -> None:
    containers = [
        {"name": "one", "resources": {"claims": [{"name": "b"}, {"name": "a"}]}},
        {"name": "two", "resources": {"claims": [{"name": "a", "request": "gpu"}]}},
    ]
    first = [{"name": "init", "resources": {"claims": [{"name": "b"}]}}]
    work = pod("p", claims=["b", "a", "plain"], containers=containers, initContainers=first)
    others = [resource_slice("a", [{"name": "x"}], pool="other")]
    objects = [device_class(), *cards("a", 2, cpu="2"), *others, claim("a"), claim("b"), claim("plain")]
    work["spec"]["containers"][0]["resources"]["claims"].append({"name": "plain"})
    member = only(run([*objects, work]))
    assert member.claimed == (entry("a", "one", "two", cpu="2"), entry("b", "init", "one", cpu="2"))


def test_mapped_claim_without_container_is_refused() -> None:
    decision = run([device_class(), *cards("a", 1, cpu="2"), claim("c"), pod("p", claims=["c"])])
    assert decision.message == (
        "0/1 nodes are available: 1 claim c: node-allocatable resource claim not referenced by any container within "
        "the pod."
    )
    assert decision.members[0].reasons[0].type == "ClaimUnreferenced"


LEVELS = [
    ("enough for both", {"memory": "50Gi"}, True),
    ("too little for both", {"memory": "32Gi"}, False),
    ("another resource", {"cpu": "4"}, True),
]


@pytest.mark.parametrize(("what", "level", "fits"), LEVELS, ids=lambda v: v if type(v) is str else "")
def test_pod_level_requests_must_cover_mapped_amounts(what: str, level: Obj, fits: bool) -> None:
    work = user("p", "c", resources={"requests": level})
    work["spec"]["containers"][0]["resources"]["requests"]["memory"] = "10Gi"
    objects = [device_class(), *cards("a", 1, memory="30Gi"), claim("c")]
    decision = run([*objects, work])
    assert (decision.status == "scheduled") == fits
    if fits:
        used = PodInfo.of(work).bound_to("a", only(decision).claimed).usage
        assert used["memory"] == (50 if "memory" in level else 40) * GI
    else:
        assert decision.message == (
            "0/1 nodes are available: 1 pod level request for memory is insufficient to cover the aggregated container "
            "and node-allocatable DRA requests."
        )


def test_mapped_amounts_of_allocated_claim_count() -> None:
    objects = [device_class(), *cards("a", 2, memory="30Gi"), *cards("b", 2, memory="30Gi")]
    held = allocated(claim("c"), allocation("a", "gpu-0"), user("p", "c"))
    assert only(run([*objects, held, user("p", "c")])).claimed == (entry("c", "main", memory="30Gi"),)
    full = user("full", where="a")
    full["spec"]["containers"][0]["resources"]["requests"]["memory"] = "40Gi"
    decision = run([*objects, held, full, user("p", "c")])
    assert sorted(r.message for r in decision.members[0].reasons) == [
        "Insufficient memory",
        "resourceclaim not available on the node",
    ]


def test_mapped_devices_are_refused_to_extended_resources() -> None:
    """No container names the claim, and kube-apiserver takes no entry for it in the status."""
    work = pod("p", containers=[{"name": "main", "resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}}}])
    objects = [device_class(extendedResourceName="example.com/gpu"), work]
    decision = run([*cards("a", 2, cpu="3"), *objects])
    assert decision.message.startswith(
        "0/1 nodes are available: 1 claim <extended-resources>: node-allocatable resource claim not referenced by any "
        "container within the pod."
    )
    assert decision.members[0].reasons[0].type == "ClaimUnreferenced"
    member = only(run([*cards("a", 2, cpu="3"), node("b"), resource_slice("b", 2), *objects]))
    assert (member.node, member.claimed) == ("b", ())
    assert member.allocations[0].new_claim is not None
    assert member.allocations[0].new_claim["metadata"]["annotations"] == {ANNOTATION: "true"}


def test_members_that_use_their_claims_in_other_containers_are_told_apart() -> None:
    """No container of the first uses its claim: that says nothing about the second."""
    objects = [device_class(), *cards("a", 2, cpu="1"), pod_group("g", 1), claim("c0"), claim("c1")]
    first, second = user("m0", "c0", group="g"), user("m1", "c1", group="g")
    del first["spec"]["containers"][0]["resources"]["claims"]
    member = only(run([*objects, first, second], "g"))
    assert (member.pod.name, member.claimed) == ("m1", (entry("c1", "main", cpu="1"),))
    wholes = [{**one, "spec": {**one["spec"], "resources": {"requests": {"cpu": "1"}}}} for one in (first, second)]
    refused = run([*objects, *wholes], "g").members
    assert [one.message for one in refused] == [
        "0/1 nodes are available: 1 claim c0: node-allocatable resource claim not referenced by any container within "
        "the pod. still not schedulable",
        "0/1 nodes are available: 1 pod level request for cpu is insufficient to cover the aggregated container and "
        "node-allocatable DRA requests. still not schedulable",
    ]


# -- sharing ---------------------------------------------------------------------------------------------------------


def test_mapped_claim_is_not_shared_between_pods() -> None:
    objects = [device_class(), *cards("a", 1, cpu="1")]
    there = user("there", "c", where="a")
    held = allocated(claim("c"), allocation("a", "gpu-0"), there)
    decision = run([*objects, held, there, user("p", "c")], only=[user("p", "c")])
    assert decision.message == (
        "0/1 nodes are available: node allocatable resource claim c is already used by another pod."
    )
    assert decision.members[0].reasons[0].type == "ClaimNotShareable"
    plain = [device_class(), node("a"), resource_slice("a", 1)]
    assert only(run([*plain, held, there, user("p", "c")], only=[user("p", "c")])).claimed == ()


def test_mapped_claim_is_not_shared_within_one_decision() -> None:
    objects = [device_class(), *cards("a", 1, cpu="1"), claim("c"), pod_group("g", 1)]
    members = [user(f"m{i}", "c", group="g") for i in range(3)]
    decision = run([*objects, *members], "g")
    assert len(decision.placed) == 1
    gang = [*objects[:-1], pod_group("g", 2), *members]
    assert run(gang, "g").status == "unschedulable"
    plain = [device_class(), node("a"), resource_slice("a", 1), claim("c"), pod_group("g", 2), *members]
    assert len(run(plain, "g").placed) == 3


def test_mapped_claim_of_group_is_not_shared_by_members() -> None:
    entry_of_group = {"name": "c", "resourceClaimName": "c"}
    objects = [device_class(), *cards("a", 1, cpu="1"), claim("c"), pod_group("g", 1, claims=[entry_of_group])]
    members = [user(f"m{i}", "c", group="g") for i in range(2)]
    assert len(run([*objects, *members], "g").placed) == 1
    held = claim("c")
    held["status"] = {
        "allocation": allocation("a", "gpu-0"),
        "reservedFor": [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-group-g"}],
    }
    assert len(run([*objects[:-2], held, objects[-1], *members], "g").placed) == 1
    running = user("there", "c", group="g", where="a")
    assert run([*objects[:-2], held, objects[-1], running, *members], "g").status == "unschedulable"


# -- gangs -----------------------------------------------------------------------------------------------------------


def own(name: str, group: str, count: int = 1, cpu: str = "1") -> list[Obj]:
    member = pod(name, cpu, group=group, claims=[("gpu", "t", f"{name}-gpu")])
    member["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return [member, claim(f"{name}-gpu", count, owner=member)]


GANGS = [
    ("the node's memory is for one", [cards("a", 4, memory="40Gi")], 2, 0),
    ("two nodes", [cards("a", 4, memory="40Gi"), cards("b", 4, memory="40Gi")], 2, 2),
    ("two on one node", [cards("a", 4, memory="30Gi"), cards("b", 4, memory="60Gi")], 3, 3),
    ("one too many", [cards("a", 4, memory="30Gi"), cards("b", 4, memory="60Gi")], 4, 0),
    ("no mapping", [[node("a"), resource_slice("a", 3)]], 3, 3),
]


@pytest.mark.parametrize(("what", "nodes", "size", "placed"), GANGS, ids=lambda v: v if type(v) is str else "")
def test_gang_fits_with_mapped_amounts(what: str, nodes: list[list[Obj]], size: int, placed: int) -> None:
    objects = [device_class(), *(o for part in nodes for o in part), pod_group("g", size)]
    work = [o for i in range(size) for o in own(f"m{i}", "g")]
    for seed in range(5):
        decision = run([*objects, *work], "g", seed=seed)
        assert len(decision.placed) == placed
        for member in decision.placed:
            assert bool(member.claimed) == (what != "no mapping")


def test_packing_counts_mapped_amounts() -> None:
    """The first member, greedily, would take the node on which the second alone finds enough memory."""
    objects = [device_class(), *cards("small", 1, memory="60Gi"), *cards("large", 2, memory="20Gi")]
    big = own("big", "g", 2)
    big[0]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "20Gi"
    little = own("little", "g", 1)
    little[0]["spec"]["priority"] = 1
    for seed in range(6):
        decision = run([*objects, pod_group("g", 2), *little, *big], "g", seed=seed)
        assert {m.pod.name: m.node for m in decision.placed} == {"little": "small", "big": "large"}


def test_consumed_shares_count_by_mapped_amounts() -> None:
    objects = [device_class(), node("a", cpu="6"), resource_slice("a", [shared("gpu-0", 100, cpu=("cores", "1"))])]
    works: list[Obj] = []
    for i, cores in enumerate(("2", "2")):
        member = user(f"m{i}", f"c{i}", cpu="1", group="g")
        works += [member, wanting_cores(f"c{i}", cores)]
    decision = run([*objects, pod_group("g", 2), *works], "g")
    assert [m.claimed[0]["resources"] for m in decision.placed] == [{"cpu": "2"}, {"cpu": "2"}]
    more = [user("m2", "c2", cpu="1", group="g"), wanting_cores("c2", "1")]
    assert run([*objects, pod_group("g", 3), *works, *more], "g").status == "unschedulable"


def test_search_skips_devices_with_too_large_mapped_amounts() -> None:
    """The first member could leave the second its device only by taking one for which no node has the memory."""

    wanted: Obj = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    wanted["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].size == "small"'}}]

    def gang(memory: str) -> Decision:
        sizes = {"small": "1Gi", "large": memory}
        listed = [{**mapped(s, memory=m), "attributes": {"size": {"string": s}}} for s, m in sizes.items()]
        fabric = resource_slice("", listed, pool="fabric", allNodes=True)
        first, second = own("m0", "g"), own("m1", "g")
        first[0]["spec"]["priority"] = 1
        second[1]["spec"]["devices"]["requests"] = [{"name": "gpu", "exactly": wanted}]
        return run([device_class(), node("a"), node("b"), fabric, pod_group("g", 2), *first, *second], "g")

    assert gang("60Gi").status == "scheduled"
    assert gang("65Gi").status == "unschedulable"
