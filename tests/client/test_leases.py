import asyncio
from datetime import UTC, datetime

import pytest
from fake_api import FakeApi

from haru.client.api import ApiClient
from haru.client.leases import LeaderElector
from haru.kube import kinds
from haru.kube.errors import StatusError

LEASES = kinds.lookup("coordination.k8s.io", "v1", "leases")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds
        await asyncio.sleep(0)


@pytest.fixture
def api():
    return FakeApi()


@pytest.fixture
def client(api):
    return ApiClient.in_process(api)


def elector(client, identity, clock):
    return LeaderElector(
        client, "kube-system", "x", identity, now=lambda: START, monotonic=clock.monotonic, sleep=clock.sleep
    )


async def lease(client):
    return (await client.get(LEASES, "x", "kube-system"))["spec"]


async def test_the_first_takes_it_and_gives_it_up_at_its_end(client):
    clock = Clock()
    held = {}

    async def work():
        held.update(await lease(client))

    await elector(client, "a", clock).run(work)
    assert held == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    after = await lease(client)
    assert ("holderIdentity" in after, after["leaseDurationSeconds"]) == (False, 1)


async def test_a_candidate_waits_a_whole_lease_without_renewal(client):
    first, second = Clock(), Clock()
    a, b = elector(client, "a", first), elector(client, "b", second)
    assert await a._try()
    assert not await b._try()
    second.time = 14.9
    assert not await b._try()
    first.time = 14
    assert await a._try()  # same content, for the clock stands still: nobody can tell that it was renewed
    second.time = 15
    assert await b._try()
    assert (await lease(client))["leaseTransitions"] == 1
    assert not await a._try()
    assert a.leader == "b"
    assert not a.is_leader()


async def test_of_two_writers_one_loses(client, api):
    clock = Clock()
    a, b = elector(client, "a", clock), elector(client, "b", clock)
    await a._try()
    await a._release()
    api.fail("PUT", 409, {}, b'{"kind":"Status","code":409,"reason":"Conflict","message":"changed"}')
    assert not await b._try()
    assert await b._try()


async def test_a_lost_lease_cancels_the_work(client, api):
    clock = Clock()
    a = elector(client, "a", clock)
    seen = []

    async def work():
        seen.append("started")
        lease_now = await client.get(LEASES, "x", "kube-system")
        lease_now["spec"]["holderIdentity"] = "thief"
        await client.update(LEASES, lease_now)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    await asyncio.wait_for(a.run(work, lambda: seen.append("lost")), 5)
    assert seen == ["started", "cancelled", "lost"]
    assert (await lease(client))["holderIdentity"] == "thief"


async def test_a_server_that_is_away_for_the_deadline_ends_the_work(client, api):
    clock = Clock()
    a = elector(client, "a", clock)
    lost = []

    async def work():
        for _ in range(100):
            api.fail("GET /apis/coordination", 500)
        await asyncio.Event().wait()

    await asyncio.wait_for(a.run(work, lambda: lost.append(clock.time)), 5)
    assert lost == [10.0]


async def test_the_failure_of_the_work_surfaces_and_the_lease_is_free(client):
    async def work():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await elector(client, "a", Clock()).run(work)
    assert "holderIdentity" not in await lease(client)


async def test_cancellation_gives_the_lease_up(client):
    started = asyncio.Event()

    async def work():
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(elector(client, "a", Clock()).run(work))
    await asyncio.wait_for(started.wait(), 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "holderIdentity" not in await lease(client)


def test_periods_must_fit(client):
    with pytest.raises(ValueError, match="lease duration > renew deadline"):
        LeaderElector(client, "ns", "x", "a", lease_seconds=5)


async def test_no_lease_is_not_an_error(client):
    with pytest.raises(StatusError):
        await lease(client)
