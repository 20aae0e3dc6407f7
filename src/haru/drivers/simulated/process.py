"""`haru driver simulated` from start to stop: the devices of a profile on this node, for its kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from haru.client.api import ApiClient
from haru.client.informer import Informer, Selection
from haru.drivers.library import DriverOptions, DriverServer
from haru.drivers.simulated.driver import NODES, install_device_classes
from haru.drivers.simulated.plugin import SimulatedCards, health_of, pool_of
from haru.drivers.simulated.profiles import Profile
from haru.errors import ClusterError
from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.kube.meta import Obj, annotations_of, uid_of
from haru.stop import stop_event, unless_stopped

_LOG = logging.getLogger("haru.driver")
_RETRY_SECONDS: Final = 1.0
_FAREWELL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """Options of the process."""

    profile: Profile
    node_name: str
    kubelet: Path
    cdi: Path
    instance: str = ""
    metadata: bool = True
    keep_slices: bool = False
    """Leave the slices at the end: an update, not a farewell."""


async def run_simulated(client: ApiClient, options: SimulatedOptions) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status. Raises `HaruError`."""
    stop = stop_event()
    node = await node_of(client, options.node_name, stop)
    if node is not None:
        await _serve(client, options, node, stop)
    return 0


async def _serve(client: ApiClient, options: SimulatedOptions, node: Obj, stop: asyncio.Event) -> None:
    driver = options.profile.driver
    told = DriverOptions(
        driver,
        options.node_name,
        uid_of(node),
        options.kubelet,
        options.cdi,
        options.instance,
        metadata_versions=("v1alpha1",) if options.metadata else (),
    )
    pool = pool_of(options.profile, options.node_name)
    server = DriverServer(SimulatedCards(pool, told.data / "devices"), client, told)
    async with server:
        await server.declare({options.node_name: pool})
        await unless_stopped(publish(client, server), stop)
        if stop.is_set():
            await withdraw(server, options.keep_slices)
            return
        print(f"haru driver {driver} is ready at {told.socket}", flush=True)
        listening = asyncio.create_task(_listen(client, options.node_name, server, pool.devices()))
        await stop.wait()
        await cancelled(listening)
        await withdraw(server, options.keep_slices)


async def publish(client: ApiClient, server: DriverServer) -> None:
    """Make the device classes, and wait until the slices are written."""
    await install_classes(client)
    await server.wait_published()


async def install_classes(client: ApiClient) -> None:
    """Make the device classes, as far as this is allowed."""
    try:
        await install_device_classes(client)
    except (StatusError, OSError) as error:
        _LOG.warning("the device classes are left to others: %s", error)


async def node_of(client: ApiClient, name: str, stop: asyncio.Event) -> Obj | None:
    """The Node, once there is one: it owns the slices. None if the driver is stopped before."""
    while not stop.is_set():
        try:
            return await unless_stopped(client.get(NODES, name), stop)
        except StatusError as error:
            if error.code != 404:
                raise ClusterError(f"node {name}: {error}") from None
            _LOG.warning("node %s: not there yet", name)
        except (OSError, TimeoutError) as error:
            _LOG.warning("the API server does not answer: %s", error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_SECONDS):
                await stop.wait()
    return None


async def withdraw(server: DriverServer, keep_slices: bool) -> None:
    """Remove the slices, unless they are kept, or the API server is away: then the kubelet does it."""
    if keep_slices:
        return
    try:
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await server.withdraw()
    except (StatusError, OSError, TimeoutError) as error:
        _LOG.warning("the slices stay: %s", error or "the API server does not answer")


async def _listen(client: ApiClient, node: str, server: DriverServer, devices: list[str]) -> None:
    """Follow the annotations that say how the devices are; what cannot be read leaves everything as it was."""
    changed = asyncio.Event()
    nodes = Informer(client, NODES, Selection(field_selector=f"metadata.name={node}"))
    nodes.add_handler(lambda obj: changed.set(), lambda old, new: changed.set())
    async with asyncio.TaskGroup() as group:
        group.create_task(nodes.run())
        while True:
            await changed.wait()
            changed.clear()
            found = nodes.get(node)
            if found is None:
                continue
            try:
                await server.set_health(health_of(annotations_of(found), devices, node))
            except ValueError as error:
                _LOG.error("node %s: %s; the devices stay as they were", node, error)
