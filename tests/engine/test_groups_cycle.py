"""The PodGroup cycle as a table: a cluster, work, the expected end (KEP-4671 and the scheduler's own messages)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from engine_objects import (
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

from haru.engine.podgroup import decide, pre_enqueue
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision


def gpu_nodes(*devices: int) -> list[Obj]:
    found: list[Obj] = [device_class()]
    for i, count in enumerate(devices):
        found += [node(f"n{i}"), resource_slice(f"n{i}", count)]
    return found


def members(group: str, how_many: int, **kwargs: Any) -> list[Obj]:
    return [o for i in range(how_many) for o in member_with_claim(f"{group}-{i}", group, **kwargs)]


@dataclass
class Case:
    name: str
    objects: list[Obj]
    status: str
    placed: int = 0
    message: str = ""
    messages: dict[str, str] = field(default_factory=dict)


TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
CASES = [
    Case("a gang takes whole nodes", [*gpu_nodes(8, 8), pod_group("g", 2), *members("g", 2, count=8)], "scheduled", 2),
    Case(
        "all or nothing",
        [*gpu_nodes(8), pod_group("g", 2), *members("g", 2, count=8)],
        "unschedulable",
        message="pod group is unschedulable",
        messages={
            "g-0": "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
            "one or more plugins asked to wait and no plugin rejected pod",
            "g-1": "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable",
        },
    ),
    Case("extras stay pending", [*gpu_nodes(8, 8, 8), pod_group("g", 2), *members("g", 4, count=8)], "scheduled", 3),
    Case("basic binds what fits", [*gpu_nodes(8), pod_group("g", None), *members("g", 3, count=8)], "scheduled", 1),
    Case(
        "basic fails if nobody fits",
        [*gpu_nodes(4), pod_group("g", None), *members("g", 2, count=8)],
        "unschedulable",
        message="pod group is unschedulable",
    ),
    Case(
        "claims of the members get distinct devices",
        [*gpu_nodes(8), pod_group("g", 4), *members("g", 4, count=2)],
        "scheduled",
        4,
    ),
    Case(
        "held: the group is missing",
        [*gpu_nodes(8), *members("g", 1)],
        "unschedulable",
        message='waiting for pods\'s pod group "g" to appear in scheduling queue',
    ),
    Case(
        "held: too few members",
        [*gpu_nodes(8), pod_group("g", 3), *members("g", 2)],
        "unschedulable",
        message="waiting for minCount pods from a gang to appear in scheduling queue",
    ),
    Case(
        "schedulers differ",
        [
            *gpu_nodes(8),
            pod_group("g", 2),
            pod("a", group="g"),
            pod("b", group="g", schedulerName="other"),
        ],
        "error",
        message="all pods in a single pod group should have the same .spec.schedulerName set, "
        'got: "default-scheduler" and "other"',
    ),
    Case(
        "a replacement binds alone beside running siblings",
        [
            *gpu_nodes(8, 8),
            pod_group("g", 3),
            pod("r0", group="g", node="n0"),
            pod("r1", group="g", node="n0"),
            *member_with_claim("new", "g", 8),
        ],
        "scheduled",
        1,
    ),
    Case(
        "finished members do not count",
        [
            *gpu_nodes(8),
            pod_group("g", 2),
            {**pod("done", group="g", node="n0"), "status": {"phase": "Succeeded"}},
            *members("g", 1),
        ],
        "unschedulable",
        message="waiting for minCount pods from a gang to appear in scheduling queue",
    ),
    Case(
        "an ordinary pod is told why",
        [node("a", cpu="1"), node("b", taints=[TAINT]), node("c", unschedulable=True), pod("p", cpu="2")],
        "unschedulable",
        message="0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable.",
    ),
    Case("no nodes", [pod("p")], "unschedulable", message="no nodes available to schedule pods"),
    Case(
        "a claim that does not exist",
        [node("a"), pod("p", claims=["c"])],
        "unschedulable",
        message='0/1 nodes are available: resourceclaim.resource.k8s.io "c" not found.',
    ),
    Case(
        "a claim that is not created yet",
        [node("a"), pod("p", claims=[("gpu", "t", "")])],
        "unschedulable",
        message='0/1 nodes are available: pod "default/p": ResourceClaim not created yet.',
    ),
    Case(
        "a claim of somebody else",
        [node("a"), claim("c", owner=pod("q")), pod("p", claims=[("gpu", "t", "c")])],
        "unschedulable",
        message="0/1 nodes are available: "
        "ResourceClaim default/c was not created for Pod default/p (Pod is not owner).",
    ),
    Case(
        "a class that does not exist",
        [node("a"), claim("c"), pod("p", claims=["c"])],
        "unschedulable",
        message="0/1 nodes are available: request gpu: device class gpu does not exist.",
    ),
    Case(
        "an allocated claim ties its users to its node",
        [*gpu_nodes(2, 2), allocated(claim("c"), allocation("n1", "gpu-0"), pod("o")), pod("p", claims=["c"])],
        "scheduled",
        1,
    ),
    Case(
        "an allocated claim on a full node",
        [
            *gpu_nodes(2, 2),
            allocated(claim("c"), allocation("n1", "gpu-0"), pod("o")),
            pod("o", cpu="8", node="n1"),
            pod("p", claims=["c"]),
        ],
        "unschedulable",
        message="0/2 nodes are available: 1 Insufficient cpu, 1 resourceclaim not available on the node.",
    ),
    Case(
        "an unbound volume claim",
        [
            node("a"),
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "v", "namespace": "default"},
                "spec": {},
            },
            pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]),
        ],
        "unschedulable",
        message="0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_podgroup_cycle_has_expected_status_and_placements(case: Case) -> None:
    decision = run_case(case)
    assert decision.status == case.status
    assert len(decision.placed) == case.placed
    assert decision.message == case.message
    for member in decision.members:
        assert member.message == case.messages.get(member.pod.name, member.message)
    devices = [
        (r["pool"], r["device"])
        for m in decision.placed
        for a in m.allocations
        for r in a.allocation["devices"]["results"]
    ]
    assert len(devices) == len(set(devices))


def run_case(case: Case, **kwargs: Any) -> Decision:
    group = next((o["metadata"]["name"] for o in case.objects if o["kind"] == "PodGroup"), "")
    if not group and any(o["kind"] == "Pod" and "schedulingGroup" in o["spec"] for o in case.objects):
        group = "g"
    return run(case.objects, group, **kwargs)


def run(objects: list[Obj], group: str, **kwargs: Any) -> Decision:
    cluster = SchedulerCache.of(objects)
    snapshot = cluster.snapshot()
    pods = [o for o in objects if o["kind"] == "Pod"]
    named = snapshot.pod_groups.get(f"default/{group}")
    if group and named is None:
        named = {"metadata": {"name": group, "namespace": "default"}, "spec": {}}
    decision: Decision = decide(snapshot, pods, group=named, options=options(**kwargs))
    return decision


def test_members_are_ordered_by_priority_then_input_order() -> None:
    objects = [*gpu_nodes(1), pod_group("g", None)]
    for name, priority in (("a", 0), ("b", 5), ("c", 10), ("d", 10)):
        objects += member_with_claim(name, "g", priority=priority)
    decision = run(objects, "g")
    assert [m.pod.name for m in decision.members] == ["c", "d", "b", "a"]
    assert [m.pod.name for m in decision.placed] == ["c"]


def test_failed_gang_leaves_resources_to_others() -> None:
    objects = [*gpu_nodes(8, 8), pod_group("a", 3), *members("a", 3, count=8), pod_group("b", 2)]
    objects += members("b", 2, count=8)
    snapshot = SchedulerCache.of(objects).snapshot()
    for name, status in (("a", "unschedulable"), ("b", "scheduled")):
        group = snapshot.pod_groups[f"default/{name}"]
        own = [o for o in objects if o["kind"] == "Pod" and o["spec"]["schedulingGroup"]["podGroupName"] == name]
        assert decide(snapshot, own, group=group, options=options()).status == status


def test_one_of_two_gangs_is_placed_whole_and_none_half() -> None:
    base = [*gpu_nodes(8, 8, 8)]
    for name in "ab":
        base += [pod_group(name, 2), *members(name, 2, count=8)]
    for seed in range(20):
        cluster = SchedulerCache.of(base)
        ends = []
        for name in "ab":
            snapshot = cluster.snapshot()
            own = [o for o in base if o["kind"] == "Pod" and o["spec"]["schedulingGroup"]["podGroupName"] == name]
            decision = decide(snapshot, own, group=snapshot.pod_groups[f"default/{name}"], options=options(seed=seed))
            ends.append(len(decision.placed))
            for member in decision.placed:
                cluster.assume_pod(member.pod, member.node or "")
                for given in member.allocations:
                    held = snapshot.claims[given.path]
                    cluster.assume_claim({**held, "status": {"allocation": given.allocation}})
        assert ends == [2, 0]


def test_shared_claim_is_allocated_once_and_reserved_for_group() -> None:
    shared = {"name": "gpu", "resourceClaimName": "gpu"}
    objects = [*gpu_nodes(1, 1), pod_group("g", 3, claims=[shared]), claim("gpu")]
    objects += [pod(f"p{i}", group="g", claims=["gpu"]) for i in range(3)]
    decision = run(objects, "g")
    assert decision.status == "scheduled"
    assert len({m.node for m in decision.placed}) == 1
    given = [a for m in decision.placed for a in m.allocations]
    joined = [r for m in decision.placed for r in m.reservations]
    assert [len(given), len(joined)] == [1, 2]
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-group-g"}
    assert all(entry.reserve_for == consumer for entry in (*given, *joined))


def test_claim_in_other_form_than_group_entry_belongs_to_pod() -> None:
    shared = {"name": "gpu", "resourceClaimTemplateName": "one"}
    objects = [*gpu_nodes(2), pod_group("g", 1, claims=[shared])]
    made = member_with_claim("p", "g")
    decision = run([*objects, *made], "g")
    (given,) = decision.placed[0].allocations
    assert given.reserve_for == {"resource": "pods", "name": "p", "uid": "uid-p"}


def test_shared_claim_is_allocated_where_enough_members_fit() -> None:
    """The greedy first choice would pin the gang to a node with room for one."""
    objects: list[Obj] = [device_class(), pod_group("g", 3), claim("gpu")]
    for name, cpu in (("n0", "1"), ("n1", "3"), ("n2", "1")):
        objects += [node(name, cpu=cpu), resource_slice(name, 1)]
    objects += [pod(f"p{i}", group="g", claims=["gpu"]) for i in range(3)]
    decision = run(objects, "g")
    assert {m.node for m in decision.placed} == {"n1"}
    assert len(decision.placed) == 3


def test_small_member_does_not_take_the_place_of_a_large_one() -> None:
    """The small member comes first and, greedily, would break up the only whole node."""
    objects: list[Obj] = [device_class(), pod_group("g", 2)]
    objects += [node("whole"), resource_slice("whole", 8), node("part"), resource_slice("part", 1)]
    for seed in range(8):
        work = [*member_with_claim("small", "g", 1, priority=1), *member_with_claim("big", "g", 8)]
        decision = run([*objects, *work], "g", seed=seed)
        assert decision.status == "scheduled"
        assert {m.pod.name: m.node for m in decision.placed} == {"small": "part", "big": "whole"}


def test_exhausted_placement_budget_is_an_error() -> None:
    objects: list[Obj] = [device_class(), pod_group("g", 2)]
    for i in range(6):
        objects += [node(f"n{i}", cpu=str(i + 2)), resource_slice(f"n{i}", 1 + i % 2)]
    work = [*member_with_claim("a", "g", 2), *member_with_claim("b", "g", 3)]
    assert run([*objects, *work], "g").status == "unschedulable"
    decision = run([*objects, *work], "g", placement_budget=2)
    assert decision.status == "error"
    assert decision.reasons[0].type == "GaveUp"


def test_same_seed_gives_same_decision() -> None:
    objects = [*gpu_nodes(8, 8, 8, 8), pod_group("g", 2), *members("g", 2, count=3)]
    assert run(objects, "g", seed=7) == run(objects, "g", seed=7)
    assert len({tuple(m.node for m in run(objects, "g", seed=s).placed) for s in range(20)}) > 1


def test_topology_constraint_keeps_group_in_one_domain() -> None:
    objects: list[Obj] = [device_class()]
    for i, rack in enumerate("aabbb"):
        objects += [node(f"n{i}", labels={"rack": rack}), resource_slice(f"n{i}", 8)]
    topology = {"topology": [{"key": "rack"}]}
    fits = [pod_group("g", 3, schedulingConstraints=topology), *members("g", 3, count=8)]
    decision = run([*objects, *fits], "g")
    assert {m.node for m in decision.placed} == {"n2", "n3", "n4"}
    fails = [pod_group("g", 4, schedulingConstraints=topology), *members("g", 4, count=8)]
    decision = run([*objects, *fails], "g")
    assert (decision.status, decision.reasons[0].type) == ("unschedulable", "TopologyDomain")
    assert decision.message.startswith("0/2 placements are available, first placement status: ")


def test_gang_scheduling_off_treats_gang_as_basic_group() -> None:
    objects = [*gpu_nodes(8), pod_group("g", 2), *members("g", 2, count=8)]
    assert len(run(objects, "g", gang_scheduling=False).placed) == 1


def test_claim_in_flight_makes_other_pods_wait() -> None:
    objects = [*gpu_nodes(2), claim("c"), pod("p", claims=["c"])]
    cluster = SchedulerCache.of(objects)
    cluster.assume_claim(allocated(claim("c"), allocation("n0", "gpu-0"), pod("other")))
    decision = decide(cluster.snapshot(), [objects[-1]], group=None, options=options())
    assert decision.reasons[0].type == "ClaimInFlight"
    assert "resource claim default/c is in the process of being allocated" in decision.message


HOLDS = [
    (pod("p"), None),
    (pod("p", schedulingGates=[{"name": "x"}]), "Gated"),
    (pod("p", group="none"), "PodGroupMissing"),
    (pod("p", group="small"), "TooFewMembers"),
    (pod("p", group="basic"), None),
    (pod("p", claims=["c"]), "ClaimMissing"),
    (pod("p", claims=[("gpu", "t", "")]), "ClaimNotCreated"),
]


@pytest.mark.parametrize(("work", "expected"), HOLDS, ids=lambda v: str(v)[:40])
def test_pre_enqueue_gates_incomplete_groups(work: Obj, expected: str | None) -> None:
    objects = [node("a"), pod_group("small", 2), pod_group("basic", None), work]
    reason = pre_enqueue(SchedulerCache.of(objects).snapshot(), work)
    assert (reason.type if reason else None) == expected


@pytest.mark.parametrize(
    ("group", "gate", "expected"),
    [
        ("small", "GenericWorkload", "GangSchedulingOff"),
        ("basic", "GenericWorkload", "GangSchedulingOff"),
        ("none", "GenericWorkload", "GangSchedulingOff"),
        ("small", "GangScheduling", "GangSchedulingOff"),
        ("none", "GangScheduling", "GangSchedulingOff"),
        ("basic", "GangScheduling", None),
        ("", "GenericWorkload", None),
    ],
)
def test_members_are_gated_while_gang_feature_is_off(group: str, gate: str, expected: str | None) -> None:
    work = pod("p", group=group)
    snapshot = SchedulerCache.of([node("a"), pod_group("small", 2), pod_group("basic", None), work]).snapshot()
    reason = pre_enqueue(snapshot, work, gang_scheduling=False, gate_off=gate)
    assert (reason.type if reason else None) == expected


def test_claim_entry_without_object_is_ignored() -> None:
    work = pod("p", claims=[("gpu", "t", "")])
    work["status"]["resourceClaimStatuses"] = [{"name": "gpu"}]
    decision: Decision = decide_all([node("a"), work])
    assert decision.status == "scheduled"


def test_claim_with_256_consumers_refuses_another() -> None:
    users = [pod(f"u{i}") for i in range(256)]
    objects = [*gpu_nodes(1), allocated(claim("c"), allocation("n0", "gpu-0"), *users), pod("p", claims=["c"])]
    decision: Decision = decide_all(objects)
    assert decision.reasons[0].type == "ClaimReservedFull"


def test_bound_members_are_skipped() -> None:
    objects = [*gpu_nodes(8), pod_group("g", 1), *members("g", 1)]
    cluster = SchedulerCache.of(objects)
    member = next(o for o in objects if o["kind"] == "Pod")
    first = decide(cluster.snapshot(), [member], group=objects[3], options=options())
    cluster.assume_pod(first.placed[0].pod, "n0")
    again = decide(cluster.snapshot(), [member], group=objects[3], options=options())
    assert (again.members, again.status) == ((), "unschedulable")


def test_options_are_immutable_and_replaceable() -> None:
    assert replace(options(), seed=3).seed == 3


def test_members_with_pod_affinity_to_each_other_are_placed() -> None:
    """The first member by priority wants to be with the second, which greedily comes too late."""
    term = {"labelSelector": {"matchLabels": {"app": "leader"}}, "topologyKey": "kubernetes.io/hostname"}
    company = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    objects = [node("a"), node("b", cpu="1"), pod_group("g", 2)]
    objects += [pod("follower", group="g", priority=5, affinity=company), pod("leader", group="g")]
    for seed in range(5):
        decision = run(objects, "g", seed=seed)
        assert {m.node for m in decision.placed} == {"a"}
        assert len(decision.placed) == 2


def test_members_with_topology_spread_use_all_domains() -> None:
    rule = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"team": "x"}},
    }
    objects = [node(f"n{i}", cpu="2", labels={"zone": f"z{i % 2}"}) for i in range(4)]
    objects.append(pod_group("g", 4))
    for i in range(4):
        made = pod(f"m{i}", cpu="2", group="g", topologySpreadConstraints=[rule])
        made["metadata"]["labels"]["team"] = "x"
        objects.append(made)
    decision = run(objects, "g")
    assert sorted(m.node or "" for m in decision.placed) == ["n0", "n1", "n2", "n3"]


def test_device_visible_from_several_nodes_is_allocated_once() -> None:
    objects: list[Obj] = [device_class(), pod_group("g", 2)]
    objects += [node("n0", cpu="1"), node("n1", cpu="1"), resource_slice("", 2, pool="fabric", allNodes=True)]
    work = members("g", 2)
    decision = run([*objects, *work], "g")
    devices = [a.allocation["devices"]["results"][0]["device"] for m in decision.placed for a in m.allocations]
    assert sorted(devices) == ["gpu-0", "gpu-1"]
    more = [*objects[:1], pod_group("g", 3), *objects[2:], node("n2"), *members("g", 3)]
    assert run(more, "g").status == "unschedulable"
