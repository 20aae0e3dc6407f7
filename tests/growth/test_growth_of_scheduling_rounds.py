"""What a round of `haru schedule` does for a pod besides its decision does not grow with the pods that wait."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from counted_calls import SHORT, Steps, assert_flat, steps
from engine_objects import options, pod

from haru.engine import SchedulerCache, scheduling_round


def test_round_takes_as_many_steps_for_a_pod_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = SimpleNamespace(status="unschedulable", members=())
    monkeypatch.setattr(scheduling_round, "decide", lambda *_, **__: refused)

    def for_each(waiting: int) -> Steps:
        cluster = SchedulerCache.of([pod(f"p-{number}") for number in range(waiting)])
        cluster.snapshot()
        counted = steps(lambda: scheduling_round.run_round(cluster, options()))
        counted.count //= waiting
        return counted

    assert_flat({size: for_each(size) for size in SHORT}, "a round, for each pod,")
