"""The thread that explains: how long it rests, and when it gives up. Its clock is a list of numbers here."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from haru.explanation_worker import LONGEST_SECONDS, SHARE, OutOfTimeError, Pace, ThreadWorker

REST = 0.01 * (1 / SHARE - 1)
"""For 10 ms of work."""


class Rests(Event):
    """An event that counts how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds += timeout or 0.0
        return False


def rested(worked: float, busy: bool, used: float = 1.0) -> float:
    now, stopped = [0.0], Rests()
    pace = Pace(lambda: busy, stopped, lambda: now[0], lambda: used * stopped.seconds)
    pace.begin()
    now[0] = worked
    pace.start()
    return stopped.seconds


def test_thread_rests_66_times_as_long_as_it_worked_while_there_is_work_to_schedule() -> None:
    assert rested(0.01, busy=True) == pytest.approx(REST, abs=1e-3)
    assert rested(0.01, busy=False) == pytest.approx(0.03, abs=1e-3)
    assert rested(0.001, busy=True) == 0.0


def test_thread_rests_longer_while_the_process_gets_less_of_the_processor() -> None:
    assert rested(0.01, busy=True, used=0.5) == pytest.approx(2 * REST, abs=1e-3)
    assert rested(0.01, busy=True, used=0.01) == pytest.approx(4 * REST, abs=1e-3), "it waits for others: not for ever"
    assert rested(0.01, busy=False, used=0.5) == pytest.approx(0.03, abs=1e-3)


def test_thread_rests_before_the_next_question_for_the_end_of_the_last_one() -> None:
    now, stopped = [7.0], Rests()
    pace = Pace(lambda: True, stopped, lambda: now[0], lambda: stopped.seconds)
    pace.begin()
    now[0] += 0.01
    assert stopped.seconds == 0.0
    pace.begin()
    assert stopped.seconds == pytest.approx(REST, abs=1e-3)
    assert pace.spent == 0.0


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
