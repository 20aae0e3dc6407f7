"""A Lease that a thread renews: a busy event loop keeps it, a hung one loses it."""

import asyncio
import logging
import threading
import time

import pytest
from fake_api import FakeApi

from haru.client.api import ApiClient
from haru.client.leader_election import Leadership, LeaseLostError
from haru.client.leases import Candidate, ElectionTimes, LeaderElector
from haru.event_loop import LoopLag
from haru.kube import kinds

LEASES = kinds.lookup("coordination.k8s.io", "v1", "leases")
TIMES = ElectionTimes(lease=1.0, renew_deadline=0.6, retry_period=0.05)


@pytest.fixture
def api():
    return FakeApi()


@pytest.fixture
async def lag():
    measured = LoopLag(0.01)
    running = asyncio.create_task(measured.run())
    yield measured
    running.cancel()


def opened(api):
    return ApiClient.in_process(api)


def leadership(api, lag, identity="a", end=lambda: None):
    return Leadership(
        lambda: opened(api),
        lambda client: LeaderElector(client, Candidate("kube-system", "x", identity), TIMES),
        lag.since_tick,
        end,
    )


async def lease(api):
    return (await opened(api).get(LEASES, "x", "kube-system"))["spec"]


def holder(api):
    stored = api.objects.get(("leases", "kube-system", "x"))
    return stored["spec"].get("holderIdentity", "") if stored else ""


def blocked(seconds, until=lambda: False):
    """Holds up the loop as a computation does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        pass


async def test_lease_is_held_during_work_and_released_after_it(api, lag):
    held = []

    async def work():
        held.append(holder(api))

    await asyncio.wait_for(leadership(api, lag).run(work), 60)
    assert held == ["a"]
    assert holder(api) == ""


def other_candidate(api):
    """Waits for the Lease in a loop of its own, as another process would; ends soon after it has it."""

    async def lead():
        await leadership(api, LoopLag(), "b").run(lambda: asyncio.sleep(0.1))

    thread = threading.Thread(target=lambda: asyncio.run(lead()))
    thread.start()
    return thread


async def test_loop_blocked_shorter_than_lease_keeps_lease(api, lag):
    """70 % of the lease's duration, which is more than the renew deadline."""
    seen, threads = [], []

    async def work():
        threads.append(other_candidate(api))
        for _ in range(2):
            blocked(0.7)
            seen.append(holder(api))
            await asyncio.sleep(0.1)
        seen.append(holder(api))

    await asyncio.wait_for(leadership(api, lag).run(work), 60)
    assert seen == ["a", "a", "a"]
    await asyncio.to_thread(threads[0].join, 60)
    assert (await lease(api))["leaseTransitions"] == 1, "the other one has it after the work, at once"


async def test_blocked_loop_loses_lease_and_ends_with_one_log_line(api, lag, caplog):
    caplog.set_level(logging.ERROR)
    threads = []

    async def work():
        threads.append(other_candidate(api))
        blocked(60, lambda: holder(api) == "b")
        assert holder(api) == "b"
        await asyncio.sleep(30)

    ended = []
    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(leadership(api, lag, end=lambda: ended.append(holder(api))).run(work), 60)
    threads[0].join()
    assert [(r.levelname, r.exc_info) for r in caplog.records] == [("ERROR", None)]
    assert caplog.messages == [
        "kube-system/x: a has lost the Lease: not renewed for 0.6 s: whoever works under it hangs"
    ]
    # It was ended before the other one had begun.
    assert ended == ["a"]


async def test_lost_lease_cancels_work(api, lag):
    seen = []

    async def work():
        stored = await opened(api).get(LEASES, "x", "kube-system")
        stored["spec"]["holderIdentity"] = "thief"
        # Its next renewal may come in between.
        await opened(api).update(LEASES, {**stored, "metadata": {**stored["metadata"], "resourceVersion": None}})
        try:
            await asyncio.sleep(30)
        finally:
            seen.append("cancelled")

    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(leadership(api, lag).run(work), 60)
    assert seen == ["cancelled"]
    assert holder(api) == "thief"


async def test_exception_in_work_is_raised_and_lease_released(api, lag):
    async def work():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await asyncio.wait_for(leadership(api, lag).run(work), 60)
    assert holder(api) == ""


async def test_cancellation_releases_lease(api, lag):
    started = asyncio.Event()

    async def work():
        started.set()
        await asyncio.sleep(30)

    running = asyncio.create_task(leadership(api, lag).run(work))
    await asyncio.wait_for(started.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert holder(api) == ""


async def test_candidate_that_is_not_elected_ends_on_cancellation(api, lag):
    async def work():
        waiting = asyncio.create_task(leadership(api, lag, "b").run(lambda: asyncio.sleep(30)))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    await asyncio.wait_for(leadership(api, lag).run(work), 60)
    assert (await lease(api))["leaseTransitions"] == 0


async def test_error_while_opening_client_in_thread_is_raised(api, lag):
    def refuse():
        raise OSError("no such file")

    candidate = Leadership(refuse, lambda client: None, lag.since_tick)
    with pytest.raises(OSError, match="no such file"):
        await asyncio.wait_for(candidate.run(lambda: asyncio.sleep(0)), 60)
