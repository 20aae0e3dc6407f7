import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from fake_api import FakeApi
from hypothesis import example, given, settings
from hypothesis import strategies as st

import haru.clock
import virtual_time
from haru.client.api import ApiClient
from haru.client.leases import DEFAULT_TIMES, Candidate, ElectionTimes, LeaderElector
from haru.kube import kinds
from haru.kube.errors import StatusError

LEASES = kinds.lookup("coordination.k8s.io", "v1", "leases")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self):
        self.time = 0.0
        self.ahead = timedelta()
        """How far the clock on the wall was set forward."""

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


def elector(client, identity, clock, times=DEFAULT_TIMES):
    both = haru.clock.Clock(lambda: START + clock.ahead, clock.monotonic)
    return LeaderElector(client, Candidate("kube-system", "x", identity), times, clock=both, sleep=clock.sleep)


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


async def test_lease_is_left_to_its_holder_for_as_long_as_the_holder_said(client):
    first, second = Clock(), Clock()
    assert await elector(client, "a", first, ElectionTimes(60, 40, 5))._try()
    b = elector(client, "b", second)
    assert not await b._try()
    second.time = 59.9
    assert not await b._try()
    second.time = 60
    assert await b._try()


@pytest.mark.parametrize("hours", [1, -1])
async def test_clock_that_jumps_costs_no_lease_and_gives_none(client, hours):
    first, second = Clock(), Clock()
    a, b = elector(client, "a", first), elector(client, "b", second)
    assert await a._try()
    assert not await b._try()
    first.ahead = timedelta(hours=hours)
    first.time = second.time = 14
    assert a.seconds_left() == 1
    assert await a._try()
    assert not await b._try()
    second.ahead = timedelta(hours=2 * hours)
    second.time = 28.9
    assert not await b._try()
    second.time = 29
    assert await b._try()


class OvertakenApi(FakeApi):
    """Somebody is faster: what `first` does comes before the next write."""

    first = None

    async def __call__(self, scope, receive, send):
        if scope["method"] == "PUT" and self.first is not None:
            first, self.first = self.first, None
            assert await first()
        await super().__call__(scope, receive, send)


async def test_candidate_is_refused_when_the_holder_renews_before_its_write_arrives():
    api = OvertakenApi()
    client, clock = ApiClient.in_process(api), Clock()
    a, b = elector(client, "a", Clock()), elector(client, "b", clock)
    assert await a._try()
    assert not await b._try()
    clock.time = 15
    api.first = a._try
    assert not await b._try()
    assert (await lease(client))["holderIdentity"] == "a"


async def test_lease_that_another_one_has_taken_is_not_released(client):
    first, second = Clock(), Clock()
    a, b = elector(client, "a", first), elector(client, "b", second)
    assert await a._try()
    assert not await b._try()
    second.time = 15
    assert await b._try()
    await a.release()
    assert (await lease(client))["holderIdentity"] == "b"


async def test_candidate_that_gives_way_to_who_renews_waits_for_a_renewal(client):
    """One look at a Lease does not tell whether its holder lives."""
    clock = Clock()
    a, b = elector(client, "a", Clock()), elector(client, "b", clock)
    assert await a._try()
    assert await b.acquire_unless_renewed()
    assert clock.time == 16.0
    a = elector(client, "a", Clock())

    async def renewed(seconds):
        clock.ahead += timedelta(seconds=seconds)
        assert await b._try()

    a._sleep = renewed
    assert not await a.acquire_unless_renewed()


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


class LateApi(FakeApi):
    """Requests take a while on the way to it, and answers back. Once all delays are used up it is out of order."""

    def __init__(self, delays, end):
        super().__init__()
        self.delays, self.end = iter(delays), end
        self.renewed_at = 0.0

    async def __call__(self, scope, receive, send):
        there, back = next(self.delays, (self.end, None))
        await asyncio.sleep(there)

        async def late(message):
            if message["type"] == "http.response.start":
                await asyncio.sleep(back or 0.0)
            await send(message)

        if back is None:
            self.fail(scope["method"], 500)
        elif scope["method"] in ("POST", "PUT"):
            self.renewed_at = asyncio.get_running_loop().time()
        await super().__call__(scope, receive, late)


SHORT = ElectionTimes(2, 1.5, 1.1)
delays = st.sampled_from([0.0, 0.0, 0.3, 2.0, 3.5, 7.5])


def test_time_of_a_new_lease_counts_from_before_it_was_asked_for():
    async def run():
        api = LateApi([(0.0, 0.0), (0.0, 12.0)], 0.0)
        client = ApiClient.in_process(api)
        a = LeaderElector(client, Candidate("kube-system", "x", "a"), clock=virtual_time.clock())
        await a.acquire()
        assert asyncio.get_running_loop().time() + a.seconds_left() <= api.renewed_at + 15

    virtual_time.run(run())


@settings(max_examples=50)
@example([(0.0, 0.0), (0.0, 7.5)], ElectionTimes(), 1000.0)
@example([(0.0, 0.0), (0.0, 0.3)], SHORT, 0.0)
@given(
    st.lists(st.tuples(delays, delays), min_size=2, max_size=14),
    st.sampled_from([ElectionTimes(), ElectionTimes(12, 11, 5), SHORT]),
    st.sampled_from([0.0, 1000.0]),
)
def test_renewal_ends_before_another_may_take_the_lease(ways, times, end):
    """However late answers come: another one may take it when it was not renewed for a whole duration."""

    async def run():
        api = LateApi([(0.0, 0.0), (0.0, 0.0), *ways], end)
        client = ApiClient.in_process(api)
        a = LeaderElector(client, Candidate("kube-system", "x", "a"), times, clock=virtual_time.clock())
        await a.acquire()
        await a.renew()
        assert asyncio.get_running_loop().time() <= api.renewed_at + times.lease

    virtual_time.run(run())


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
