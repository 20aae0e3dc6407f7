"""Questions are answered one at a time; how many may wait is bounded, in all and for one user."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator

import pytest
from left_over import left_to_a_collection

from haru.explain_server import AnswerQueue, Busy
from waiting import until


class Gate:
    """Work that goes on once it is let go; `begun` counts."""

    def __init__(self) -> None:
        self.open, self.begun = threading.Event(), 0

    def work(self) -> str:
        self.begun += 1
        assert self.open.wait(60)
        return "done"


async def asked(queue: AnswerQueue[str], count: int) -> None:
    await until(lambda: len(queue) == count)


async def test_equal_questions_are_answered_once() -> None:
    queue, gate = AnswerQueue[str](4, 4), Gate()
    both = [asyncio.create_task(queue.answer(user, "q", gate.work, 60)) for user in ("a", "b")]
    await asked(queue, 1)
    gate.open.set()
    assert await asyncio.gather(*both) == ["done", "done"]
    assert gate.begun == 1 and len(queue) == 0
    queue.stop()


async def test_more_questions_than_may_wait_are_refused() -> None:
    queue, gate = AnswerQueue[str](3, 2), Gate()
    tasks = [asyncio.create_task(queue.answer("a", n, gate.work, 60)) for n in range(2)]
    await asked(queue, 2)
    with pytest.raises(Busy):
        await queue.answer("a", 2, gate.work, 60)
    tasks.append(asyncio.create_task(queue.answer("b", 3, gate.work, 60)))
    await asked(queue, 3)
    with pytest.raises(Busy):
        await queue.answer("c", 4, gate.work, 60)
    gate.open.set()
    assert await asyncio.gather(*tasks) == ["done"] * 3
    assert await queue.answer("a", 5, gate.work, 60) == "done"
    queue.stop()


async def test_question_that_nobody_waits_for_is_dropped() -> None:
    queue, gate, other = AnswerQueue[str](4, 4), Gate(), Gate()
    first = asyncio.create_task(queue.answer("a", 1, gate.work, 60))
    second = asyncio.create_task(queue.answer("a", 2, other.work, 60))
    await asked(queue, 2)
    await until(lambda: gate.begun)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert len(queue) == 1
    gate.open.set()
    assert await first == "done" and other.begun == 0
    queue.stop()


async def test_answer_that_takes_too_long_keeps_its_place_until_it_ends() -> None:
    queue, gate = AnswerQueue[str](1, 1), Gate()
    with pytest.raises(TimeoutError):
        await queue.answer("a", 1, gate.work, 0.01)
    await until(lambda: gate.begun)
    with pytest.raises(Busy):
        await queue.answer("b", 2, gate.work, 60)
    gate.open.set()
    await asked(queue, 0)
    assert await queue.answer("b", 2, gate.work, 60) == "done"
    queue.stop()


async def test_error_of_one_question_is_its_own() -> None:
    queue = AnswerQueue[str](4, 4)

    def broken() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await queue.answer("a", 1, broken, 60)
    assert await queue.answer("a", 2, lambda: "yes", 60) == "yes"
    queue.stop()


async def test_other_questions_come_between_the_steps_of_a_long_one() -> None:
    queue, done = AnswerQueue[str](4, 4), list[str]()
    first = Gate()

    def steps() -> Generator[object, None, str]:
        for number in range(3):
            first.work()
            done.append(f"step {number}")
            yield
        return "list"

    def short() -> str:
        done.append("short")
        return "short"

    long = asyncio.create_task(queue.answer("a", "long", steps, 60))
    await until(lambda: first.begun == 1)
    other = asyncio.create_task(queue.answer("b", "short", short, 60))
    await asked(queue, 2)
    first.open.set()
    assert await asyncio.gather(long, other) == ["list", "short"]
    assert done == ["step 0", "short", "step 1", "step 2"] and len(queue) == 0
    queue.stop()


async def test_steps_that_nobody_waits_for_are_left() -> None:
    queue, gate = AnswerQueue[str](4, 4), Gate()

    def steps() -> Generator[object, None, str]:
        while True:
            yield gate.work()

    long = asyncio.create_task(queue.answer("a", "long", steps, 60))
    await until(lambda: gate.begun == 1)
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)
    gate.open.set()
    await asked(queue, 0)
    assert gate.begun == 1 and await queue.answer("a", "next", lambda: "next", 60) == "next"
    queue.stop()


async def test_failure_of_a_step_is_the_answer() -> None:
    queue = AnswerQueue[str](4, 4)

    def steps() -> Generator[object, None, str]:
        yield
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await queue.answer("a", "q", steps, 60)
    assert len(queue) == 0
    queue.stop()


async def test_question_that_fails_needs_no_garbage_collection() -> None:
    """Its frames hold the cluster as it was when it was asked."""
    queue = AnswerQueue[str](4, 4)

    def fail() -> str:
        raise LookupError

    async def ask() -> None:
        with contextlib.suppress(LookupError):
            await queue.answer("a", object(), fail, 60)

    await ask()
    with left_to_a_collection() as garbage:
        for _ in range(3):
            await ask()
    assert not garbage
    queue.stop()
