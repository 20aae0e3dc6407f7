"""The thread that explains: how long it rests, and when it gives up. Its clock is a list of numbers here."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from haru.explanation_worker import LONGEST_SECONDS, OutOfTimeError, Pace, ThreadWorker


class Rests(Event):
    """An event that counts how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds += timeout or 0.0
        return False


def rested(worked: float, busy: bool) -> float:
    now, stopped = [0.0], Rests()
    pace = Pace(lambda: busy, stopped, lambda: now[0])
    pace.begin()
    now[0] = worked
    pace.start()
    return stopped.seconds


def test_thread_rests_49_times_as_long_as_it_worked_while_there_is_work_to_schedule() -> None:
    assert rested(0.01, busy=True) == pytest.approx(0.49)
    assert rested(0.01, busy=False) == pytest.approx(0.03)
    assert rested(0.001, busy=True) == 0.0


def test_question_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(OutOfTimeError):
        rested(LONGEST_SECONDS + 1, busy=False)


def test_stopped_worker_ends_question_under_way() -> None:
    async def scenario() -> None:
        worker = ThreadWorker(lambda: False)
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def endless(pace: Pace) -> None:
            loop.call_soon_threadsafe(begun.set)
            while True:
                pace.start()

        asking = asyncio.create_task(worker.run(endless))
        await begun.wait()
        worker.stop()
        with pytest.raises(OutOfTimeError):
            await asking

    asyncio.run(scenario())
