"""Request timeouts: one timer for the deadlines of many requests."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from haru.event_loop import SharedTimeout

FOREVER = 600.0


def cancelled() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_request_timeout_cancels_work_and_task_continues() -> None:
    patience, ended = SharedTimeout(0.01), []

    async def work() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            ended.append(True)

    for _ in range(3):  # the timer is set anew
        with pytest.raises(TimeoutError):
            await patience.wait_for(work())
        assert cancelled() == 0
    assert ended == [True] * 3


async def test_each_request_has_its_own_timeout() -> None:
    patience = SharedTimeout(0.05)
    loop = asyncio.get_running_loop()

    async def late(after: float) -> float:
        await asyncio.sleep(after)
        began = loop.time()
        with pytest.raises(TimeoutError):
            await patience.wait_for(asyncio.sleep(FOREVER))
        return loop.time() - began

    async with asyncio.timeout(60):
        took = await asyncio.gather(*(late(number * 0.01) for number in range(8)))
    assert min(took) >= 0.045  # never early, whatever the machine does


async def test_work_finished_in_time_is_unaffected() -> None:
    patience = SharedTimeout(FOREVER)

    async def answer(number: int) -> int:
        await asyncio.sleep(0)
        return number

    assert await asyncio.gather(*(patience.wait_for(answer(number)) for number in range(20))) == list(range(20))
    with pytest.raises(ZeroDivisionError):
        await patience.wait_for(asyncio.to_thread(lambda: 1 // 0))
    assert not patience._waits


async def test_external_cancellation_is_propagated() -> None:
    patience = SharedTimeout(FOREVER)
    task = asyncio.create_task(patience.wait_for(asyncio.sleep(FOREVER)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_result_of_work_finished_despite_cancellation_is_returned() -> None:
    patience = SharedTimeout(0.01)

    async def stubborn() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(FOREVER)
        return "done"

    assert await patience.wait_for(stubborn()) == "done"
    assert cancelled() == 0


async def test_nested_request_timeouts_work() -> None:
    inner, outer = SharedTimeout(FOREVER), SharedTimeout(0.01)
    with pytest.raises(TimeoutError):
        await outer.wait_for(inner.wait_for(asyncio.sleep(FOREVER)))
    assert cancelled() == 0 and not inner._waits and not outer._waits
