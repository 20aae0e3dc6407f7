"""What simulated containers use over time, by their annotation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from haru.kube.simulated_containers.usage import Used, pod_usage, used_after

Obj = dict[str, Any]
CONTAINER = {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}


def pod(usage: str) -> Obj:
    return {"metadata": {"name": "p", "annotations": {"usage.simulated.haru.dev/c": usage}}}


@pytest.mark.parametrize(
    ("usage", "seconds", "used"),
    [
        ("cpu=500m memory=2Gi", 10, Used(500_000_000, 2 << 30, 5_000_000_000)),
        ("cpu=500m, memory=1Gi; @10 cpu=2; @20 memory=3Gi", 25, Used(2_000_000_000, 3 << 30, 35_000_000_000)),
        ("@5 cpu=1", 4, Used(0, 0, 0)),
        ("cpu=80% memory=50%", 1, Used(1_600_000_000, 1 << 29, 1_600_000_000)),
        ("cpu=much", 1, Used(0, 0, 0)),
        ("disk=1", 1, Used(0, 0, 0)),
    ],
)
def test_usage_follows_the_course_of_the_annotation(usage: str, seconds: float, used: Used) -> None:
    assert used_after(pod(usage), CONTAINER, seconds) == used


def test_only_running_containers_use_anything() -> None:
    running = {"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    ended = {"name": "d", "state": {"terminated": {"exitCode": 0}}}
    made = {
        **pod("cpu=1"),
        "spec": {"containers": [CONTAINER, {"name": "d"}]},
        "status": {"containerStatuses": [running, ended]},
    }
    (one,) = pod_usage(made, datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC))
    assert (one.name, one.used) == ("c", Used(1_000_000_000, 0, 3_000_000_000))
