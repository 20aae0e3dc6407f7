"""A selector that fails in the dry run of preemption: an error of that node alone, as in kube-scheduler 1.36."""

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
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.state.decision import Decision


def running(name: str, on: str, priority: int, cpu: str = "4", **more: Any) -> Obj:
    made = pod(name, cpu=cpu, node=on, priority=priority, **more)
    made["status"]["startTime"] = "2026-01-01T10:00:00Z"
    return made


def ask(objects: list[Obj]) -> Decision:
    return decide_all(objects, only=[o for o in objects if o["metadata"]["name"] == "p"], preempt_for_pods=True)


def evicted(decision: Decision) -> list[str]:
    return sorted(eviction.pod.name for eviction in decision.evictions)


def work_on(*models: str) -> list[Obj]:
    """Nodes n0, n1, … with a pod each, the cheapest on n0; no selector reads a device without a model."""
    objects: list[Obj] = [device_class(expressions=[f'device.attributes["{DRIVER}"].model == "a"'])]
    for number, model in enumerate(models):
        device = {"name": "d", **({"attributes": {"model": {"string": model}}} if model else {})}
        name = f"n{number}"
        objects += [node(name), resource_slice(name, [device]), running(f"r{number}", name, number, "8")]
    return [*objects, claim("c"), pod("p", cpu="8", priority=100, claims=["c"])]


NO_MODEL = "class gpu: selector #0: CEL runtime error: no such key: model"


def test_selector_error_in_the_dry_run_of_one_node_leaves_the_other_nodes() -> None:
    decision = ask(work_on("", "a"))
    assert (decision.status, evicted(decision), decision.nominated[0].node) == ("nominated", ["r1"], "n1")


@pytest.mark.parametrize("models", [("",), ("", ""), ("", "b")])
def test_selector_error_in_every_dry_run_that_could_help_is_told_of_an_unschedulable_pod(
    models: tuple[str, ...],
) -> None:
    """Also changes of devices wake it then: they may end the error."""
    decision = ask(work_on(*models))
    number = len(models)
    assert (decision.status, decision.evictions) == ("unschedulable", ())
    assert decision.message == f"0/{number} nodes are available: {number} Insufficient cpu. preemption: {NO_MODEL}"
    assert set(decision.members[0].plugins) == {"NodeResourcesFit", "DynamicResources"}


@pytest.mark.parametrize(("models", "victims"), [(("", "a"), ["r1"]), (("", ""), [])])
def test_selector_error_beside_a_terminating_pod_is_that_of_its_node(
    models: tuple[str, ...], victims: list[str]
) -> None:
    """Without the pod that terminates the filters ask the device of its node, and the selector fails there."""
    objects = work_on(*models)
    next(o for o in objects if o["metadata"]["name"] == "r0")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    decision = ask(objects)
    assert (decision.status, evicted(decision)) == ("nominated" if victims else "unschedulable", victims)


def held_good_device() -> list[Obj]:
    """Beside the holder of the good device any other would ask the bad one."""
    objects = [o for o in work_on("a") if o["metadata"]["name"] not in ("r0", "p")]
    objects[2]["spec"]["devices"].append({"name": "e"})
    held = running("holder", "n0", 1, claims=["held"])
    return [*objects, held, allocated(claim("held"), allocation("n0", "d"), held), running("other", "n0", 0)]


def test_selector_error_in_a_reprieve_evicts_the_unit() -> None:
    """The holder goes, the other pod stays."""
    decision = ask([*held_good_device(), pod("p", cpu="1", priority=100, claims=["c"])])
    assert (decision.status, evicted(decision)) == ("nominated", ["holder"])


@pytest.mark.parametrize("beside", [0, 1])
def test_selector_error_in_a_reprieve_for_a_gang_evicts_the_unit(beside: int) -> None:
    members = [pod("m0", cpu="1", priority=100, group="g", claims=["c"])]
    members += [pod(f"m{n + 1}", cpu="1", priority=100, group="g") for n in range(beside)]
    group = pod_group("g", len(members), priority=100)
    decision = decide_all([*held_good_device(), group, *members], "g", preempt_for_groups=True)
    assert (decision.status, evicted(decision)) == ("nominated", ["holder"])


def test_selector_error_without_all_victims_is_the_error_of_a_gang() -> None:
    """As in kube-scheduler 1.36, other than for a pod, for which it is an error of its node."""
    objects = [o for o in work_on("", "a") if o["metadata"]["name"] != "p"]
    member = pod("m", cpu="8", priority=100, group="g", claims=["c"])
    decision = decide_all([*objects, pod_group("g", 1, priority=100), member], "g", preempt_for_groups=True)
    assert (decision.status, decision.evictions) == ("error", ())
    assert decision.message == NO_MODEL
