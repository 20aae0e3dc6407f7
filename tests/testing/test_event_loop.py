"""How late an event loop is, long work in pieces, and when garbage is looked for."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import time

import pytest

from haru.event_loop import LoopLag, TimeSlice
from haru.garbage import postpone_collection, resume_collection


def keep_busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def test_blocked_loop_records_lag_metrics(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "haru.event_loop")
    lag = LoopLag(0.01)
    running = asyncio.create_task(lag.run())
    await asyncio.sleep(0.03)
    keep_busy(0.6)
    assert lag.since_tick() >= 0.58
    await asyncio.sleep(0.03)
    running.cancel()
    assert 0.55 <= lag.longest < 5.0
    assert caplog.messages and caplog.messages[0].startswith("the event loop was held up for ")
    assert re.search(
        r" s, in keep_busy \(.*/test_event_loop\.py:\d+\), called by test_blocked_loop_", caplog.messages[0]
    )
    lines = dict(line.split(" ", 1) for line in lag.lines() if not line.startswith("#"))
    assert float(lines["haru_event_loop_lag_longest_seconds"]) == pytest.approx(lag.longest, abs=1e-5)
    late = int(lines["haru_event_loop_lag_seconds_count"]) - int(lines['haru_event_loop_lag_seconds_bucket{le="0.5"}'])
    assert late >= 1


async def test_time_slice_lets_other_tasks_run() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    await asyncio.sleep(0)
    piece, before = TimeSlice(0.01), turns
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        await piece.shared()
    running.cancel()
    assert 3 <= turns - before <= 50


def test_garbage_collection_is_postponed_and_startup_objects_frozen() -> None:
    thresholds = gc.get_threshold()
    try:
        postpone_collection()
        assert not gc.isenabled()
        resume_collection()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
