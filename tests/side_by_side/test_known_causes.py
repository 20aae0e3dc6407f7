"""Known causes of other victims: each is named for what kube-scheduler does because of it, and for nothing else."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from cause_objects import SEEN_NOBODY, cause, nodes, of_group, pod, stored, waits
from decided_situations import Situation
from decision_verdicts import Outcome, Placement
from engine_outcomes import decisions, outcome_of, without_search
from known_causes import cause_of
from manifests import Obj, gang, obj, volume, volume_claim

# -- pods that are being deleted ---------------------------------------------------------------------------------------


def of_budget(allowed: int, ends: bool = True) -> tuple[Situation, Obj]:
    """A node with a pod that is being deleted and two others, the older one with a budget."""
    guarded = {"app": "a"}
    running = [
        pod("r1", "n0", cpu="1", labels=guarded),
        pod("r2", "n0", cpu="1"),
        pod("r3", "n0", cpu="1", labels=guarded),
    ]
    if ends:
        running[0]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    spec = {"selector": {"matchLabels": guarded}}
    budget = obj("policy/v1", "PodDisruptionBudget", "b", spec=spec, status={"disruptionsAllowed": allowed})
    waiting = pod("p", priority=10, cpu="3")
    return Situation(stored(*nodes(1), *running, budget, waiting), [waiting], None), waiting


def test_pod_that_is_being_deleted_counts_against_its_budget_once_more() -> None:
    case, waiting = of_budget(allowed=1)
    assert cause(waits(waiting, victims=("r2",), nominated="n0"), case) == "ending"


@pytest.mark.parametrize(("allowed", "ends"), [(0, True), (2, True), (1, False)])
def test_budget_is_no_cause_where_the_pod_that_is_being_deleted_protects_nobody(allowed: int, ends: bool) -> None:
    case, waiting = of_budget(allowed, ends)
    wrong = next(name for name in ("r2", "r3") if allowed or name == "r3")
    assert cause(waits(waiting, victims=(wrong, "x"), nominated="n0"), case) == ""


def test_waiting_for_a_pod_that_is_being_deleted_is_no_eviction_of_another() -> None:
    running = [pod("r1", "n0", cpu="4"), pod("r2", "n1", cpu="4")]
    running[0]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    waiting = pod("p", priority=10, cpu="3")
    case = Situation(stored(*nodes(2), *running, waiting), [waiting], None)
    assert cause(waits(waiting, victims=("r2",), nominated="n1"), case) == "ending"
    assert cause(waits(waiting, victims=("r2",), nominated="n0"), case) == ""


@pytest.mark.parametrize(("told", "found"), [("No preemption victims found for incoming pod", "ending"), ("a", "")])
def test_preemption_may_tell_of_a_pod_that_is_being_deleted(told: str, found: str) -> None:
    """It is as important as the pod that waits, which a filter refuses that comes after that for its cpu."""
    running, waiting = pod("r1", "n0", cpu="4"), pod("p", cpu="4")
    running["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    waiting["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    case = Situation(stored(*nodes(1), running, waiting), [waiting], None)

    def decide(other: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(other.objects, other.pods, None, ties=1)]

    refused = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption"
    seen = waits(waiting, message=f"{refused}: 0/1 nodes are available: 1 {told}.")
    assert cause_of(["words of preemption"], seen, decide(case), case, decide) == found


def test_budget_is_no_cause_of_other_victims_than_those_that_it_leads_to() -> None:
    case, waiting = of_budget(allowed=1)
    assert cause(waits(waiting, victims=("r1",), nominated="n0"), case) == ""


# -- others in the queue ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cpu", "found"), [("4", "others first"), ("1", "")])
def test_pod_that_waited_too_may_have_been_decided_first(cpu: str, found: str) -> None:
    """A change woke both; the one that kube-scheduler took first leaves nothing to this one, or enough."""
    other, waiting = pod("other", priority=10, cpu=cpu), pod("p", priority=10)
    placed = pod("other1", "n0", priority=10, cpu=cpu)
    placed["metadata"]["name"] = "other"
    case = Situation(stored(*nodes(1), other, waiting), [waiting], None, others=stored(placed))
    victimless = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    message = f"0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, {victimless}"

    def decide(some: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(some.objects, some.pods, some.group, ties=1)]

    expected = decide(case)
    assert expected[0].nodes() == {"p": "n0"}
    assert cause_of(["bound"], waits(waiting, message=message), expected, case, decide) == found


# -- promised places --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("priority", "found"), [(10, "promised"), (5, "")])
def test_place_that_is_promised_is_taken_beside_the_victim(priority: int, found: str) -> None:
    """The victim has three of four, its preemptor will have three: one is free now and later."""
    running = pod("r1", "n0", cpu="3")
    running["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    running["status"]["conditions"] = [evicted]
    other, waiting = pod("other", priority=priority, cpu="3"), pod("p", priority=10, cpu="1")
    other["status"]["nominatedNodeName"] = "n0"
    case = Situation(stored(*nodes(1), running, other, waiting), [waiting], None)
    expected = [outcome_of(one) for one in decisions(case.objects, case.pods, None, ties=1)]
    assert expected[0].bound == {"p": True}

    def decide(world: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(world.objects, world.pods, None, ties=1)]

    seen = waits(waiting, message="0/1: x", nominated="n0")
    assert cause_of(["bound", "node"], seen, expected, case, decide) == found


@pytest.mark.parametrize(("of_its_own", "found"), [(False, "rules"), (True, "")])
def test_rule_of_a_nominated_pod_is_passed_over_where_nobody_else_has_one(of_its_own: bool, found: str) -> None:
    apart = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    other = pod("other", priority=10, affinity=rule)
    other["status"]["nominatedNodeName"] = "n0"
    waiting = pod("p", priority=10, labels={"app": "a"}, **({"affinity": rule} if of_its_own else {}))
    case = Situation(stored(*nodes(2), other, waiting), [waiting], None)

    def decide(world: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(world.objects, world.pods, None, ties=8)]

    assert {one.pods["p"].node for one in decide(case)} == {"n1"}
    assert cause_of(["node"], Outcome({"p": Placement("n0")}), decide(case), case, decide) == found


# -- single pods ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "found"), [("n1", "elsewhere"), ("n0", "")])
def test_pods_of_other_nodes_are_evicted_where_no_single_node_can_be_freed(where: str, found: str) -> None:
    apart = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    waiting = pod("p", priority=10, affinity=rule)
    both = nodes(2)
    for one in both:
        one["metadata"]["labels"]["zone"] = "z"
    both[1]["spec"]["unschedulable"] = True
    case = Situation(stored(*both, pod("r1", where, labels={"app": "a"}), waiting), [waiting], None)
    refused = (
        "1 node(s) didn't match pod anti-affinity rules, 1 node(s) were unschedulable. no new claims to deallocate"
    )
    seen = waits(waiting, message=f"0/2 nodes are available: {refused}, preemption: 0/2 nodes are available: a.")
    assert cause(seen, case) == found
    assert cause(waits(waiting, message="0/2 nodes are available: 2 Insufficient cpu."), case) == ""


@pytest.mark.parametrize(("node", "found"), [("n0", "waits"), ("n1", "")])
def test_nobody_is_evicted_while_another_pod_ends_on_the_nominated_node(node: str, found: str) -> None:
    ending, waiting = pod("r1", "n0", cpu="1"), pod("p", priority=10, cpu="9")
    ending["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    waiting["status"]["nominatedNodeName"] = node
    case = Situation(stored(*nodes(2), ending, waiting), [waiting], None)
    reason = "not eligible due to a terminating pod on the nominated node."
    seen = waits(waiting, nominated=node, message=f"0/2 nodes are available: a. still not schedulable, {reason}")

    def decide(some: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(some.objects, some.pods, None, ties=1)]

    assert cause_of(["nominated"], seen, decide(case), case, decide) == found


# -- groups -----------------------------------------------------------------------------------------------------------


def test_members_of_a_group_that_is_disrupted_whole_are_evicted_alone_for_a_pod() -> None:
    (group,) = gang("w", 2, priority=0, disruptionMode="PodGroup")
    assert isinstance(group, dict)
    member = {"schedulingGroup": {"podGroupName": "w"}}
    running = [pod(f"r{number}", f"n{number}", cpu="3", **member) for number in range(2)]
    running.append(pod("r2", "n1", priority=10, cpu="1"))
    waiting = pod("p", priority=10, cpu="4")
    case = Situation(stored(*nodes(2), group, *running, waiting), [waiting], None)
    assert cause(waits(waiting, victims=("r0",), nominated="n0"), case) == "whole"
    assert cause(waits(waiting, victims=("r1",), nominated="n1"), case) == ""


@pytest.mark.parametrize(
    ("mode", "cpu", "found"),
    [("ReadWriteOncePod", "1", "sole use"), ("ReadWriteOncePod", "4", ""), ("ReadWriteMany", "4", "")],
)
def test_claim_that_one_pod_uses_counts_as_used_in_preemption_for_a_group(mode: str, cpu: str, found: str) -> None:
    group, (member,) = of_group(1, 1)
    mounts = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    member["spec"] |= {**pod("m0", priority=10, cpu=cpu)["spec"], "schedulingGroup": {"podGroupName": "g"}, **mounts}
    (held,) = volume_claim("c", accessModes=[mode], volumeName="pv")
    (bound,) = volume("pv", accessModes=[mode], claimRef={"name": "c", "namespace": "d"})
    assert isinstance(held, dict) and isinstance(bound, dict)
    held["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    held["status"] = {"phase": "Bound"}
    case = Situation(stored(*nodes(1), held, bound, pod("r1", "n0", **mounts), group, member), [member], group)
    message = "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access"
    message += " mode already in-use by another pod. no new claims to deallocate, preemption: not eligible due to"
    assert cause(waits(member, message=f"{message} workload aware preemption enabled"), case) == found


@pytest.mark.parametrize(("mode", "found"), [("ReadWriteOncePod", "together"), ("ReadWriteMany", "")])
def test_members_that_are_placed_together_have_one_claim_for_one_pod(mode: str, found: str) -> None:
    group, members = of_group(2, 2)
    mounts = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    for member in members:
        member["spec"] |= mounts
    (held,) = volume_claim("c", accessModes=[mode], volumeName="pv")
    (bound,) = volume("pv", accessModes=[mode], claimRef={"name": "c", "namespace": "d"})
    assert isinstance(held, dict) and isinstance(bound, dict)
    held["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    held["status"] = {"phase": "Bound"}
    hosts = nodes(2) if found else nodes(1)
    case = Situation(stored(*hosts, held, bound, group, *members), members, group)

    def decide(other: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(other.objects, other.pods, other.group, ties=2)]

    seen = Outcome({"m0": Placement("n0"), "m1": Placement("n1")})
    assert cause_of(["bound"], seen, decide(case), case, decide) == found


@pytest.mark.parametrize(("bound", "found"), [(["n0", ""], "more"), (["", "n1"], "")])
def test_members_take_other_places_where_the_first_ones_leave_none_for_another(bound: list[str], found: str) -> None:
    """The first member may go to either node, and prefers the one that alone takes the second."""
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}
    group, members = of_group(2, 1)
    members[0]["spec"] |= {"affinity": {"nodeAffinity": preferred}, "priority": 11}
    members[1]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n0"}
    case = Situation(stored(*nodes(2), group, *members), members, group)

    def decide(other: Situation) -> list[Outcome]:
        with contextlib.nullcontext() if other.searches else without_search():
            return [outcome_of(one) for one in decisions(other.objects, other.pods, other.group, ties=2)]

    assert {tuple(one.pods[name].node for name in ("m0", "m1")) for one in decide(case)} == {("n1", "n0")}
    refused = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
    pods = [Placement(node, "" if node else refused) for node in bound]
    seen = Outcome(dict(zip(("m0", "m1"), pods, strict=True)))
    assert cause_of(["more members"], seen, decide(case), case, decide) == found


@pytest.mark.parametrize(("minimum", "found"), [(1, "quorum"), (2, "")])
def test_reprieve_may_cost_members_beyond_the_quorum(minimum: int, found: str) -> None:
    group, members = of_group(2, minimum)
    running = [pod("r1", "n0"), pod("r2", "n1")]
    case = Situation(stored(*nodes(2), *running, group, *members), members, group)
    assert cause(waits(*members, victims=("r2",)), case) == found
    assert cause(waits(*members, victims=("r1",)), case) == ""


@pytest.mark.parametrize(("victim", "found"), [("r1", "extras"), ("r2", "")])
def test_pods_are_evicted_for_members_beyond_the_quorum(victim: str, found: str) -> None:
    group, members = of_group(2, 1)
    running = [pod("r1", "n0"), pod("r2", "n2", priority=10)]
    placed = {**members[1], "spec": {**members[1]["spec"], "nodeName": "n1"}}
    case = Situation(stored(*nodes(3), *running, group, *members), members, group, placed=stored(placed))
    seen = Outcome({"m0": Placement("", "no", ""), "m1": Placement("n1")}, (victim,))
    assert cause(seen, case) == found


@pytest.mark.parametrize(("refused", "found"), [("Insufficient cpu", "domain"), ("Too many pods", "domain"), ("a", "")])
def test_message_about_a_group_that_is_bounded_is_about_any_domain(refused: str, found: str) -> None:
    group, members = of_group(1, 1, schedulingConstraints={"topology": [{"key": "kubernetes.io/hostname"}]})
    first, second = nodes(2)
    second["status"]["allocatable"]["pods"] = "0"
    case = Situation(stored(first, second, pod("r1", "n0", priority=10), group, *members), members, group)
    tail = "no new claims to deallocate, preemption: not eligible due to workload aware preemption enabled"
    seen = waits(*members, message=f"0/1 nodes are available: 1 {refused}. {tail}")

    def decide(other: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(other.objects, other.pods, other.group, ties=1)]

    assert cause_of(["message"], seen, decide(case), case, decide) == found


@pytest.mark.parametrize(
    ("limitation", "found"),
    [("placement-based pod group scheduling limitation", "domains"), ("workload aware preemption enabled", "")],
)
def test_nobody_is_evicted_for_a_group_that_is_bounded_to_a_domain(limitation: str, found: str) -> None:
    group, members = of_group(1, 1, schedulingConstraints={"topology": [{"key": "kubernetes.io/hostname"}]})
    case = Situation(stored(*nodes(1), pod("r1", "n0"), group, *members), members, group)
    message = SEEN_NOBODY.replace(": a.", ": 1 Insufficient cpu.") + limitation
    assert cause(waits(*members, message=message), case) == found
    assert cause(replace(waits(*members, message=message), victims=("x",)), case) == ""
    assert cause(waits(*members, message=SEEN_NOBODY + limitation), case) == ""
