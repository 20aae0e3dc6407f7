"""Preemption as kube-scheduler 1.36 describes it, and where Haru goes further: devices, topology, whole groups."""

from __future__ import annotations

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

from haru.engine.framework import DEFAULT_PROFILE
from haru.engine.podgroup import decide
from haru.engine.preemption import podgroup_preemption
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision, PodKey

BOTH = {"preempt_for_pods": True, "preempt_for_groups": True}


def running(name: str, on: str, priority: int = 0, cpu: str = "4", started: str = "10:00", **more: Any) -> Obj:
    labels = more.pop("labels", None)
    made = pod(name, cpu=cpu, node=on, priority=priority, **more)
    made["status"]["startTime"] = f"2026-01-01T{started}:00Z"
    if labels is not None:
        made["metadata"]["labels"] = labels
    return made


def budget(name: str, allowed: int, selector: Obj, **status: Any) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def whole(name: str, priority: int = 0) -> Obj:
    return pod_group(name, 1, priority=priority, disruptionMode="PodGroup")


def ask(objects: list[Obj], name: str = "p", **more: Any) -> Decision:
    """What becomes of the pod `p`, or of the group of that name if there is one."""
    if any(o["kind"] == "PodGroup" and o["metadata"]["name"] == name for o in objects):
        waiting = [o for o in objects if o["kind"] == "Pod" and not o["spec"].get("nodeName")]
        members = [o for o in waiting if (o["spec"].get("schedulingGroup") or {}).get("podGroupName") == name]
        return decide_all(objects, name, members, **{**BOTH, **more})
    return decide_all(objects, only=[o for o in objects if o["metadata"]["name"] == name], **{**BOTH, **more})


def evicted(decision: Decision) -> list[str]:
    return sorted(eviction.pod.name for eviction in decision.evictions)


def gang(name: str, members: int, minimum: int, priority: int = 1000, cpu: str = "8", **spec: Any) -> list[Obj]:
    group = pod_group(name, minimum, priority=priority, **spec)
    return [group, *(pod(f"{name}-{i}", cpu=cpu, group=name, priority=priority) for i in range(members))]


# -- single pods ------------------------------------------------------------------------------------------------------

A1 = [
    node("n1"),
    node("n2"),
    node("n3"),
    running("a", "n1", 50),
    running("b", "n1", 10, started="10:05", labels={"app": "guarded"}),
    running("c", "n2", 20, "2", "09:00"),
    running("d", "n2", 20, "2", "11:00"),
    running("e", "n2", 90, started="08:00"),
    running("f", "n3", 100, "8"),
    budget("pdb", 0, {"matchLabels": {"app": "guarded"}}),
]


def test_disruption_budget_example_evicts_two_low_priority_pods() -> None:
    """Two unimportant pods die rather than one important one; the guarded one is spared first, on its node."""
    decision = ask([*A1, pod("p", cpu="4", priority=100)])
    assert (decision.status, decision.members[0].node, evicted(decision)) == ("nominated", "n2", ["c", "d"])
    alone = [o for o in A1 if o["metadata"]["name"] not in ("n2", "c", "d", "e")]
    assert evicted(ask([*alone, pod("p", cpu="4", priority=100)])) == ["a"]


@pytest.mark.parametrize(
    ("objects", "victims"),
    [
        ([running("early", "a", started="09:00"), running("late", "b", started="12:00")], ["late"]),
        ([running("dear", "a", 50), running("cheap", "b", 10)], ["cheap"]),
        ([running("dear", "a", 10), running("x", "b", 5, "2"), running("y", "b", 5, "2")], ["x", "y"]),
        ([running("one", "a", 5), running("x", "b", 5, "2"), running("y", "b", 5, "2")], ["one"]),
        ([running("one", "a", -5), running("x", "b", -5, "2"), running("y", "b", -5, "2")], ["one"]),
        (
            [
                running("x", "a", 1, labels={"app": "g"}),
                running("y", "b", 9),
                budget("g", 0, {"matchLabels": {"app": "g"}}),
            ],
            ["y"],
        ),
    ],
    ids=["start time", "highest priority", "priority before number", "sum", "sum of negative ones", "budget first"],
)
def test_node_is_chosen_by_its_victims(objects: list[Obj], victims: list[str]) -> None:
    decision = ask([node("a", cpu="4"), node("b", cpu="4"), *objects, pod("p", cpu="4", priority=100)])
    assert evicted(decision) == victims


def test_fewest_and_least_important_pods_are_evicted() -> None:
    three = [running(f"r{i}", "a", i, "2") for i in range(3)]
    decision = ask([node("a", cpu="6"), *three, pod("p", cpu="2", priority=9)])
    assert evicted(decision) == ["r0"]
    assert [e.node for e in decision.evictions] == ["a"]


def test_pod_of_equal_priority_is_not_evicted() -> None:
    decision = ask([node("a", cpu="4"), running("r", "a", 9), pod("p", cpu="4", priority=9)])
    assert decision.status == "unschedulable"
    assert decision.message == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert decision.members[0].message == decision.message


def test_nothing_is_said_of_preemption_where_there_are_no_nodes() -> None:
    assert ask([pod("p", priority=10)]).message == "no nodes available to schedule pods"


def test_message_counts_preemption_results_per_node() -> None:
    """Filter summary, then what preemption says: not helpful, no victims, or what is still in the way."""
    taint = [{"key": "k", "effect": "NoSchedule"}]
    objects = [
        node("a", taints=taint),
        running("r", "a", 0),
        node("b", cpu="4"),
        running("s", "b", 50),
        node("c", cpu="4"),
        running("t", "c", 50),
        node("d", cpu="4"),
        running("u", "d", 0, "1"),
        running("v", "d", 50, "2"),
    ]
    assert ask([*objects, pod("p", cpu="4", priority=10)]).message == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/4 nodes are available: 1 Insufficient cpu, 1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )


@pytest.mark.parametrize(("nodes", "told"), [(1, "node(s) didn't match pod affinity rules"), (21, "Insufficient cpu")])
def test_message_says_what_refuses_the_pod_after_all_evictions_on_up_to_twenty_nodes(nodes: int, told: str) -> None:
    """The pod's only friends are those whom it would have to evict."""
    names = [f"n{i}" for i in range(nodes)]
    friends = [running(f"r-{name}", name, 0, "4", labels={"app": "friend"}) for name in names]
    term = {"labelSelector": {"matchLabels": {"app": "friend"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    waiting = pod("p", cpu="4", priority=9, affinity=affinity)
    decision = ask([*(node(name, cpu="4") for name in names), *friends, waiting])
    assert decision.message.endswith(f"preemption: 0/{nodes} nodes are available: {nodes} {told}.")


def test_node_that_can_never_fit_has_no_victims() -> None:
    taint = [{"key": "k", "effect": "NoSchedule"}]
    decision = ask([node("a", cpu="4", taints=taint), running("r", "a"), pod("p", cpu="4", priority=9)])
    assert not decision.evictions
    assert decision.message.endswith("0/1 nodes are available: 1 Preemption is not helpful for scheduling.")


def test_preemption_policy_never_is_not_eligible() -> None:
    waiting = pod("p", cpu="4", priority=9, preemptionPolicy="Never")
    decision = ask([node("a", cpu="4"), running("r", "a"), waiting])
    assert (decision.status, decision.evictions) == ("unschedulable", ())
    assert decision.message == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: not eligible due to preemptionPolicy=Never."
    )


def test_preemption_gates_of_pods_and_groups_are_independent() -> None:
    objects = [node("a", cpu="4"), running("r", "a"), pod("p", cpu="4", priority=9)]
    assert ask(objects, preempt_for_pods=False).message == "0/1 nodes are available: 1 Insufficient cpu."
    work = [node("a"), running("r", "a", cpu="8"), *gang("g", 1, 1)]
    assert ask(work, "g", preempt_for_groups=False).status == "unschedulable"
    assert evicted(ask(work, "g", preempt_for_pods=False)) == ["r"]


@pytest.mark.parametrize(("claims", "words"), [([], "no new claims to deallocate"), (["c"], "still not schedulable")])
def test_profile_without_preemption_tells_of_claims_alone(claims: list[str], words: str) -> None:
    uses = [{"name": name, "resourceClaimName": name} for name in claims]
    waiting = pod("p", cpu="4", priority=9, resourceClaims=uses)
    objects = [node("a", cpu="4"), running("r", "a"), device_class("gpu"), claim("c"), waiting]
    without = {"profile": replace(DEFAULT_PROFILE, preemption=False), "preempt_for_pods": False}
    assert ask(objects, **without).message == f"0/1 nodes are available: 1 Insufficient cpu. {words}"


def test_single_pod_evicts_whole_pod_group_by_disruption_mode() -> None:
    """1.36 evicts the one pod that is in the way and leaves half a group; Haru evicts the group, on every node."""
    objects = [node("a", cpu="4"), node("b", cpu="4"), whole("w")]
    objects += [running("w-0", "a", group="w"), running("w-1", "b", group="w")]
    decision = ask([*objects, pod("p", cpu="4", priority=9)])
    assert evicted(decision) == ["w-0", "w-1"]
    assert {e.unit.name for e in decision.evictions if e.unit} == {"w"}
    assert {e.node for e in decision.evictions} == {"a", "b"}


@pytest.mark.parametrize("more", [[], [node("c"), running("r", "c", cpu="6")]])
def test_place_promised_to_half_a_gang_is_free_once_the_other_half_is_evicted(more: list[Obj]) -> None:
    """Of `w` one member runs and one is to follow, as after a crash: its place binds all, but only beside the first.

    Where members may go one by one nobody is evicted until the gang is whole.
    """
    promised = pod("w-1", cpu="6", group="w")
    promised["status"]["nominatedNodeName"] = "b"
    together = pod_group("w", 2, disruptionMode="PodGroup")
    objects = [node("a"), node("b"), together, running("w-0", "a", cpu="6", group="w"), promised, *more]
    decision = ask([*objects, *gang("g", 2, 2, cpu="6")], "g")
    assert evicted(decision) == ["w-0"]
    assert {member.node for member in decision.nominated} == {"a", "b"}
    alone = ask([*objects, pod("p", cpu="6", priority=9, nodeSelector={"kubernetes.io/hostname": "b"})])
    assert (evicted(alone), alone.nominated[0].node) == (["w-0"], "b")
    objects[2] = pod_group("w", 2)
    assert not ask([*objects[:5], *gang("g", 2, 2, cpu="6")], "g").evictions


@pytest.mark.parametrize(("members", "status"), [(2, "scheduled"), (3, "unschedulable")])
def test_place_is_kept_from_who_is_more_important_only_while_the_gang_can_be_whole(members: int, status: str) -> None:
    """Of three members one runs, one is promised a place, and the third may be gone for good."""
    promised = pod("w-1", cpu="6", group="w")
    promised["status"]["nominatedNodeName"] = "b"
    last = [pod("w-2", cpu="6", group="w")][: members - 2]
    objects = [node("a"), node("b"), pod_group("w", 3), running("w-0", "a", cpu="6", group="w"), promised, *last]
    asked = {"cpu": "6", "nodeSelector": {"kubernetes.io/hostname": "b"}}
    assert ask([*objects, pod("p", priority=9, **asked)]).status == status
    assert ask([*objects, pod("p", **asked)]).status == "unschedulable"


def test_claim_of_a_promised_member_stays_with_it() -> None:
    """The member is not evicted with the others: until it is refused, its device is its own."""
    first, second = member_with_claim("w-0", "w", node="a"), member_with_claim("w-1", "w")
    held = [allocated(objs[1], allocation(at, "gpu-0"), objs[0]) for objs, at in ((first, "a"), (second, "b"))]
    objects = [node("a"), node("b"), resource_slice("a", 1), resource_slice("b", 1), device_class()]
    objects += [pod_group("w", 2, disruptionMode="PodGroup"), first[0], second[0], *held]
    wanting = pod("p", claims=["c"], priority=9)
    assert evicted(ask([*objects, wanting, claim("c")])) == ["w-0"]
    on_b = {**wanting, "spec": {**wanting["spec"], "nodeSelector": {"kubernetes.io/hostname": "b"}}}
    assert not ask([*objects, on_b, claim("c")]).evictions


def test_gang_halved_by_an_eviction_keeps_no_place_from_who_is_more_important() -> None:
    """`w` ran with two of three; `w-0` was evicted, so that `w-1` runs alone, and `w-2` need not follow."""
    promised = pod("w-2", cpu="6", group="w")
    promised["status"]["nominatedNodeName"] = "b"
    lost = running("w-0", "a", cpu="6", group="w")
    lost["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    lost["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    preemptor = pod("p", cpu="6", priority=9, nodeSelector={"kubernetes.io/hostname": "b"})
    objects = [node("a"), node("b"), node("c"), pod_group("w", 2), lost, running("w-1", "c", cpu="6", group="w")]
    cluster = SchedulerCache.of([*objects, promised, preemptor])

    def status(asking: Obj) -> str:
        return decide(cluster.snapshot(), [asking], group=None, options=options()).status

    assert status(preemptor) == "scheduled"  # the gang has its quorum
    cluster.remove(lost)
    assert status(preemptor) == "scheduled"
    assert status({**preemptor, "spec": {**preemptor["spec"], "priority": 0}}) == "unschedulable"
    cluster.apply(running("w-0", "a", cpu="6", group="w"))
    cluster.remove(objects[-1])
    assert status(preemptor) == "unschedulable"  # what was evicted is replaced


def test_priority_of_group_protects_its_pods() -> None:
    """In 1.36 a single pod goes by the pod's own priority, and breaks a gang that is more important than itself."""
    objects = [node("a", cpu="4"), pod_group("w", 1, priority=1000), running("w-0", "a", 0, group="w")]
    assert not ask([*objects, pod("p", cpu="4", priority=500)]).evictions
    assert not ask([*objects, *gang("g", 1, 1, 500, "4")], "g").evictions
    assert evicted(ask([*objects, *gang("g", 1, 1, 2000, "4")], "g")) == ["w-0"]


def test_pod_holding_needed_device_is_evicted() -> None:
    """cpu is plenty; the pod that holds the device goes, not the cheaper one that holds none."""
    held = running("holder", "a", 5, "1", claims=["held"])
    objects = [device_class(), node("a"), resource_slice("a", 1), held, running("cheap", "a", 1, "1")]
    objects += [allocated(claim("held"), allocation("a", "gpu-0"), held)]
    decision = ask([*objects, pod("p", claims=["mine"], priority=9), claim("mine")])
    assert evicted(decision) == ["holder"]
    [given] = decision.members[0].allocations
    assert [r["device"] for r in given.allocation["devices"]["results"]] == ["gpu-0"]


def test_holder_of_shared_fabric_device_is_evicted_on_its_node() -> None:
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
    fabric = resource_slice("", [{"name": "switch"}], pool="rack", nodeSelector={"nodeSelectorTerms": [term]})
    held = running("holder", "n0", 5, "1", claims=["held"])
    to = {**allocation("n0", "switch", pool="rack"), "nodeSelector": {"nodeSelectorTerms": [term]}}
    objects = [
        device_class(),
        node("n0", cpu="2", labels={"rack": "a"}),
        node("n1", labels={"rack": "a"}),
        fabric,
        held,
    ]
    objects += [allocated(claim("held"), to, held)]
    decision = ask([*objects, pod("p", cpu="4", claims=["mine"], priority=9), claim("mine")])
    assert (evicted(decision), decision.members[0].node) == (["holder"], "n1")


def test_claim_with_remaining_consumer_is_not_freed() -> None:
    one, two = running("low", "a", 1, "1", claims=["shared"]), running("high", "a", 50, "1", claims=["shared"])
    objects = [device_class(), node("a"), resource_slice("a", 1), one, two]
    objects += [allocated(claim("shared"), allocation("a", "gpu-0"), one, two)]
    decision = ask([*objects, pod("p", claims=["mine"], priority=9), claim("mine")])
    assert not decision.evictions
    assert decision.message == (
        "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: "
        "0/1 nodes are available: 1 cannot allocate all claims."
    )


def test_claims_of_a_pod_that_no_node_was_asked_for_are_not_told_of() -> None:
    decision = ask([node("a"), pod("p", claims=["mine"], priority=9), claim("mine")])
    assert decision.message == (
        "0/1 nodes are available: request gpu: device class gpu does not exist. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


# -- groups -----------------------------------------------------------------------------------------------------------


def worked_b1(second_mode: str, second_priority: int) -> list[Obj]:
    """Four nodes, all full: T1 goes whole, T2 as told."""
    objects: list[Obj] = [node(f"n{i}") for i in range(1, 5)]
    objects += [whole("t1", 100), pod_group("t2", 1, priority=second_priority, disruptionMode=second_mode)]
    objects += [running(f"t1-{i}", f"n{1 + i // 2}", 100, "4", f"10:0{i}", group="t1") for i in range(4)]
    objects += [running(f"t2-{i}", f"n{3 + i}", 100, "8", f"10:0{i}", group="t2") for i in range(2)]
    return [*objects, *gang("g", 2, 2)]


@pytest.mark.parametrize(
    ("mode", "priority", "victims"),
    [
        ("Pod", 100, ["t2-0", "t2-1"]),
        ("PodGroup", 100, ["t2-0", "t2-1"]),
        ("Pod", 200, ["t1-0", "t1-1", "t1-2", "t1-3"]),
    ],
)
def test_disruption_mode_decides_victims(mode: str, priority: int, victims: list[str]) -> None:
    decision = ask(worked_b1(mode, priority), "g")
    assert evicted(decision) == victims
    assert (decision.status, len(decision.nominated)) == ("nominated", 2)
    assert decision.message == "pod group is waiting for preemption to complete"
    whole_units = {eviction.unit.name for eviction in decision.evictions if eviction.unit is not None}
    assert whole_units == ({"t2"} if (mode, priority) == ("PodGroup", 100) else {"t1"} if priority == 200 else set())


def test_lower_priority_group_is_evicted_before_smaller_pods() -> None:
    """Eight little pods of priority 20 stay, a large group of priority 10 goes for eight places."""
    objects: list[Obj] = [node(f"n{i}") for i in range(1, 10)]
    objects += [whole("l", 10), *(running(f"l-{i}", f"n{1 + i // 8}", 10, "1", group="l") for i in range(64))]
    objects += [running(f"s{i}", "n9", 20, "1") for i in range(8)]
    assert evicted(ask([*objects, *gang("g", 1, 1)], "g")) == sorted(f"l-{i}" for i in range(64))


@pytest.mark.parametrize("on", [True, False])
def test_gang_that_cannot_fit_evicts_no_pod(on: bool) -> None:
    """With the gate off 1.36 lets each member evict for itself, in vain; Haru's groups evict nobody then."""
    objects = [node("n0"), node("n1"), node("n2"), running("r1", "n1", cpu="8"), running("r2", "n2", cpu="8")]
    decision = ask([*objects, *gang("g", 4, 4)], "g", preempt_for_groups=on)
    assert (decision.status, decision.evictions) == ("unschedulable", ())
    assert decision.message == "pod group is unschedulable"


def test_disruption_budget_outweighs_priority() -> None:
    objects = [node("a"), node("b"), budget("pdb", 0, {"matchLabels": {"app": "u1"}})]
    objects += [running("u1", "a", 10, "8", labels={"app": "u1"}), running("u2", "b", 50, "8", labels={"app": "u2"})]
    assert evicted(ask([*objects, *gang("g", 1, 1)], "g")) == ["u2"]


@pytest.mark.parametrize(
    ("guard", "victims"),
    [
        (budget("b", 0, {"matchLabels": {"app": "x"}}), ["y"]),
        (budget("b", 1, {"matchLabels": {"app": "x"}}), ["x"]),
        (budget("b", 0, {}), ["x"]),
        (budget("b", 0, {"matchLabels": {"app": "x"}}, disruptedPods={"x": "2026-01-01T00:00:00Z"}), ["x"]),
        (budget("b", 0, {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}), ["y"]),
        (budget("b", 0, {"matchExpressions": [{"key": "app", "operator": "Nope"}]}), ["x"]),
        ({**budget("b", 0, {"matchLabels": {"app": "x"}}), "metadata": {"name": "b", "namespace": "else"}}, ["x"]),
    ],
    ids=[
        "exhausted",
        "one left",
        "an empty selector guards nothing",
        "counted already",
        "expressions",
        "nonsense",
        "elsewhere",
    ],
)
def test_disruption_budget_selector_guards_pods(guard: Obj, victims: list[str]) -> None:
    objects = [node("a"), node("b"), guard]
    objects += [running("x", "a", 1, "8", labels={"app": "x"}), running("y", "b", 5, "8", labels={"app": "y"})]
    assert evicted(ask([*objects, *gang("g", 1, 1)], "g")) == victims


def test_last_allowed_disruption_is_used_by_highest_priority_pod() -> None:
    """Two guarded pods, one disruption: the more important one uses it up, the other violates and is spared first."""
    objects = [node("a"), node("b"), budget("pdb", 1, {"matchLabels": {"app": "x"}})]
    objects += [running(n, on, p, "8", labels={"app": "x"}) for n, on, p in (("high", "a", 5), ("low", "b", 1))]
    assert evicted(ask([*objects, *gang("g", 1, 1)], "g")) == ["high"]


def test_free_resources_are_used_first_and_all_members_nominated() -> None:
    """Two of four members would fit at once: none is bound, all wait for the same evictions."""
    objects = [node("a"), node("b"), running("r", "b", cpu="8")]
    decision = ask([*objects, *gang("g", 4, 4, cpu="4")], "g")
    assert (decision.status, len(decision.nominated), evicted(decision)) == ("nominated", 4, ["r"])
    assert sorted(member.node or "" for member in decision.nominated) == ["a", "a", "b", "b"]
    assert not decision.placed


def test_members_beyond_min_count_are_nominated_with_victims() -> None:
    """As many members as fit with everybody gone: the quorum alone would need one eviction."""
    objects = [node("a"), node("b"), node("c", cpu="1")]
    objects += [running("r", "a", cpu="8"), running("s", "b", cpu="8")]
    decision = ask([*objects, *gang("g", 3, 1)], "g")
    assert evicted(decision) == ["r", "s"]
    assert [member.status for member in decision.members] == ["nominated", "nominated", "unschedulable"]


def test_members_beyond_min_count_of_placed_gang_do_not_preempt() -> None:
    objects = [node("a"), node("b"), running("r", "b", cpu="8")]
    decision = ask([*objects, *gang("g", 2, 1)], "g")
    assert (decision.status, len(decision.placed), decision.evictions) == ("scheduled", 1, ())
    late = [*objects, *gang("g", 2, 1), running("g-9", "a", 1000, "8", group="g")]
    assert ask(late, "g").status == "unschedulable"
    basic = [*objects, *gang("g", 2, 1), running("g-9", "a", 1000, "8", group="g")]
    basic[3]["spec"]["schedulingPolicy"] = {"basic": {}}
    assert not ask(basic, "g").evictions


def test_gang_below_min_count_preempts_for_replacement() -> None:
    objects = [node("a"), node("b"), running("r", "b", cpu="8"), running("g-9", "a", 1000, "8", group="g")]
    assert evicted(ask([*objects, *gang("g", 1, 2)], "g")) == ["r"]


def test_one_member_with_policy_never_prevents_preemption() -> None:
    objects = [node("a"), running("r", "a", cpu="8"), *gang("g", 1, 1)]
    held_back = pod("g-9", group="g", preemptionPolicy="Never", schedulingGates=[{"name": "gate"}])
    decision = ask([*objects, held_back], "g")
    assert not decision.evictions
    assert decision.message == "pod group is unschedulable, not eligible due to preemptionPolicy=Never."


def test_no_lower_priority_pod_gives_no_victims() -> None:
    decision = ask([node("a"), running("r", "a", 1000, "8"), *gang("g", 1, 1)], "g")
    assert decision.message == "pod group is unschedulable, No preemption victims found for incoming preemptor"


def test_gang_with_topology_constraint_evicts_in_one_rack() -> None:
    """1.36 refuses to preempt for such groups; Haru frees the rack whose most important victim is least."""
    racks = [node(f"{rack}{i}", labels={"rack": rack}) for rack in "ab" for i in range(2)]
    work = [running(f"r-{n['metadata']['name']}", n["metadata"]["name"], i, "8") for i, n in enumerate(racks)]
    topology = {"topology": [{"key": "rack"}]}
    decision = ask([*racks, *work, *gang("g", 2, 2, schedulingConstraints=topology)], "g")
    assert evicted(decision) == ["r-a0", "r-a1"]
    assert {member.node for member in decision.nominated} == {"a0", "a1"}


def test_affinity_to_a_victim_prevents_preemption() -> None:
    """The group wants to be near a pod that is among the candidates: without it there is no place, so nobody goes."""
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "friend"}}}]}}  # fmt: skip
    objects = [node("a"), running("friend", "a", 5, "4", labels={"app": "friend"}), running("r", "a", 1, "4")]
    member = pod("g-0", cpu="4", group="g", priority=1000, affinity=near)
    assert not ask([*objects, pod_group("g", 1, priority=1000), member], "g").evictions
    assert evicted(ask([*objects, pod_group("g", 1, priority=5), member], "g")) == ["r"]


def test_pod_with_anti_affinity_is_evicted() -> None:
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "p"}}}]}}  # fmt: skip
    objects = [node("a", labels={"rack": "r"}), node("b", cpu="1", labels={"rack": "r"})]
    objects.append(running("hermit", "b", 1, "1", affinity=away))
    decision = ask([*objects, pod("p", cpu="4", priority=9)])
    assert (evicted(decision), decision.members[0].node) == (["hermit"], "a")


def test_exhausted_preemption_budget_is_error_without_evictions() -> None:
    """Four kinds of members on three nodes, and hardly any questions allowed: an error, not a verdict."""
    objects = [device_class(), *(node(f"n{i}") for i in range(3)), *(resource_slice(f"n{i}", 2) for i in range(3))]
    for i in range(3):
        held = running(f"r{i}", f"n{i}", i, "8", claims=[f"held-{i}"])
        objects += [held, allocated(claim(f"held-{i}"), allocation(f"n{i}", "gpu-0"), held)]
    work = [pod_group("g", 4, priority=9)]
    for i in range(4):
        work += member_with_claim(f"g-{i}", "g", cpu=str(2 + i), priority=9)
    assert ask([*objects, *work], "g").status == "nominated"
    decision = ask([*objects, *work], "g", placement_budget=10)
    assert (decision.status, decision.evictions) == ("error", ())
    assert {reason.type for reason in decision.reasons} == {"GaveUp"}
    decision = ask([*objects, *work], "g", preemption_budget=1)
    assert (decision.status, decision.evictions) == ("error", ())


@pytest.mark.parametrize(("priority", "status"), [(0, "nominated"), (5000, "unschedulable")])
def test_terminating_pod_is_waited_for_without_evictions(priority: int, status: str) -> None:
    """A pod that is being deleted uses its room until it is gone, but nobody is evicted in its stead.

    As in 1.36 only the room of less important pods is kept for whoever waits for it.
    """
    going = running("going", "a", priority, "8")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    objects = [node("a"), node("b"), going, running("r", "b", 5000, "8")]
    for work, name in ((gang("g", 1, 1), "g"), ([pod("p", cpu="8", priority=9)], "p")):
        decision = ask([*objects, *work], name)
        assert (decision.status, decision.evictions) == (status, ())
        assert [member.node for member in decision.nominated] == (["a"] if status == "nominated" else [])


@pytest.mark.parametrize(("pending", "victims"), [(1, []), (2, ["r-a", "r-b"]), (3, ["r-a", "r-b"])])
def test_terminating_member_does_not_count_for_min_count(pending: int, victims: list[str]) -> None:
    """Two are needed, and the one that runs will be gone: room is made for two, or for nobody."""
    going = running("g-old", "c", 1000, "8", group="g")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    others = [running(f"r-{name}", name, cpu="8") for name in "ab"] + [running("r-d", "d", 5000, "8")]
    objects = [*(node(name) for name in "abcd"), going, *others, *gang("g", pending, 2)]
    objects += [running("r-c", "c", 5000, "1")]
    decision = ask(objects, "g")
    assert evicted(decision) == victims
    assert decision.status == ("nominated" if victims else "unschedulable")


def test_assumed_pod_is_not_evicted() -> None:
    objects = [node("a", cpu="4"), pod("new", cpu="4"), pod("p", cpu="4", priority=9)]
    cluster = SchedulerCache.of(objects)
    cluster.assume_pod(PodKey("default", "new", "uid-new"), "a")
    decision = decide(cluster.snapshot(), [objects[-1]], group=None, options=options(**BOTH))
    assert not decision.evictions


def test_pod_group_with_assumed_member_is_not_evicted() -> None:
    """It could only go in part: the pod that is being bound would stay behind."""
    late = pod("w-1", cpu="4", group="w")
    objects = [node("a", cpu="4"), node("b", cpu="4"), whole("w"), running("w-0", "a", group="w"), late]
    objects.append(pod("p", cpu="4", priority=9))
    cluster = SchedulerCache.of(objects)
    cluster.assume_pod(PodKey("default", "w-1", "uid-w-1"), "b")
    decision = decide(cluster.snapshot(), [objects[-1]], group=None, options=options(**BOTH))
    assert (decision.status, decision.evictions) == ("unschedulable", ())
    cluster.apply(running("w-1", "b", group="w"))
    decision = decide(cluster.snapshot(), [objects[-1]], group=None, options=options(**BOTH))
    assert evicted(decision) == ["w-0", "w-1"]


@pytest.mark.parametrize(("nodes", "members", "bound"), [(125, 64, 100), (125, 1, 30)])
def test_preemption_among_thousand_candidates_needs_few_checks(
    monkeypatch: pytest.MonkeyPatch, nodes: int, members: int, bound: int
) -> None:
    """The number of questions grows with the victims, not with the candidates."""
    asked: list[int] = []
    ask_ground = podgroup_preemption._EvictionTrial.fits_with

    def counted(ground: Any, units: Any) -> bool:
        asked.append(len(units))
        return ask_ground(ground, units)

    monkeypatch.setattr(podgroup_preemption._EvictionTrial, "fits_with", counted)
    objects: list[Obj] = [node(f"n{i:03}") for i in range(nodes)]
    objects += [running(f"r{i:04}", f"n{i // 8:03}", i % 7, "1", f"10:{i % 60:02}") for i in range(8 * nodes)]
    decision = ask([*objects, *gang("g", members, members, cpu="1")], "g")
    assert len(evicted(decision)) == members
    assert {eviction.pod.name for eviction in decision.evictions} <= {f"r{i:04}" for i in range(0, 8 * nodes, 7)}
    assert len(asked) <= bound


def test_faulty_selector_on_a_node_that_is_asked_last_evicts_nobody() -> None:
    """The first node is enough once its pod is gone; on the other one's device a selector cannot be read."""
    known = [{"name": name, "attributes": {"model": {"string": "a"}}} for name in ("d0", "d1")]
    asked = {"requests": {"cpu": "1", "deviceclass.resource.kubernetes.io/gpu": "1"}}
    members = [
        pod(f"m{number}", group="gang", priority=10, containers=[{"name": "main", "image": "x", "resources": asked}])
        for number in range(2)
    ]
    going = [pod(f"going-{number}", cpu="8", node=f"n{number}") for number in range(2)]
    for one in going:
        one["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    objects = [
        device_class(expressions=[f'device.attributes["{DRIVER}"].model == "a"']),
        *(node("n0"), resource_slice("n0", known), node("n1"), resource_slice("n1", [{"name": "d0"}])),
        *(node("n2", cpu="1"), pod("low", node="n2")),
        *(*going, pod_group("gang", 2, priority=10), *members),
    ]
    decision = decide_all(objects, "gang", preempt_for_groups=True)
    assert decision.status == "error" and not decision.evictions
    assert decision.message == "class gpu: selector #0: CEL runtime error: no such key: model"
