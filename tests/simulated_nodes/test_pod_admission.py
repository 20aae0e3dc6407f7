"""Admission of pods by a simulated kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from haru.simulated_nodes.pods import admission_problem

Obj = dict[str, Any]
GPU = "example.com/gpu"
ALLOCATABLE = {"pods": 110_000, "cpu": 8_000, "memory": 16_000}


def pod(cpu: str = "1", gpus: int = 0, claimed: str = "") -> Obj:
    requests = {"cpu": cpu, **({GPU: str(gpus)} if gpus else {})}
    made: Obj = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
    if claimed:
        entry = {"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": claimed}}
        made["status"] = {"nodeAllocatableResourceClaimStatuses": [entry]}
    return made


CASES = [
    ("it fits", pod("8"), [], {}, None),
    ("too little beside others", pod("5"), [pod("4")], {}, "OutOfcpu"),
    ("its devices take some", pod("5", claimed="3"), [], {}, None),
    ("its devices take too much", pod("5", claimed="3500m"), [], {}, "OutOfcpu"),
    ("others' devices take some", pod("5"), [pod("1", claimed="2500m")], {}, "OutOfcpu"),
    ("a plugin's resource", pod(gpus=2), [pod(gpus=1)], {GPU: 3_000}, None),
    ("too little of it", pod(gpus=2), [pod(gpus=2)], {GPU: 3_000}, f"OutOf{GPU}"),
    ("devices behind it", pod(gpus=2), [pod(gpus=2)], {}, None),
]


@pytest.mark.parametrize(("what", "wanted", "others", "more", "reason"), CASES, ids=[case[0] for case in CASES])
def test_kubelet_admission_gives_expected_reason(
    what: str, wanted: Obj, others: list[Obj], more: dict[str, int], reason: str | None
) -> None:
    problem = admission_problem(wanted, others, {**ALLOCATABLE, **more})
    assert (problem[0] if problem else None) == reason
