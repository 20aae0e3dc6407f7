"""How late an event loop is, long work in pieces, and when garbage is looked for."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru import garbage
from haru.event_loop import TimeSlice
from haru.garbage import postpone_collection, resume_collection
from haru.loop_lag import HoldUp, LoopLag, Spent, blocking, lag_lines, measured_loop
from haru.thread_stack import stack_file, stack_of
from waiting import until


def keep_busy(seconds: float) -> None:
    """Of processor time: on a busy machine it takes longer."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_blocked_loop_records_lag_metrics(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "haru.loop_lag")
    lag = LoopLag(0.01)
    running = asyncio.create_task(lag.run())
    await asyncio.sleep(0.03)
    keep_busy(0.6)
    assert lag.since_tick() >= 0.58
    await asyncio.sleep(0.03)
    running.cancel()
    assert lag.longest >= 0.55
    assert caplog.messages and caplog.messages[0].startswith("the event loop was held up for ")
    assert re.search(
        r" s its own work.*\), in keep_busy \(.*/test_event_loop\.py:\d+\), called by test_blocked_loop_",
        caplog.messages[0],
    )
    lines = dict(line.split(" ", 1) for line in lag.lines() if not line.startswith("#"))
    assert float(lines["haru_event_loop_lag_longest_seconds"]) == pytest.approx(lag.longest, abs=1e-5)
    assert float(lines['haru_event_loop_held_up_seconds_total{by="loop"}']) >= 0.1
    late = int(lines["haru_event_loop_lag_seconds_count"]) - int(lines['haru_event_loop_lag_seconds_bucket{le="0.5"}'])
    assert late >= 1


async def test_hold_up_of_150_ms_names_function_in_which_loop_was_all_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "haru.loop_lag")
    lag = LoopLag(0.01)
    running = asyncio.create_task(lag.run())
    await asyncio.sleep(0.03)
    end = time.thread_time() + 0.17
    while time.thread_time() < end:
        keep_busy(0.001)
    await asyncio.sleep(0.03)
    running.cancel()
    assert "in test_hold_up_of_150_ms_" in caplog.text or "in keep_busy" in caplog.text
    assert all("asyncio" not in message for message in caplog.messages)


async def test_held_up_loop_is_looked_at_without_objects_for_its_frames(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python 3.11 such objects outlive their frames: whoever reads them may end the process."""
    if sys.version_info < (3, 13):
        monkeypatch.setattr(sys, "_current_frames", dict)
    caplog.set_level(logging.INFO, "haru.loop_lag")
    async with measured_loop():
        # On a busy machine one of the looks may be from before or after it.
        for _ in range(5):
            await asyncio.sleep(0.03)
            keep_busy(0.3)
            await asyncio.sleep(0.1)
            if "in keep_busy (" in caplog.text:
                break
    assert "in keep_busy (" in caplog.text


def test_stack_of_a_thread_names_its_functions_the_innermost_first() -> None:
    asked, answered = threading.Event(), threading.Event()

    def wait(depth: int) -> None:
        if depth:
            wait(depth - 1)
        else:
            asked.set()
            answered.wait(10)

    thread = threading.Thread(target=wait, args=(3,))
    thread.start()
    asked.wait(10)
    with stack_file() as file:
        for _ in range(2):
            names = [name for name, path, line in stack_of(thread.ident or 0, file) if path == __file__ and line]
            assert names == ["wait"] * 4
        assert stack_of(threading.get_ident(), file)[0][0] == "stack_of"
        answered.set()
        thread.join(10)
        assert stack_of(thread.ident or 0, file) == []


_ENDING_FUNCTION = """
import threading
from haru.thread_stack import stack_file, stack_of

asked, answered = threading.Event(), threading.Event()

class Held:
    def __del__(self):
        asked.set()
        answered.wait(10)

def called_by_c(_):
    held = Held()

thread = threading.Thread(target=lambda: list(map(called_by_c, [1])))
thread.start()
asked.wait(10)
with stack_file() as file:
    print(*[name for name, path, line in stack_of(thread.ident, file)])
answered.set()
thread.join()
"""


def test_stack_is_told_while_a_function_that_c_called_lets_its_objects_go() -> None:
    """On Python 3.13.0 faulthandler takes the way into such a function for code: the process ends by SIGSEGV."""
    ran = subprocess.run([sys.executable, "-c", _ENDING_FUNCTION], capture_output=True, text=True, check=False)
    assert (ran.returncode, "__del__" in ran.stdout.split()) == (0, True), ran.stderr


def test_loop_that_waits_for_a_processor_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "haru.loop_lag")
    held = HoldUp.between(0.4, Spent(1.0, 2.0, 0.0, 0.0), Spent(1.05, 2.05, 0.35, 0.0))
    assert held.machine == pytest.approx(0.35) and not held.is_ours
    assert str(held) == "0.35 s a busy machine, 0.05 s its own work"


def test_hold_up_is_shared_among_own_work_threads_and_system_calls() -> None:
    held = HoldUp.between(1.0, Spent(1.0, 2.0, 0.0, 0.0), Spent(1.3, 2.8, 0.0, 0.1))
    assert held.is_ours
    assert str(held) == "0.50 s other threads, 0.20 s system calls, 0.20 s its own work, 0.10 s garbage collection"
    assert sum(held.parts().values()) == pytest.approx(held.lag)


@given(
    lag=st.floats(0.1, 10),
    own=st.floats(0, 20),
    others=st.floats(0, 20),
    queued=st.floats(0, 20),
    share=st.floats(0, 1),
)
def test_parts_of_a_hold_up_add_up_to_it(lag: float, own: float, others: float, queued: float, share: float) -> None:
    held = HoldUp.between(lag, Spent(0, 0, 0, 0), Spent(own, own + others, queued, own * share))
    assert sum(held.parts().values()) == pytest.approx(lag)
    assert all(part >= -1e-9 for part in (*held.parts().values(), held.collecting))
    assert held.collecting <= held.own + 1e-9


def test_blocking_function_is_the_one_that_all_looks_have_in_common() -> None:
    outer, step = ("outer", "/x/haru/a.py", 1), ("step", "/x/haru/b.py", 2)
    looks = [(outer, step), (("outer", "/x/haru/a.py", 9), ("other", "/x/haru/b.py", 3))]
    assert blocking(looks) == ", in outer (a.py:1)"
    assert blocking([(step,), (outer,), (step,)]) == ", in several steps, one in outer (a.py:1)"
    assert blocking([(), (outer, step)]) == ", in step (b.py:2), called by outer (a.py:1)"
    assert blocking([]) == ""


async def test_a_tick_takes_less_than_half_a_percent_of_its_period() -> None:
    lag = LoopLag(0.001)
    running = asyncio.create_task(lag.run())
    began = time.process_time()
    await asyncio.sleep(0.1)
    spent = time.process_time() - began
    running.cancel()
    ticks = _count(lag)
    assert ticks >= 3 and spent / ticks < 0.005 * 0.05


def _count(lag: LoopLag) -> int:
    return next(int(line.split()[-1]) for line in lag.lines() if line.startswith("haru_event_loop_lag_seconds_count"))


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
    before = gc.get_freeze_count()
    postpone_collection()
    assert not gc.isenabled()
    kept = [[]]
    resume_collection()
    assert gc.isenabled()
    assert kept and gc.get_freeze_count() > before


def test_objects_that_come_and_stay_are_collected_in_portions() -> None:
    looked_at: list[int] = []

    def note(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            looked_at.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

    postpone_collection()
    resume_collection()
    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(400_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 400_000
    assert len(looked_at) > 20
    assert max(looked_at) < 35_000


class Linked:
    """An object that is its own owner: a reference count never frees it."""

    def __init__(self) -> None:
        self.itself = self


class Suspended:
    """An object that a generator of its own refers to, which is never run to its end."""

    def __init__(self) -> None:
        self.rest = self._look()
        next(self.rest)

    def _look(self) -> Iterator[Suspended]:
        while True:
            yield self


def old_garbage() -> weakref.ref[Linked]:
    """A cycle that nobody has, after it has outlived the collections of the young."""
    linked = Linked()
    gc.collect(1)
    gc.collect(1)
    found = weakref.ref(linked)
    del linked
    gc.collect(1)
    assert found() is not None
    return found


async def test_old_garbage_is_freed_in_an_idle_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_DUE", 3)
    monkeypatch.setattr(garbage, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(garbage, "_IDLE_BELOW", 0.0)
    postpone_collection()
    resume_collection()
    left = old_garbage()
    await asyncio.sleep(0.1)
    assert left() is not None
    monkeypatch.setattr(garbage, "_IDLE_BELOW", 1000.0)
    await until(lambda: left() is None)


async def test_old_garbage_is_freed_beside_work_once_it_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(garbage, "_IDLE_BELOW", 0.0)
    monkeypatch.setattr(garbage, "_OVERDUE", 3)
    postpone_collection()
    resume_collection()
    left = old_garbage()
    await until(lambda: left() is None)


async def test_of_what_comes_and_stays_some_is_looked_at() -> None:
    looked_at: list[int] = []

    def note(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            looked_at.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

    postpone_collection()
    resume_collection()
    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(800_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 800_000
    assert 100_000 <= sum(looked_at) < 250_000
    assert max(looked_at) < 35_000


@pytest.mark.parametrize("made", [Linked, Suspended])
async def test_garbage_among_the_young_is_freed_soon_though_there_was_none_before(made: type[object]) -> None:
    postpone_collection()
    resume_collection()
    kept = [[number] for number in range(200_000)]
    refs = []
    for _ in range(200_000):
        refs.append(weakref.ref(made()))
    assert len(kept) == 200_000
    assert sum(ref() is not None for ref in refs) < 50_000


def test_old_garbage_is_freed_without_idle_moments_once_it_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_PORTION", 100)
    monkeypatch.setattr(garbage, "_OVERDUE", 10)
    postpone_collection()
    resume_collection()
    left, kept = old_garbage(), []
    while len(kept) % 50 or left() is not None:  # from Python 3.12 on a collection may come while the answer is held
        kept.append([left])
        assert len(kept) < 1_000_000


async def test_lines_are_those_of_the_loop_that_is_measured() -> None:
    assert lag_lines() == []
    async with measured_loop():
        await asyncio.sleep(0)
        assert [line for line in lag_lines() if line.startswith("haru_event_loop_lag_seconds_count")]
    assert lag_lines() == []
