"""The allocator against the reference's outcomes, whole files at once; what differs is listed by name.

`wide` are problems in which everything may come together: several drivers and nodes, partitions, shares with policies,
lists, alternatives, admin access, outdated slices. Their outcomes are those of Kubernetes 1.36.2 with the bugs repaired
that `reference-bugs` names.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from device_objects import Obj, vector_fault

DATA = Path(__file__).parents[2] / "data" / "dra-allocator"


def load(path: Path) -> list[Obj]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def faults(cases: list[Obj]) -> dict[str, str]:
    found = {case["name"]: vector_fault(case) for case in cases}
    return {name: fault for name, fault in found.items() if fault}


def test_reference_allocator_cases_agree() -> None:
    root = os.environ.get("HARU_REFERENCE_DATA")
    if not root:
        pytest.skip("HARU_REFERENCE_DATA is not set: the reference's own cases are not here")
    cases = load(Path(root) / "vectors" / "dra-allocator" / "cases.jsonl")
    assert len(cases) > 200
    assert faults(cases) == {}


@pytest.mark.parametrize("name", ["generated", "reference-bugs", "wide"])
def test_generated_allocator_cases_agree(name: str) -> None:
    cases = load(DATA / f"{name}.jsonl")
    assert len(cases) > 50
    assert faults(cases) == {}


def test_small_allocator_cases_need_few_steps() -> None:
    """What takes all devices, or needs many different values, is counted before it is walked through."""
    cases = [case for name in ("generated", "reference-bugs") for case in load(DATA / f"{name}.jsonl")]
    small = [case for case in cases if case["name"] in ("random-00204", "random-01511")]
    assert {case["name"]: vector_fault(case, budget=500) for case in small} == {c["name"]: "" for c in small}


def test_hard_allocator_cases_need_few_steps() -> None:
    heavy = [case for case in load(DATA / "generated.jsonl") if case.get("heavy")]
    started = time.process_time()
    assert {case["name"]: vector_fault(case, budget=10_000) for case in heavy} == {c["name"]: "" for c in heavy}
    assert time.process_time() - started < 10
