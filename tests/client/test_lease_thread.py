"""A Lease that a thread renews: a busy event loop keeps it, a hung one loses it."""

import asyncio
import logging
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from fake_api import FakeApi

import virtual_time
from haru.client.api import ApiClient
from haru.client.leader_election import Leadership, LeaseLostError
from haru.client.leases import Candidate, ElectionTimes, LeaderElector
from haru.clock import SYSTEM, Clock
from haru.kube import kinds
from haru.loop_lag import LoopLag
from waiting import until

LEASES = kinds.lookup("coordination.k8s.io", "v1", "leases")
# Nobody loses these by the system's clock, however busy the machine is.
TIMES = ElectionTimes(lease=120.0, renew_deadline=90.0, retry_period=0.05)


def blocked(until):
    """Holds up the loop as a computation does, but leaves the processor to the threads."""
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end
        time.sleep(0.001)


class Time:
    """A clock that the test sets forward, and how often each candidate has come round."""

    def __init__(self):
        self.now, self.rounds = 0.0, Counter()
        start = datetime(2026, 1, 1, tzinfo=UTC)
        self.clock = Clock(lambda: start + timedelta(seconds=self.now), lambda: self.now)

    def sleep_of(self, identity):
        async def sleep(seconds):
            self.rounds[identity] += 1
            await asyncio.sleep(0.001)

        return sleep

    def pass_by(self, seconds):
        """Holds up the loop until the candidates have come round at this time."""
        self.now += seconds
        before = self.rounds.copy()
        blocked(lambda: all(self.rounds[identity] >= count + 2 for identity, count in before.items()))


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


def leadership(
    api,
    lag,
    identity="a",
    end=lambda: None,
    times=TIMES,
    clock=SYSTEM,
    sleep=asyncio.sleep,
    tell_loss=logging.Logger.error,
):
    candidate = Candidate("kube-system", "x", identity)
    return Leadership(
        lambda: opened(api),
        lambda client: LeaderElector(client, candidate, times, clock=clock, sleep=sleep),
        lag.since_tick,
        end,
        tell_loss,
    )


async def lease(api):
    return (await opened(api).get(LEASES, "x", "kube-system"))["spec"]


def holder(api):
    stored = api.objects.get(("leases", "kube-system", "x"))
    return stored["spec"].get("holderIdentity", "") if stored else ""


async def test_lease_is_held_during_work_and_released_after_it(api, lag):
    held = []

    async def work():
        held.append(holder(api))

    await asyncio.wait_for(leadership(api, lag).run(work), 60)
    assert held == ["a"]
    assert holder(api) == ""


def other_candidate(api, **given):
    """Waits for the Lease in a loop of its own, as another process would; ends soon after it has it."""

    async def lead():
        await leadership(api, LoopLag(), "b", **given).run(lambda: asyncio.sleep(0.1))

    thread = threading.Thread(target=lambda: asyncio.run(lead()))
    thread.start()
    return thread


async def test_loop_blocked_shorter_than_lease_keeps_lease(api):
    """70 % of the lease's duration, which is more than the renew deadline."""
    seen, threads, passing, times = [], [], Time(), ElectionTimes()
    lag = LoopLag(0.01, lambda: passing.now)
    given = {"times": times, "clock": passing.clock}

    async def work():
        threads.append(other_candidate(api, **given, sleep=passing.sleep_of("b")))
        await until(lambda: passing.rounds["a"] and passing.rounds["b"])
        for _ in range(2):
            for _ in range(21):
                passing.pass_by(0.7 * times.lease / 21)
            assert lag.since_tick() > times.renew_deadline
            seen.append(holder(api))
            await until(lambda: lag.since_tick() == 0)
            passing.pass_by(0)
        seen.append(holder(api))

    measured = asyncio.create_task(lag.run())
    await asyncio.wait_for(leadership(api, lag, **given, sleep=passing.sleep_of("a")).run(work), 60)
    measured.cancel()
    assert seen == ["a", "a", "a"]
    await asyncio.to_thread(threads[0].join, 60)
    assert (await lease(api))["leaseTransitions"] == 1, "the other one has it after the work, at once"


async def test_blocked_loop_loses_lease_and_ends_with_one_log_line(api, lag, caplog):
    caplog.set_level(logging.ERROR)
    threads, times = [], ElectionTimes(lease=1.0, renew_deadline=0.6, retry_period=0.05)
    # On a busy machine a thread comes late: by its own clock the other one waits for a second, too.
    slow = Clock(SYSTEM.now, lambda: SYSTEM.monotonic() / 4)

    async def work():
        threads.append(other_candidate(api, times=times, clock=slow))
        blocked(lambda: holder(api) == "b")
        await asyncio.sleep(30)

    ended = []
    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(leadership(api, lag, end=lambda: ended.append(holder(api)), times=times).run(work), 60)
    threads[0].join()
    assert [(r.levelname, r.exc_info) for r in caplog.records] == [("ERROR", None)]
    assert caplog.messages == [
        "kube-system/x: a has lost the Lease: not renewed for 0.6 s: whoever works under it hangs"
    ]
    # It was ended before the other one had begun.
    assert ended == ["a"]


def test_process_that_does_not_end_is_ended_when_another_one_may_begin():
    async def run():
        loop, ended = asyncio.get_running_loop(), []
        one = leadership(None, LoopLag(), end=lambda: ended.append(loop.time()))
        one._own_loop.close()
        elector = LeaderElector(None, Candidate("kube-system", "x", "a"), clock=virtual_time.clock())
        await asyncio.sleep(11)
        await one._see_it_end(elector)
        assert ended == [pytest.approx(15, abs=0.1)]

    virtual_time.run(run())


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


async def test_loss_is_told_to_who_asked_for_it_before_the_work_is_cancelled(api, lag, caplog):
    told = []

    async def work():
        stored = await opened(api).get(LEASES, "x", "kube-system")
        stored["spec"]["holderIdentity"] = "thief"
        await opened(api).update(LEASES, {**stored, "metadata": {**stored["metadata"], "resourceVersion": None}})
        try:
            await asyncio.sleep(30)
        finally:
            told.append("cancelled")

    def tell(logger, text, *arguments):
        told.append((logger.name, text % arguments))

    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(leadership(api, lag, tell_loss=tell).run(work), 60)
    lost = "kube-system/x: a has lost the Lease: thief has it"
    assert told == [("haru.client.leader_election", lost), "cancelled"]
    assert not caplog.records


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
