"""The allocator against the reference's outcomes, whole files at once; what differs is listed by name."""

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


@pytest.mark.parametrize("name", ["generated", "reference-bugs"])
def test_generated_allocator_cases_agree(name: str) -> None:
    cases = load(DATA / f"{name}.jsonl")
    assert len(cases) > 50
    assert faults(cases) == {}


def test_hard_allocator_cases_need_few_steps() -> None:
    heavy = [case for case in load(DATA / "generated.jsonl") if case.get("heavy")]
    started = time.process_time()
    assert {case["name"]: vector_fault(case, budget=10_000) for case in heavy} == {c["name"]: "" for c in heavy}
    assert time.process_time() - started < 10
