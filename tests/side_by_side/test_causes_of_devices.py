"""Known causes that are about devices: each is named for what kube-scheduler does because of it alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from cause_objects import cause, nodes, of_group, pod, stored, waits
from decided_situations import Situation
from decision_verdicts import Devices, Outcome, Placement, devices_of
from engine_outcomes import ALPHA_GATES, decisions, outcome_of
from known_causes import cause_of
from manifests import DRIVER, Obj, claim, device, device_class, exactly, expression, slice_of

# -- counters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "found"), [("counted", "counters"), ("free", "")])
def test_device_that_takes_of_a_counter_may_be_counted_in_vain(name: str, found: str) -> None:
    counted = {"consumesCounters": [{"counterSet": "cs", "counters": {"mem": {"value": "1"}}}]}
    (made,) = slice_of("n0", [device("d0", **(counted if name == "counted" else {}))], nodeName="n0")
    sets = [{"name": "cs", "counters": {"mem": {"value": "1"}}}]
    (counters,) = slice_of("n0", [], "counters", nodeName="n0", sharedCounters=sets)
    (wanted,), (gpus,) = claim("c"), device_class()
    assert isinstance(made, dict) and isinstance(counters, dict) and isinstance(wanted, dict) and isinstance(gpus, dict)
    made["spec"]["pool"]["resourceSliceCount"] = 2
    counters["spec"]["pool"] = made["spec"]["pool"]
    waiting = pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
    case = Situation(stored(*nodes(1), made, counters, wanted, gpus, waiting), [waiting], None)

    def decide(some: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(some.objects, some.pods, some.group, ties=1)]

    assert decide(case)[0].nodes() == {"p": "n0"}
    refused = waits(waiting, message="0/1 nodes are available: 1 cannot allocate all claims. still not schedulable")
    assert cause_of(["bound"], refused, decide(case), case, decide) == found


# -- devices ----------------------------------------------------------------------------------------------------------


def of_devices(priority: int, **more: object) -> tuple[Situation, Obj]:
    """A node whose one device an allocated claim has, of a pod that runs there; a pod that waits for a device."""
    made, (kind,) = device("d0", **more), device_class()
    (own,), (held,) = claim("own"), claim("held")
    (offered,) = slice_of("n0", [made], nodeName="n0")
    assert isinstance(kind, dict) and isinstance(own, dict) and isinstance(held, dict) and isinstance(offered, dict)
    results = [{"request": "r", "driver": offered["spec"]["driver"], "pool": "n0-a", "device": "d0"}]
    user = {"resource": "pods", "name": "r1", "uid": "r1"}
    held["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
    running = pod("r1", "n0", resourceClaims=[{"name": "c", "resourceClaimName": "held"}])
    waiting = pod("p", priority=priority, resourceClaims=[{"name": "c", "resourceClaimName": "own"}])
    waiting["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]
    return Situation(stored(*nodes(1), kind, offered, own, held, running, waiting), [waiting], None), waiting


@pytest.mark.parametrize(("claims", "where", "found"), [("cc", "n0", "shared"), ("cc", "n2", ""), ("cd", "n0", "")])
def test_binding_fails_where_a_member_has_allocated_a_shared_claim_elsewhere(
    claims: str, where: str, found: str
) -> None:
    """There is a device on each of two nodes, and none on the third."""
    group, members = of_group(2, 2)
    for member, used in zip(members, claims, strict=True):
        member["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": used}]
    made = [one for used in "cd" for one in claim(used) if isinstance(one, dict)]
    offered = [slice_of(node, [device("d0")], nodeName=node)[0] for node in ("n0", "n1")]
    kinds = [one for one in (*device_class(), *offered) if isinstance(one, dict)]
    case = Situation(stored(*nodes(3), *kinds, *made, group, *members), members, group)
    lost = 'running PreBind plugin "DynamicResources": claim d/c got allocated elsewhere in the meantime'
    seen = Outcome({"m0": Placement(where), "m1": Placement("", lost)})

    def decide(some: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(some.objects, some.pods, some.group, ties=4)]

    assert (cause_of(["bound"], seen, [], case, decide) == "shared") is bool(found)


@pytest.mark.parametrize(
    ("constraint", "first", "second", "found"),
    [
        ("matchAttribute", {"int": 2}, {"ints": [1, 2]}, "lists"),
        ("matchAttribute", {"int": 2}, {"int": 2}, ""),
        ("distinctAttribute", {"ints": [1, 2]}, {"ints": [3]}, "lists"),
        ("distinctAttribute", {"int": 1}, {"int": 2}, ""),
    ],
)
def test_attributes_with_several_values_meet_no_constraint(
    constraint: str, first: Obj, second: Obj, found: str
) -> None:
    some = [device("d0", attributes={"links": first}), device("d1", attributes={"links": second})]
    (kind,), (offered,) = device_class(), slice_of("n0", some, nodeName="n0")
    both = exactly("r", "gpu", count=2, allocationMode="ExactCount")
    (own,) = claim("own", both, constraints=[{constraint: "test.example.com/links"}])
    assert isinstance(kind, dict) and isinstance(own, dict) and isinstance(offered, dict)
    waiting = pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "own"}])
    case = Situation(stored(*nodes(1), kind, offered, own, waiting), [waiting], None)

    def decide(other: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(other.objects, other.pods, None, ALPHA_GATES, ties=1)]

    expected = decide(case)
    assert expected[0].bound == {"p": True}
    seen = waits(waiting, message="0/1 nodes are available: 1 cannot allocate all claims. still not schedulable")
    assert cause_of(["bound", "node"], seen, expected, case, decide) == found


def of_distinct(sizes: Sequence[int], mode: str) -> tuple[Situation, Callable[[Situation], list[Outcome]]]:
    """A claim for devices of distinct sizes, of a node that has some."""
    some = [device(f"d{number}", attributes={"size": {"int": size}}) for number, size in enumerate(sizes)]
    (kind,), (offered,) = device_class(), slice_of("n0", some, nodeName="n0")
    request = exactly("r", "gpu", allocationMode=mode, **({} if mode == "All" else {"count": 3}))
    (own,) = claim("own", request, constraints=[{"distinctAttribute": "test.example.com/size"}])
    assert isinstance(kind, dict) and isinstance(own, dict) and isinstance(offered, dict)
    waiting = pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "own"}])
    case = Situation(stored(*nodes(1), kind, offered, own, waiting), [waiting], None)
    return case, lambda other: [outcome_of(one) for one in decisions(other.objects, other.pods, None, ties=1)]


@pytest.mark.parametrize(("where", "found"), [("n1", "any node"), ("n2", "")])
def test_error_of_any_node_may_be_told(where: str, found: str) -> None:
    case, decide = of_distinct((1, 1), "All")
    (other,) = slice_of(
        "n1", [device(f"d{number}", attributes={"size": {"int": 1}}) for number in (0, 1)], nodeName="n1"
    )
    assert isinstance(other, dict)
    case = replace(case, objects=[*case.objects, *stored(nodes(2)[1], other)])
    text = f"claim d/own, request r: cannot add device test.example.com/{where}-a/d1 because a claim constraint would"
    seen = waits(*case.pods, message=f"{text} not be satisfied")
    assert cause_of(["message"], seen, decide(case), case, decide) == found


@pytest.mark.parametrize(("named", "found"), [("d3", "distinct"), ("d1", "")])
def test_device_like_one_before_the_last_is_not_told_of(named: str, found: str) -> None:
    case, decide = of_distinct((1, 2, 1, 1), "All")
    text = f"claim d/own, request r: cannot add device test.example.com/n0-a/{named} because a claim constraint would"
    seen = waits(*case.pods, message=f"{text} not be satisfied")
    assert cause_of(["message"], seen, decide(case), case, decide) == found


def held_devices(*names: str) -> Devices:
    """What a claim holds of the devices of the node `n0`."""
    where = {"matchFields": [expression("metadata.name", "In", "n0")]}
    results = [{"request": "r", "driver": DRIVER, "pool": "n0-a", "device": name} for name in names]
    return devices_of({"nodeSelector": {"nodeSelectorTerms": [where]}, "devices": {"results": results}})


@pytest.mark.parametrize(("sizes", "found"), [((1, 2, 1), "distinct"), ((1, 1, 1, 2), "")])
def test_device_like_one_before_the_last_is_allocated(sizes: tuple[int, ...], found: str) -> None:
    case, decide = of_distinct(sizes, "ExactCount")
    held = held_devices("d0", "d1", "d2")
    seen = Outcome({"p": Placement("n0")}, devices={"own": held if found else held_devices("d0", "d1")})
    assert cause_of(["bound", "node"], seen, decide(case), case, decide) == found


@pytest.mark.parametrize(("scheduler", "found"), [("meek", "ignored"), ("most", "")])
def test_resource_that_the_profile_ignores_may_be_asked_for(scheduler: str, found: str) -> None:
    waiting = pod("p", schedulerName=scheduler)
    waiting["spec"]["containers"][0]["resources"]["requests"]["example.com/nic"] = "1"
    case = Situation(stored(*nodes(1), waiting), [waiting], None)
    seen = waits(waiting, message="0/1 nodes are available: 1 cannot fit resource. still not schedulable")

    def decide(some: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(some.objects, some.pods, some.group, ties=1)]

    assert cause_of(["bound", "node"], seen, decide(case), case, decide) == found


def test_device_like_the_last_one_is_passed_over() -> None:
    case, decide = of_distinct((1, 2, 2, 1), "ExactCount")
    held = held_devices("d0", "d1", "d3")
    seen = Outcome({"p": Placement("n0")}, devices={"own": held})
    assert cause_of(["bound", "node"], seen, decide(case), case, decide) == "distinct"


def test_several_causes_may_be_at_work_at_once() -> None:
    """Devices stay taken, and a pod that is being deleted is a victim as any other."""
    case, waiting = of_devices(priority=10)
    waiting["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"
    next(one for one in case.objects if one["metadata"]["name"] == "r1")["status"]["startTime"] = "2026-01-01T23:00:00Z"
    more = [pod("r4", "n1"), pod("r5", "n2"), *nodes(3)[1:]]
    more[0]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    for where in ("n1", "n2"):
        more += [one for one in slice_of(where, [device("d0")], nodeName=where) if isinstance(one, dict)]
    case = replace(case, objects=[*case.objects, *stored(*more)])
    assert cause(waits(waiting, victims=("r5",), nominated="n2"), case) == "several"
    assert cause(waits(waiting, victims=("r5",), nominated="n1"), case) == ""


def test_devices_of_victims_stay_taken() -> None:
    case, waiting = of_devices(priority=10)
    message = "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: x"
    assert cause(waits(waiting, message=message), case) == "evicts for devices"
    assert cause(waits(waiting, message=message.replace("cannot allocate all claims", "Insufficient cpu")), case) == ""


@pytest.mark.parametrize(("of", "found"), [("memory", "mapped"), ("", "")])
def test_claim_that_is_allocated_takes_nothing_of_its_node(of: str, found: str) -> None:
    more = {"nodeAllocatableResourceMappings": {of: {"allocationMultiplier": "1Gi"}}} if of else {}
    case, waiting = of_devices(priority=0, **more)
    waiting["spec"]["resourceClaims"][0]["resourceClaimName"] = "held"
    waiting["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1" if of else "9"
    seen = Outcome({"p": Placement("n0")})

    def decide(other: Situation) -> list[Outcome]:
        return [outcome_of(one) for one in decisions(other.objects, other.pods, other.group, ALPHA_GATES, ties=1)]

    assert cause_of(["bound"], seen, decide(case), case, decide) == found
