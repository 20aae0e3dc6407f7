"""The scheduling cases that need no preemption: who is bound, where, with which devices, and why the others wait."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from scheduling_round import Round

DATA = os.environ.get("HARU_REFERENCE_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="HARU_REFERENCE_DATA does not name the reference data")


@pytest.mark.parametrize("name", ["scenarios", "random"])
def test_cases_agree(name: str) -> None:
    wrong: list[str] = []
    checked = 0
    for line in (Path(DATA or "") / "vectors" / "scheduling" / f"{name}.jsonl").read_text().splitlines():
        case = json.loads(line)
        expected = case["expect"]
        if expected["evictions"] or "nominated" in expected["pods"].values():
            continue
        checked += 1
        answer = Round(case).run()
        states = {path: "bound" if path in answer.bindings else "pending" for path in expected["pods"]}
        if states != expected["pods"]:
            wrong.append(f"{case['name']}: {states}")
        if any(answer.groups.get(path) != state for path, state in expected["groups"].items()):
            wrong.append(f"{case['name']}: {answer.groups}")
        wrong += [
            f"{case['name']}: {path} on {answer.bindings[path]}"
            for path, nodes in (expected.get("nodes") or {}).items()
            if path in answer.bindings and answer.bindings[path] not in nodes
        ]
        wrong += [
            f"{case['name']}: {path} waits for {answer.pending[path]['reason']}"
            for path, codes in (expected.get("reasons") or {}).items()
            if path in answer.pending and answer.pending[path]["reason"].partition(":")[0] not in codes
        ]
    assert not wrong
    assert checked > 80
