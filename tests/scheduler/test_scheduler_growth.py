"""What the scheduler does for a pod does not grow with the cluster: steps of its code until the pod is bound."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

import pytest
from benchmarks.memory_api import MemoryApi
from benchmarks.scheduler_growth import empty_cluster

from haru.client.api import ApiClient
from haru.client.event_series import SeriesRecorder
from haru.kube.gates import FeatureGates
from haru.scheduler.config import scheduler_config
from haru.scheduler.scheduler import Scheduler

UNCOUNTED, COUNTED = 10, 30
_PARTS = ("/haru/engine/", "/haru/scheduler/", "/haru/client/", "/haru/gangs/")


async def _bound(api: MemoryApi, pods: int) -> None:
    async with asyncio.timeout(60):
        while min(api.bound, api.events) < pods:  # noqa: ASYNC110 (what it waits for is counted)
            await asyncio.sleep(0)


async def steps_for_a_pod(nodes: int, cards: int) -> float:
    """How many functions of the scheduler are entered for each pod of a burst, after the first decisions."""
    api = MemoryApi(empty_cluster(nodes, cards))
    config = scheduler_config(FeatureGates.accelerator_defaults(), ["default-scheduler"])
    client = ApiClient.in_process(api, "admin")
    scheduler = Scheduler(client, config, SeriesRecorder(client, "default-scheduler"))
    running = asyncio.create_task(scheduler.run())
    steps = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal steps
        steps += event == "call" and any(part in frame.f_code.co_filename for part in _PARTS)

    try:
        await scheduler.ready.wait()
        api.load(UNCOUNTED, min(cards, 1), 0)
        await _bound(api, UNCOUNTED)
        sys.setprofile(count)
        api.load(COUNTED, min(cards, 1), UNCOUNTED)
        await _bound(api, UNCOUNTED + COUNTED)
    finally:
        sys.setprofile(None)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return steps / COUNTED


@pytest.mark.parametrize("cards", [0, 8])
async def test_steps_for_a_bound_pod_are_the_same_on_ten_times_the_nodes(cards: int) -> None:
    few, many = await steps_for_a_pod(20, cards), await steps_for_a_pod(200, cards)
    assert few > 100
    assert many < 1.5 * few, (few, many)


@pytest.mark.nightly
@pytest.mark.parametrize("cards", [0, 8])
async def test_steps_for_a_bound_pod_are_the_same_on_a_hundred_times_the_nodes(cards: int) -> None:
    few, many = await steps_for_a_pod(30, cards), await steps_for_a_pod(3_000, cards)
    assert many < 1.5 * few, (few, many)
