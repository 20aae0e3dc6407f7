"""Explanations against a recount by other means: raw objects, plain loops, and counting what fits where."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    pod,
    pod_group,
    resource_slice,
)
from explain_schema import check_explanation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haru.engine import SchedulerCache
from haru.explain import explain, to_json, to_text

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "explain.md"
HOPPER = f'device.attributes["{DRIVER}"].architecture == "Hopper"'
CLASS = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "gpu"'

device_facts = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["gpu", "gpu", "gpu", "mig"]),
        "architecture": st.sampled_from(["Hopper", "Hopper", "Ampere"]),
        "tainted": st.sampled_from([False, False, False, True]),
        "taken": st.sampled_from([False, False, True]),
    }
)
node_facts = st.fixed_dictionaries(
    {"cordoned": st.sampled_from([False, False, True]), "devices": st.lists(device_facts, max_size=5)}
)


def published(index: int, facts: Obj) -> Obj:
    values = {"type": {"string": facts["type"]}, "architecture": {"string": facts["architecture"]}}
    device: Obj = {"name": f"d{index}", "attributes": {**values, "uuid": {"string": f"u{index}"}}}
    if facts["tainted"]:
        device["taints"] = [{"key": "bad", "value": "x", "effect": "NoSchedule"}]
    return device


def build(nodes: list[Obj], pods: int, count: int) -> tuple[list[Obj], Obj]:
    objects: list[Obj] = [device_class("gpu", [CLASS])]
    for n, facts in enumerate(nodes):
        objects.append(node(f"n{n}", cpu="64", unschedulable=facts["cordoned"]))
        objects.append(resource_slice(f"n{n}", [published(i, d) for i, d in enumerate(facts["devices"])]))
        for i, device in enumerate(facts["devices"]):
            if device["taken"]:
                user = pod(f"h-{n}-{i}", node=f"n{n}", claims=[f"h-{n}-{i}"])
                held = allocated(claim(f"h-{n}-{i}"), allocation(f"n{n}", f"d{i}"), user)
                objects += [user, held]
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": HOPPER}}],
    }
    group = pod_group("g", pods)
    objects.append(group)
    for i in range(pods):
        member = pod(f"m{i}", group="g", claims=[("gpu", "tmpl", f"m{i}-gpu")])
        objects += [member, claim(f"m{i}-gpu", owner=member, requests=[{"name": "gpu", "exactly": exactly}])]
    return objects, group


def room(nodes: list[Obj], count: int, *, taken: bool = True, obstacles: bool = True, less: Any = ()) -> int:
    """How many members fit, by division."""
    total = 0
    for n, facts in enumerate(nodes):
        if obstacles and facts["cordoned"]:
            continue
        free = sum(
            d["type"] == "gpu"
            and d["architecture"] == "Hopper"
            and not (obstacles and d["tainted"])
            and not (taken and d["taken"] and f"h-{n}-{i}" not in less)
            for i, d in enumerate(facts["devices"])
        )
        total += free // count
    return total


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(node_facts, min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 2))
def test_counts_and_verdicts_equal_independent_count(nodes: list[Obj], pods: int, count: int) -> None:
    objects, group = build(nodes, pods, count)
    answer = to_json(explain(SchedulerCache.of(objects).snapshot(), "podgroup", group))
    check_explanation(answer)
    if room(nodes, count) >= pods:
        assert answer["verdict"] == "Starting"
    elif room(nodes, count, taken=False) >= pods:
        assert answer["verdict"] == "FitsLater"
    elif room(nodes, count, taken=False, obstacles=False) >= pods:
        assert answer["verdict"] == "FitsIf"
    else:
        assert answer["verdict"] == "NeverFits"
    recount(answer, nodes, pods, count)
    for remedy in answer["remedies"]:
        if remedy["kind"] == "Evict":
            gone = {step["object"]["metadata"]["name"] for step in remedy["changes"]}
            assert room(nodes, count, less=gone) >= pods
            assert all(room(nodes, count, less=gone - {name}) < pods for name in gone), "somebody could be spared"
        if remedy["kind"] == "LowerMinCount":
            made = [step["object"] for step in remedy["changes"] if step["action"] == "create"]
            spec = next(obj for obj in made if obj["kind"] == "PodGroup")["spec"]
            assert spec["schedulingPolicy"]["gang"]["minCount"] == room(nodes, count)


def recount(answer: Obj, nodes: list[Obj], pods: int, count: int) -> None:
    (request,) = answer["requests"]
    assert (request["claims"], request["count"], request["needed"]) == (pods, count, pods * count)
    everything = [(n, i, facts["cordoned"], d) for n, facts in enumerate(nodes) for i, d in enumerate(facts["devices"])]
    stages = {stage["stage"]: stage for stage in request["funnel"]}
    assert request["funnel"][0]["left"] == len(everything)
    if not everything:
        return
    left = [entry for entry in everything if entry[3]["type"] == "gpu"]
    assert stages["class"]["left"] == len(left)
    ampere = [entry for entry in left if entry[3]["architecture"] != "Hopper"]
    left = [entry for entry in left if entry not in ampere]
    assert stages["selector"]["dropped"] == len(ampere)
    if ampere:
        key = f"{DRIVER}/architecture"
        assert stages["selector"]["values"] == [{"values": {"driver": DRIVER, key: "Ampere"}, "devices": len(ampere)}]
    for name, test in (("taints", lambda e: e[3]["tainted"]), ("free", lambda e: e[3]["taken"])):
        dropped = [entry for entry in left if test(entry)]
        left = [entry for entry in left if not test(entry)]
        assert stages.get(name, {"dropped": 0})["dropped"] == len(dropped)
        if name == "free" and dropped:
            holders = {h["workload"]: h["devices"] for h in stages["free"]["holders"]}
            assert holders == {f"pod/h-{n}-{i}": 1 for n, i, _, _ in dropped}
    cordoned = [entry for entry in left if entry[2]]
    left = [entry for entry in left if not entry[2]]
    assert stages.get("nodes", {"dropped": 0})["dropped"] == len(cordoned)
    if len(left) < pods * count:
        assert request["free"] == len(left)
    else:
        assert request["free"] == count * room(nodes, count)
    assert sum(group["count"] for group in answer["nodes"]) in (0, len(nodes))


phases = st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])


@st.composite
def any_state(draw: st.DrawFn) -> list[Obj]:
    """A small world in which anything may be missing, going away, half done or contradictory."""
    objects: list[Obj] = []
    if draw(st.booleans()):
        objects.append(device_class("gpu", draw(st.sampled_from([[], [CLASS], ["device.nonsense"]]))))
    for n in range(draw(st.integers(0, 2))):
        taints = draw(st.sampled_from([[], [{"key": "k", "effect": "NoSchedule"}]]))
        objects.append(node(f"n{n}", cpu=draw(st.sampled_from(["0", "2"])), taints=taints))
        devices: list[Obj] = [{"name": "bare"}, published(1, draw(device_facts))]
        slices = draw(st.sampled_from([1, 1, 2]))
        where: Obj = draw(st.sampled_from([{}, {"allNodes": True}]))
        name = f"n{n}" if not where else ""
        objects.append(resource_slice(name, devices, pool=f"n{n}", **where))
        objects[-1]["spec"]["pool"]["resourceSliceCount"] = slices
        objects[-1]["metadata"]["name"] = f"s{n}"
    if draw(st.booleans()):
        objects.append(pod_group("g", draw(st.sampled_from([None, 1, 3]))))
    for i in range(draw(st.integers(0, 3))):
        objects += draw(any_pod(i))
    if not any(o["kind"] == "ResourceClaim" for o in objects):
        objects.append(claim("lonely", draw(st.integers(1, 40))))
    objects.append(draw(any_job()))
    return objects


@st.composite
def any_pod(draw: st.DrawFn, i: int) -> list[Obj]:
    where = draw(st.sampled_from(["", "", "n0", "gone"]))
    names: list[Any] = draw(st.sampled_from([[], [f"c{i}"], ["c0"], [("gpu", "tmpl", "")], [("gpu", "tmpl", f"c{i}")]]))
    gates = draw(st.sampled_from([[], [], [{"name": "x"}]]))
    owner = [{"kind": "Job", "name": "j", "uid": "uid-job-j", "controller": True}]
    made = pod(f"p{i}", group=draw(st.sampled_from(["", "g"])), node=where, claims=names, schedulingGates=gates)
    made["status"]["phase"] = draw(phases)
    if draw(st.booleans()):
        made["metadata"]["ownerReferences"] = owner
    if draw(st.sampled_from([False, False, True])):
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = [made]
    if draw(st.booleans()):
        selectors = draw(st.sampled_from([[], [HOPPER], ["1"], ["device.allowMultipleAllocations"]]))
        exactly = {
            "deviceClassName": "gpu",
            "allocationMode": draw(st.sampled_from(["ExactCount", "All"])),
            "count": draw(st.sampled_from([1, 2, 40])),
            "selectors": [{"cel": {"expression": e}} for e in selectors],
        }
        request: Obj = {"name": "gpu", "exactly": exactly}
        if draw(st.booleans()):
            first = {**exactly, "name": "one", "allocationMode": "ExactCount"}
            request = {"name": "gpu", "firstAvailable": [first, {**first, "name": "two", "selectors": []}]}
        extra: Obj = draw(st.sampled_from([{}, {"constraints": [{"matchAttribute": f"{DRIVER}/architecture"}]}]))
        obj = claim(f"c{i}", owner=draw(st.sampled_from([None, made])), requests=[request], **extra)
        if draw(st.booleans()):
            obj = allocated(obj, allocation("n0", draw(st.sampled_from(["d1", "gone"]))), made)
        found.append(obj)
    return found


@st.composite
def any_job(draw: st.DrawFn) -> Obj:
    template = {"spec": {"containers": [{"name": "c"}], "schedulerName": "default-scheduler"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "uid": "uid-job-j"},
        "spec": {"parallelism": draw(st.integers(0, 3)), "suspend": draw(st.booleans()), "template": template},
        "status": {"conditions": draw(st.sampled_from([[], [{"type": "Complete", "status": "True"}]]))},
    }


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_state())
def test_every_object_has_a_valid_explanation(objects: list[Obj]) -> None:
    snapshot = SchedulerCache.of(objects).snapshot()
    for obj in objects:
        kind = obj["kind"].lower()
        if kind in ("pod", "podgroup", "job", "resourceclaim"):
            told = explain(snapshot, kind, obj, (), "2026-01-02T00:00:00Z")
            answer = to_json(told)
            check_explanation(answer)
            assert told.reasons, "whatever its state, there is a typed reason"
            json.dumps(answer)
            assert to_text(told).startswith(f"{obj['kind']} default/{obj['metadata']['name']}: {told.verdict}: ")


def test_documented_example_matches_documented_schema() -> None:
    examples = re.findall(r"```json\n(.*?)```", DOCUMENT.read_text(), re.S)
    assert examples
    for example in examples:
        check_explanation(json.loads(example))


def test_gang_of_64_on_1000_nodes_is_explained_within_30_seconds() -> None:
    hopper, ampere = ({"type": "gpu", "architecture": a, "tainted": False} for a in ("Hopper", "Ampere"))
    nodes = [
        {"cordoned": False, "devices": [{**(hopper if n % 4 else ampere), "taken": n % 4 and n > 7}] * 8}
        for n in range(1000)
    ]
    objects, group = build(nodes, 64, 1)
    snapshot = SchedulerCache.of(objects).snapshot()
    started = time.process_time()
    told = explain(snapshot, "podgroup", group)
    text = to_text(told)
    spent = time.process_time() - started
    assert "6000 devices, 5952 taken, 48 free" in text
    assert {"Evict", "LowerMinCount", "AddNodes"} <= {remedy.kind for remedy in told.remedies}
    assert spent < 30, f"{spent:.1f} s"
