import asyncio
from datetime import UTC, datetime

import pytest
from fake_api import FakeApi

import haru.clock
from haru.client.api import ApiClient
from haru.client.leases import Candidate, ElectionTimes, LeaderElector
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
    times = haru.clock.Clock(lambda: START, clock.monotonic)
    return LeaderElector(client, Candidate("kube-system", "x", identity), clock=times, sleep=clock.sleep)


async def lease(client):
    return (await client.get(LEASES, "x", "kube-system"))["spec"]


async def test_first_candidate_acquires_and_releases_lease(client):
    a = elector(client, "a", Clock())
    await a.acquire()
    assert await lease(client) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    await a.release()
    after = await lease(client)
    assert ("holderIdentity" in after, after["leaseDurationSeconds"]) == (False, 1)


async def test_candidate_takes_lease_after_full_duration_without_renewal(client):
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


async def test_write_conflict_leaves_lease_to_other_candidate(client, api):
    clock = Clock()
    a, b = elector(client, "a", clock), elector(client, "b", clock)
    await a._try()
    await a.release()
    api.fail("PUT", 409, {}, b'{"kind":"Status","code":409,"reason":"Conflict","message":"changed"}')
    assert not await b._try()
    assert await b._try()


async def test_renewal_ends_when_another_holder_has_the_lease(client):
    a = elector(client, "a", Clock())
    await a.acquire()
    lease_now = await client.get(LEASES, "x", "kube-system")
    lease_now["spec"]["holderIdentity"] = "thief"
    await client.update(LEASES, lease_now)
    assert await asyncio.wait_for(a.renew(), 60) == "thief has it"
    await a.release()
    assert (await lease(client))["holderIdentity"] == "thief"


async def test_renewal_ends_after_deadline_without_server(client, api):
    clock = Clock()
    a = elector(client, "a", clock)
    await a.acquire()
    for _ in range(100):
        api.fail("GET /apis/coordination", 500)
    assert await asyncio.wait_for(a.renew(), 60) == "not renewed for 10 s"
    assert clock.time == 10.0
    assert a.seconds_left() == 5.0


async def test_renewal_pauses_while_not_allowed_and_ends_after_deadline(client):
    clock = Clock()
    a = elector(client, "a", clock)
    await a.acquire()
    # It hangs for eight seconds, which is no loss, and then for good.
    why = await asyncio.wait_for(a.renew(lambda: 8 <= clock.time < 20), 60)
    assert why == "not renewed for 10 s: whoever works under it hangs"
    assert clock.time == 28.0
    assert a.seconds_left() == 5.0


async def test_malformed_response_counts_as_failed_attempt(client, api):
    a = elector(client, "a", Clock())
    api.fail("GET /apis/coordination", 200, {}, b"[]")
    api.fail("GET /apis/coordination", 200, {}, b"{}")
    await asyncio.wait_for(a.acquire(), 60)
    assert a.leader == "a"


def test_lease_duration_must_exceed_renew_deadline():
    with pytest.raises(ValueError, match="lease duration > renew deadline"):
        ElectionTimes(lease=5)


async def test_missing_lease_raises_status_error(client):
    with pytest.raises(StatusError):
        await lease(client)
