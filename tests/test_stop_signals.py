"""How a process stops: by one signal in order, by two at once, and in any case."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys

import pytest

from haru.event_loop import cancelled
from virtual_time import run

PROGRAM = """
import asyncio, time
from haru.stop import stop_event

async def clings():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main():
    stop = stop_event({seconds})
    clinging = asyncio.create_task(clings())
    others = [asyncio.create_task(asyncio.Event().wait()) for _ in range(1000)]
    print("ready", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    {end}

asyncio.run(main())
"""


def _started(seconds: float | None, end: str) -> subprocess.Popen[str]:
    code = PROGRAM.format(seconds=seconds, end=end)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "stopping\n"
    return process


@pytest.mark.parametrize(
    ("end", "told"), [("clinging.cancel(); await clinging", "clings"), ("time.sleep(3600)", "in main")]
)
def test_stop_that_does_not_end_ends_the_process_and_tells_what_it_waited_for(end: str, told: str) -> None:
    _, messages = (process := _started(1.2, end)).communicate(timeout=60)
    assert process.returncode == 1
    assert told in messages


def test_second_signal_ends_the_process_at_once() -> None:
    process = _started(None, "await clinging")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_task_that_lost_a_cancellation_is_cancelled_again_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def loses_the_first() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()
        return "never"

    async def work() -> list[object]:
        task = asyncio.create_task(loses_the_first(), name="a worker")
        await asyncio.sleep(0)
        return await cancelled(task)

    with caplog.at_level(logging.WARNING):
        (outcome,) = run(work())
    assert isinstance(outcome, asyncio.CancelledError)
    assert "cancelled again: a worker > " in caplog.text
    assert "loses_the_first" in caplog.text
