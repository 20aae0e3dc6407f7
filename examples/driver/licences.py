"""A DRA driver in a hundred lines: its devices are licence keys, one in each file of a directory.

A container with an allocated key finds it in the variable LICENCE_KEY and in a file. An empty file is a withdrawn
licence: the driver reports the device as unhealthy and taints it, so that it is not allocated.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

from haru.client.api import ApiClient
from haru.drivers.library import (
    ClaimToPrepare,
    ConfigError,
    DeviceError,
    DriverOptions,
    DriverServer,
    Edits,
    Entry,
    Health,
    Mount,
    Pool,
    ReadyDevice,
)
from haru.kube.kinds import known_kind

NAME = "licences.example.com"
WITHDRAWN = {"key": f"{NAME}/withdrawn", "effect": "NoSchedule"}


class Licences:
    """Prepares and unprepares the devices of a claim. Both methods are idempotent."""

    def __init__(self, seats: Path) -> None:
        self.seats = seats

    async def prepare(self, claim: ClaimToPrepare) -> Sequence[ReadyDevice]:
        """The environment variable and mount that each device adds to containers."""
        ready = []
        for device in claim.devices:
            path = self.seats / device.device
            key = path.read_text().strip() if path.exists() else ""
            if not key:
                raise DeviceError(device.device, "the licence was withdrawn")
            name = "LICENCE_KEY"
            for parameters in device.parameters:  # those of the class come before those of the claim
                name = parameters.get("variable", name)
                if not str(name).isidentifier():
                    raise ConfigError("variable", name, "write the name of an environment variable")
            mount = Mount(str(path), f"/etc/licences/{device.device}", ("ro", "bind"))
            ready.append(ReadyDevice(device, Edits(env=(f"{name}={key}",), mounts=(mount,))))
        return ready

    async def unprepare(self, claim: Entry) -> None:
        """Does nothing, because `prepare` changes no device."""


def pool(seats: Path) -> Pool:
    """A pool with one device for each file."""
    names = sorted(path.name for path in seats.iterdir())
    return Pool.of([{"name": name, "attributes": {"vendor": {"string": "example"}}} for name in names])


def health(seats: Path, node: str) -> dict[tuple[str, str], Health]:
    """The unhealthy devices: those whose file is empty."""
    bad = Health("Unhealthy", "the licence was withdrawn", taints=(WITHDRAWN,))
    return {(node, path.name): bad for path in seats.iterdir() if not path.stat().st_size}


async def main() -> None:
    """Serves until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", required=True)
    parser.add_argument("--seats", type=Path, required=True)
    parser.add_argument("--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"))
    parser.add_argument("--cdi-dir", type=Path, default=Path("/var/run/cdi"))
    flags = parser.parse_args()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ApiClient.from_environment("licences") as client:
        node = await client.get(known_kind("v1", "Node"), flags.node)
        options = DriverOptions(NAME, flags.node, node["metadata"]["uid"], flags.kubelet_dir, flags.cdi_dir)
        async with DriverServer(Licences(flags.seats), client, options) as server:
            await server.declare({flags.node: pool(flags.seats)})
            await server.wait_published()
            print("ready", flush=True)
            while not stop.is_set():
                await server.declare({flags.node: pool(flags.seats)})
                await server.set_health(health(flags.seats, flags.node))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await stop.wait()
            await server.withdraw()


if __name__ == "__main__":
    asyncio.run(main())
