"""`haru driver nvidia` from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from haru.client.api import ApiClient
from haru.drivers.checkpoint import Checkpoint
from haru.drivers.library import DriverOptions, DriverServer
from haru.drivers.nvidia.cards import Inventory, take_inventory
from haru.drivers.nvidia.health import DOMAIN, HARMLESS, LOOK_SECONDS, Condition, Monitor
from haru.drivers.nvidia.host import Host
from haru.drivers.nvidia.nvml import Nvml
from haru.drivers.nvidia.partitions import Partitions
from haru.drivers.nvidia.plugin import NvidiaCards
from haru.drivers.nvidia.sharing import Commands, SharingManager, run_command
from haru.drivers.nvidia.usage import SECONDS, Usage
from haru.drivers.simulated.process import node_of, publish, withdraw
from haru.errors import InputError
from haru.event_loop import cancelled
from haru.kube.meta import uid_of
from haru.kube.names import counted
from haru.stop import stop_event, unless_stopped

_LOG = logging.getLogger("haru.driver")
GATES: Final = {
    "DynamicMIG": False,
    "TimeSlicingSettings": False,
    "MPSSupport": False,
    "NVMLDeviceHealthCheck": True,
}
"""The NVIDIA DRA driver's names; on or off unless said otherwise."""


class GatesError(InputError):
    """Invalid `--driver-gates`; the text says why."""


def read_gates(text: str) -> frozenset[str]:
    """The gates that are on, by `NAME=true,NAME=false`. Raises `GatesError`."""
    chosen = dict(GATES)
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = entry.partition("=")
        if name not in GATES:
            raise GatesError(f'"{entry}": no gate has that name: use {", ".join(GATES)}')
        if value not in ("true", "false"):
            raise GatesError(f'"{entry}": write {name}=true or {name}=false')
        chosen[name] = value == "true"
    if chosen["DynamicMIG"] and chosen["MPSSupport"]:
        raise GatesError('"DynamicMIG=true": cannot be with MPSSupport=true: an MPS server outlives no partition')
    return frozenset(name for name, is_on in chosen.items() if is_on)


@dataclass(frozen=True, slots=True)
class NvidiaOptions:
    """Options of the process."""

    node_name: str
    kubelet: Path
    cdi: Path
    host: Host
    gates: frozenset[str]
    metadata: bool = True
    keep_slices: bool = False
    usage_seconds: float = SECONDS
    """Between two reports of how busy the cards are; 0: none."""
    look_seconds: float = LOOK_SECONDS
    harmless: frozenset[int] = frozenset()
    """XIDs that are of no consequence here, beside the usual ones."""
    command: Commands = run_command
    """What runs the programs of the driver."""


def assemble(nvml: Nvml, options: NvidiaOptions, data: Path) -> tuple[Inventory, Partitions, NvidiaCards]:
    """The parts of the driver. Raises `NvmlError`, `CheckpointError`, `DriverRootError`."""
    inventory = take_inventory(nvml, "DynamicMIG" in options.gates)
    if inventory.cards:
        options.host.check(inventory.system.driver_version)
    partitions = Partitions(nvml, inventory, Checkpoint(data / "partitions.json", f"partitions of {DOMAIN}"))
    sharing = SharingManager(
        nvml, data / "mps", Checkpoint(data / "sharing.json", f"sharing of {DOMAIN}"), options.command
    )
    return inventory, partitions, NvidiaCards(partitions, options.host, sharing, options.gates)


async def run_nvidia(client: ApiClient, nvml: Nvml, options: NvidiaOptions) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status. Raises `HaruError`."""
    stop = stop_event()
    node = await node_of(client, options.node_name, stop)
    if node is not None:
        await serve(client, nvml, options, uid_of(node), stop)
    return 0


async def serve(
    client: ApiClient,
    nvml: Nvml,
    options: NvidiaOptions,
    node_uid: str,
    stop: asyncio.Event,
) -> None:
    """Serves until `stop` is set. Raises `HaruError`, `NvmlError`."""
    told = DriverOptions(
        DOMAIN,
        options.node_name,
        node_uid,
        options.kubelet,
        options.cdi,
        metadata_versions=("v1alpha1",) if options.metadata else (),
    )
    inventory, partitions, cards = await asyncio.to_thread(assemble, nvml, options, told.data)
    server = DriverServer(cards, client, told)
    # Before anybody asks: what a crash left behind is put in order by what the checkpoint says.
    server.preparer.load()
    await asyncio.to_thread(cards.recover, [entry.uid for entry in server.preparer.entries()])
    async with server, _background() as tasks:
        await server.declare({options.node_name: inventory.pool})
        if "NVMLDeviceHealthCheck" in options.gates:
            condition = Condition(inventory, HARMLESS | options.harmless)
            monitor = Monitor(partitions, condition, options.node_name, options.look_seconds)
            tasks.append(asyncio.create_task(monitor.run(server)))
        if options.usage_seconds:
            usage = Usage(nvml, inventory, client, server.preparer, options.usage_seconds)
            tasks.append(asyncio.create_task(usage.run()))
        await unless_stopped(publish(client, server), stop)
        if not stop.is_set():
            print(
                f"haru driver {DOMAIN} is ready at {told.socket} with {counted(len(inventory.parts), 'device')}",
                flush=True,
            )
            await _until(stop, tasks)
        await withdraw(server, options.keep_slices)


async def _until(stop: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for `stop`; an error of a task in the background is raised."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for task in done:
        task.result()


@contextlib.asynccontextmanager
async def _background() -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that are cancelled at the end."""
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        await cancelled(*tasks)
