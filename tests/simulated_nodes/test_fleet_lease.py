"""One process runs a fleet of a name: another one is refused, takes over what a dead one left, and a lost one stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from in_memory_client import InMemoryClient

import virtual_time
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.simulated_nodes.fleet_lease import FleetLease, delete_lease, lease_name
from haru.simulated_nodes.fleet_nodes import FleetError
from haru.simulated_nodes.nodes import LEASES


class Server(InMemoryClient):
    """An API server that may be away."""

    away = False

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Obj:
        if self.away:
            raise ConnectionRefusedError("away")
        return await super().get(kind, name, namespace)


def play(story: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        client = Server()
        client.namespaces.add("kube-system")
        await story(client)

    virtual_time.run(run())


def lease(client: InMemoryClient, fleet: str = "mine") -> FleetLease:
    return FleetLease(client, fleet, clock=virtual_time.clock())


async def running(one: FleetLease) -> asyncio.Task[None]:
    await one.take()
    return asyncio.create_task(one.keep())


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_second_process_of_a_fleet_is_refused_within_seconds() -> None:
    async def story(client: Server) -> None:
        first = await running(lease(client))
        began = asyncio.get_running_loop().time()
        with pytest.raises(FleetError, match=r"the fleet mine is run by \S+ \(Lease kube-system/haru-fleet-mine\)"):
            await lease(client).take()
        assert asyncio.get_running_loop().time() - began <= 6
        await lease(client, "other").take()
        assert not first.done()
        await ended(first)

    play(story)


def test_fleet_that_was_stopped_is_taken_over_at_once_and_a_killed_one_after_its_lease() -> None:
    async def story(client: Server) -> None:
        loop = asyncio.get_running_loop()
        first = lease(client)
        await ended(await running(first))
        await first.give_up()
        began = loop.time()
        second = await running(lease(client))
        assert loop.time() - began < 1
        await ended(second)
        began = loop.time()
        await lease(client).take()
        assert 8 <= loop.time() - began <= 12

    play(story)


def test_fleet_goes_on_while_the_server_is_away_and_stops_when_another_one_runs_it() -> None:
    async def story(client: Server) -> None:
        first = await running(lease(client))
        client.away = True
        await asyncio.sleep(60)
        assert not first.done()
        client.away = False
        await asyncio.sleep(5)
        with pytest.raises(FleetError):
            await lease(client).take()
        for _ in range(20):
            client.fail("update", "leases", StatusError(503, "ServiceUnavailable", "away"))
        await asyncio.sleep(60)
        assert not first.done()
        held = await client.get(LEASES, "haru-fleet-mine", "kube-system")
        taken = {
            **held,
            "spec": {**held["spec"], "holderIdentity": "another", "renewTime": "2026-01-01T00:00:00.000000Z"},
        }
        await client.update(LEASES, taken)
        for second in range(6):
            await asyncio.sleep(2)
            stored = await client.get(LEASES, "haru-fleet-mine", "kube-system")
            renewed = {**stored["spec"], "renewTime": f"2026-01-01T00:00:1{second}.000000Z"}
            if stored["spec"]["holderIdentity"] == "another":
                await client.update(LEASES, {**stored, "spec": renewed})
        assert first.done()
        with pytest.raises(FleetError, match="is run by another"):
            first.result()

    play(story)


def test_nobody_is_refused_where_leases_may_not_be_read(caplog: pytest.LogCaptureFixture) -> None:
    class Confined(InMemoryClient):
        async def get(self, kind: Kind, name: str, namespace: str = "") -> Obj:
            raise StatusError(403, "Forbidden", "leases is forbidden")

    async def story() -> None:
        one = lease(Confined())
        with caplog.at_level(logging.WARNING):
            await one.take()
        task = asyncio.create_task(one.keep())
        await asyncio.sleep(100)
        assert not task.done()
        await ended(task)
        await one.give_up()

    virtual_time.run(story())
    assert "whether another process runs the fleet mine is not known" in caplog.text


def test_lease_of_any_fleet_has_a_valid_name_and_goes_with_the_fleet() -> None:
    async def story(client: Server) -> None:
        await lease(client, "Team_A").take()
        assert [name for _, _, name in client.objects] == [lease_name("Team_A")]
        await delete_lease(client, "Team_A")
        await delete_lease(client, "Team_A")
        assert client.objects == {}

    assert lease_name("team-a") == "haru-fleet-team-a"
    assert lease_name("Team_A") != lease_name("team_a")
    play(story)
