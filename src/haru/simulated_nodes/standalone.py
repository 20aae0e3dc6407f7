"""A named fleet on any API server: simulated nodes, their devices and their kubelets, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from haru.client.api import ApiClient
from haru.client.discovery import adapt_to_server
from haru.drivers.simulated.driver import SimulatedDriver
from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.names import counted
from haru.simulated_nodes.fleet import Fleet, FleetOptions
from haru.simulated_nodes.fleet_lease import FleetLease, delete_lease
from haru.simulated_nodes.fleet_nodes import SLICES, Nodes, delete_fleet, prepare_fleet, selector_of

_log = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 2.0


async def run_fleet(
    client: ApiClient, name: str, nodes: Nodes, taints: Sequence[Obj], ready: Callable[[str], None]
) -> None:
    """Keep these nodes until cancelled; `ready` is told once what is there. Raises FleetError before anything is made.

    An API server that is away is waited for, at the start too. FleetError also ends a fleet that another process has
    taken over.
    """
    lease = FleetLease(client, name)
    try:
        served = await _first_answer(client, name, nodes, lease)
        options = FleetOptions(selector_of(name), tuple(taints), served)
        tasks = [asyncio.create_task(_run_nodes(client, nodes, options, ready)), asyncio.create_task(lease.keep())]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(*tasks)
        for task in ended:
            task.result()
    finally:
        await lease.give_up()


async def _run_nodes(client: ApiClient, nodes: Nodes, options: FleetOptions, ready: Callable[[str], None]) -> None:
    fleet = Fleet(client, nodes, options=options)
    driver = SimulatedDriver(client, nodes, selector=options.selector) if options.with_claims else None
    async with asyncio.TaskGroup() as group:
        group.create_task(fleet.run(), name="fleet")
        await fleet.ready.wait()
        if driver is not None:
            group.create_task(driver.run(), name="driver")
            await driver.ready.wait()
        elif any(profile.driver for profile, _ in nodes):
            _log.warning("resource.k8s.io is not served: the nodes have no DRA devices")
        ready(f"{counted(len(nodes), 'simulated node')} ready on {client.server}")


async def remove_fleet(client: ApiClient, name: str) -> tuple[int, int]:
    """Delete what a fleet made, and the pods bound to its nodes; how many nodes and pods."""
    version = await adapt_to_server(client)
    removed = await delete_fleet(client, name, with_slices=version.serves(SLICES))
    await delete_lease(client, name)
    return removed


async def _first_answer(client: ApiClient, name: str, nodes: Nodes, lease: FleetLease) -> bool:
    """Adapt to the server, take the fleet's Lease and prepare the fleet; whether ResourceSlices are served."""
    while True:
        try:
            served = (await adapt_to_server(client)).serves(SLICES)
            await lease.take()
            gone = await prepare_fleet(client, name, [node for _, node in nodes], with_slices=served)
        except (OSError, StatusError) as error:
            if isinstance(error, StatusError) and error.code in (401, 403):
                raise
            _log.warning("the API server does not answer: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            if gone:
                _log.info("%d nodes that the fleet no longer has are deleted", gone)
            return served
