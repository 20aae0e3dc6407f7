"""A volume that is not set up is told at once, then less and less often."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from haru.node.podworker.failed_mounts import FailedMounts

POD = {"metadata": {"name": "p"}}


def told_at(looks: dict[float, list[str]]) -> list[tuple[float, str]]:
    """When what was told, where a worker looked at these times and found these problems."""
    now, told = 0.0, []

    def event(about: Any, kind: str, reason: str, text: str) -> None:
        assert (about, kind, reason) == (POD, "Warning", "FailedMount")
        told.append((now, text))

    recorder: Any = SimpleNamespace(event=event)
    mounts = FailedMounts(recorder)
    for now, problems in looks.items():
        mounts.tell(POD, problems, now)
    return told


def test_problem_is_told_after_pauses_that_double() -> None:
    times = [time for time, _ in told_at({float(second): ["a"] for second in range(0, 600, 10)})]
    assert times == [0, 10, 20, 30, 40, 50, 70, 110, 180, 310, 440, 570]


def test_problem_that_was_over_is_told_at_once() -> None:
    looks: dict[float, list[str]] = {float(second): ["a"] for second in range(10)}
    looks |= {10.0: [], 10.1: ["a"], 10.2: ["a", "b"]}
    assert told_at(looks)[-2:] == [(10.1, "a"), (10.2, "b")]
