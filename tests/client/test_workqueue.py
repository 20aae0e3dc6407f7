import asyncio
import time

import pytest
import uvloop

from haru.client.workqueue import ShutDown, WorkQueue
from haru.kube.errors import conflict_error


async def test_key_is_queued_once_in_order():
    queue = WorkQueue[str]()
    for key in "abcab":
        queue.add(key)
    assert [await queue.get() for _ in range(len(queue))] == ["a", "b", "c"]


async def test_key_in_progress_is_queued_again_after_done():
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    assert not queue.idle()
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert queue.idle()


async def seconds_per_key(size: int) -> float:
    """Processor time of a key, the least of three."""
    spent = []
    for _ in range(3):
        queue = WorkQueue[int]()
        for key in range(size):
            queue.add(key)
        began = time.process_time()
        for _ in range(size):
            queue.done(await queue.get())
        spent.append((time.process_time() - began) / size)
    return min(spent)


async def test_key_costs_as_much_in_a_long_queue_as_in_a_short_one():
    """In processor time: what a dict skips is no step of the interpreter."""
    assert await seconds_per_key(30_000) <= 3 * await seconds_per_key(3_000)


async def test_earliest_of_several_delays_applies():
    queue = WorkQueue[str]()
    queue.add_after("a", 10)
    queue.add_after("a", 0.01)
    queue.add_after("a", 20)
    assert await asyncio.wait_for(queue.get(), 9) == "a"
    queue.done("a")
    queue.add_after("b", 0)
    assert await queue.get() == "b"


async def test_failures_back_off_until_forgotten(monkeypatch):
    queue = WorkQueue[str](base_delay=1, max_delay=5)
    delays = []
    monkeypatch.setattr(queue, "add_after", lambda key, delay: delays.append(delay))
    for _ in range(4):
        queue.add_rate_limited("a")
    queue.forget("a")
    queue.add_rate_limited("a")
    assert delays == [1, 2, 4, 5, 1]


async def test_shutdown_wakes_getters_and_refuses_keys():
    queue = WorkQueue[str]()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("a", 0.01)
    queue.shut_down()
    with pytest.raises(ShutDown):
        await waiting
    queue.add("b")
    assert len(queue) == 0


async def test_run_retries_failures_and_requeues_on_request():
    queue = WorkQueue[str](base_delay=0.001)
    outcomes = {
        "fails": [conflict_error("", "pods", "x"), OSError("no way"), ValueError("bug"), None],
        "again": [0.001, None],
    }
    finished = {}
    done = asyncio.Event()

    async def sync(key):
        outcome = outcomes[key].pop(0)
        finished[key] = finished.get(key, 0) + 1
        if not any(outcomes.values()):
            done.set()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    queue.add("fails")
    queue.add("again")
    running = asyncio.create_task(queue.run(sync, workers=2))
    await asyncio.wait_for(done.wait(), 60)
    assert finished == {"fails": 4, "again": 2}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_key_may_be_added_again_after_a_delay_that_is_next_to_none(loop):
    async def run():
        queue = WorkQueue()
        queue.add_after("a", 0.0004)
        queue.add_after("a", 0.0004)
        async with asyncio.timeout(30):
            return await queue.get()

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(run()) == "a"
