"""What reads long answers: parts before a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from haru.client.transport import before


async def _parts(*parts: int, then: asyncio.Event | None = None) -> AsyncIterator[int]:
    for part in parts:
        yield part
    if then is not None:
        await then.wait()


async def test_parts_before_deadline_are_yielded_to_their_end() -> None:
    deadline = asyncio.get_running_loop().time() + 60
    assert [part async for part in before(deadline, _parts(1, 2, 3))] == [1, 2, 3]


async def test_wait_for_a_part_ends_at_the_deadline() -> None:
    seen: list[int] = []
    with pytest.raises(TimeoutError):
        async with aclosing(before(asyncio.get_running_loop().time() + 0.05, _parts(1, then=asyncio.Event()))) as parts:
            async for part in parts:
                seen.append(part)
    task = asyncio.current_task()
    assert seen == [1] and task is not None and not task.cancelling()


async def test_deadline_that_passes_while_a_part_is_used_ends_the_wait_for_the_next() -> None:
    with pytest.raises(TimeoutError):
        async with aclosing(before(asyncio.get_running_loop().time() + 0.02, _parts(1, 2))) as parts:
            async for _ in parts:
                await asyncio.sleep(0.1)


async def test_cancellation_by_somebody_else_is_no_timeout() -> None:
    async def read() -> None:
        async for _ in before(asyncio.get_running_loop().time() + 60, _parts(1, then=asyncio.Event())):
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
