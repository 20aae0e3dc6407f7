"""Whatever a round decides is possible: the reference's checker looks at the decisions on thousands of variations.

Cases of the reference are varied at random (priorities, sizes, quorums, modes, budgets, racks, more work), and the
checker says what is wrong with an answer: room, devices, counters and rules now and after the evictions, whole units,
quorum, topology. What varied cases should come to nobody knows, so that is not compared.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from haru.cli.schedule import answer_case
from haru.kube.gates import FeatureGates
from nights import tonight

Obj = dict[str, Any]

PRIORITIES = [0, 1, 5, 10, 20, 30, 50, 100]
RACK = "topology.example.com/rack"


@pytest.fixture(scope="module")
def checker(reference_data: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", reference_data / "vectors" / "scheduling" / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cases(reference_data: Path) -> list[Obj]:
    folder = reference_data / "vectors" / "scheduling"
    lines = [line for name in ("scenarios", "random") for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    return [case for case in map(json.loads, lines) if len(case["objects"]) < 80]


def varied(case: Obj, seed: int, checker: ModuleType) -> Obj:
    """Another case that is like this one; nothing in it is overfull to begin with."""
    draw = random.Random(seed)
    case = copy.deepcopy(case)
    for obj in case["objects"]:
        _vary(obj, draw)
    _gone(case, draw)
    _fit(case, checker)
    case["objects"] += list(_more_work(draw))
    draw.shuffle(case["objects"])
    return {**case, "name": f"{case['name']}#{seed}"}


def _vary(obj: Obj, draw: random.Random) -> None:
    spec = obj["spec"]
    if obj["kind"] == "Pod":
        if draw.random() < 0.35:
            spec["priority"] = draw.choice(PRIORITIES)
        if draw.random() < 0.15:
            for container in spec["containers"]:
                container.setdefault("resources", {}).setdefault("requests", {})["cpu"] = str(draw.randint(0, 4))
        if draw.random() < 0.05 and not spec.get("nodeName"):
            spec["preemptionPolicy"] = "Never"
    elif obj["kind"] == "PodGroup":
        if draw.random() < 0.4:
            spec["priority"] = draw.choice(PRIORITIES)
        if draw.random() < 0.4:
            spec["disruptionMode"] = draw.choice(["Pod", "PodGroup"])
        if "gang" in spec["schedulingPolicy"] and draw.random() < 0.3:
            gang = spec["schedulingPolicy"]["gang"]
            gang["minCount"] = max(1, gang["minCount"] + draw.choice([-1, 1]))
        if draw.random() < 0.1:
            spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
    elif obj["kind"] == "PodDisruptionBudget" and draw.random() < 0.5:
        obj["status"]["disruptionsAllowed"] = draw.randint(0, 2)


def _gone(case: Obj, draw: random.Random) -> None:
    """Some running pods are not there, and claims that only they used are free."""
    running = [o for o in case["objects"] if o["kind"] == "Pod" and o["spec"].get("nodeName")]
    names = {o["metadata"]["name"] for o in running if draw.random() < 0.05}
    case["objects"] = [o for o in case["objects"] if o["kind"] != "Pod" or o["metadata"]["name"] not in names]
    for obj in case["objects"]:
        users = (obj.get("status") or {}).get("reservedFor") if obj["kind"] == "ResourceClaim" else None
        if users:
            left = [entry for entry in users if entry["name"] not in names]
            obj["status"] = {**obj["status"], "reservedFor": left} if left else {}


def _fit(case: Obj, checker: ModuleType) -> None:
    """Running pods ask for nothing where their node has no room left."""
    left = {
        o["metadata"]["name"]: checker.amount(o["status"]["allocatable"].get("cpu", 0))
        for o in case["objects"]
        if o["kind"] == "Node"
    }
    for obj in case["objects"]:
        name = obj["spec"].get("nodeName") if obj["kind"] == "Pod" else None
        if name in left and obj["status"].get("phase") not in ("Succeeded", "Failed"):
            if checker.pod_requests(obj["spec"]).get("cpu", 0) > left[name]:
                for container in obj["spec"]["containers"]:
                    container.get("resources", {}).get("requests", {}).pop("cpu", None)
            left[name] -= checker.pod_requests(obj["spec"]).get("cpu", 0)


def _more_work(draw: random.Random) -> Iterator[Obj]:
    for i in range(draw.choice([0, 0, 1, 2, 3])):
        spec: Obj = {
            "priority": draw.choice(PRIORITIES),
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": str(draw.randint(1, 4))}}}],
        }
        meta = {"namespace": "default", "creationTimestamp": f"2026-01-01T01:00:{i:02}Z"}
        if draw.random() < 0.5:
            spec["schedulingGroup"] = {"podGroupName": f"more-{i}"}
            yield {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "PodGroup",
                "metadata": {**meta, "name": f"more-{i}", "uid": f"podgroup-more-{i}"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "priority": spec["priority"]},
            }
        own = {**meta, "name": f"more-{i}", "uid": f"pod-more-{i}"}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": spec, "status": {"phase": "Pending"}}


def complaints(case: Obj, answer: Obj, checker: ModuleType) -> list[str]:
    """What the checker says, but for what it cannot know: it looks at the end of the round only."""
    known = checker.Case({**case, "expect": {"pods": {}, "groups": {}, "evictions": answer["evictions"]}})
    evicted = set(answer["evictions"])
    # A claim that a bound pod joined counts as freed for the checker if all who had it at first are evicted later.
    joined = {c for pod in answer["bindings"] for c in known.claims_of(pod) if c in known.claims}
    freed = {c for c in joined if known.users(c) and known.users(c) <= evicted}
    # A replacement may have its place before another preemptor takes one of its siblings.
    placed = {known.group_of(pod) for pod in (*answer["bindings"], *answer["nominations"])}
    shrunk = {known.group_of(pod) for pod in evicted} & placed
    excused = [f"{c} has no allocation" for c in freed] + [f"group {group}: only" for group in shrunk]
    return [text for text in checker.Checked(known, answer).problems() if not any(e in text for e in excused)]


def check(cases: list[Obj], checker: ModuleType, seeds: range) -> int:
    gates = FeatureGates.accelerator_defaults().all()
    nominated = 0
    for seed in seeds:
        case = varied(cases[seed % len(cases)], seed, checker)
        answer = answer_case(case, gates)
        nominated += bool(answer["nominations"])
        assert complaints(case, answer, checker) == [], case["name"]
        assert not any("gave up" in entry["reason"] for entry in answer["pending"].values()), case["name"]
    return nominated


@pytest.mark.parametrize("block", range(4))
def test_random_decisions_pass_invariant_checker(cases: list[Obj], checker: ModuleType, block: int) -> None:
    assert check(cases, checker, range(80 * block, 80 * block + 80)) > 5


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(20))
def test_random_decisions_pass_invariant_checker_on_20000_variations(
    cases: list[Obj], checker: ModuleType, block: int
) -> None:
    check(cases, checker, tonight(range(1000 * (block + 1), 1000 * (block + 2))))
