"""A driver of the library as a process that kills itself at a place in its work, once: `DIE_AT` names it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from haru.client.api import ApiClient
from haru.drivers import checkpoint
from haru.drivers.cdi import writer
from haru.drivers.library import (
    ClaimToPrepare,
    DriverOptions,
    DriverServer,
    Edits,
    Entry,
    Pool,
    ReadyDevice,
)

PLACES = ("in prepare", "after prepare", "before ready", "in unprepare", "before forgotten")


def die_at(place: str) -> None:
    """SIGKILL, if this is the place; the mark is removed, so that it happens once."""
    mark = Path(os.environ["DIE_AT"])
    if mark.exists() and mark.read_text() == place:
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class Cards:
    """Each claim is a file that holds its devices: the hardware of this driver."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def prepare(self, claim: ClaimToPrepare) -> Sequence[ReadyDevice]:
        self.directory.mkdir(parents=True, exist_ok=True)
        die_at("in prepare")
        (self.directory / claim.uid).write_text(" ".join(device.device for device in claim.devices))
        die_at("after prepare")
        return [ReadyDevice(device, Edits((f"CARD={device.device}",))) for device in claim.devices]

    async def unprepare(self, claim: Entry) -> None:
        die_at("in unprepare")
        (self.directory / claim.uid).unlink(missing_ok=True)
        die_at("before forgotten")


async def main() -> None:
    """URL, token, kubelet's directory, CDI directory."""
    url, token, kubelet, cdi = sys.argv[1:]
    plain = writer.write_whole

    def write(path: Path, data: bytes, mode: int, *, parents: bool = False) -> None:
        plain(path, data, mode, parents=parents)
        die_at("before ready")

    writer.write_whole = write  # type: ignore[attr-defined]
    assert checkpoint.write_whole is plain
    options = DriverOptions("cards.example.com", "node-a", "", Path(kubelet), Path(cdi))
    async with ApiClient.http(url, token=token) as client:
        server = DriverServer(Cards(options.data / "cards"), client, options)
        async with server:
            await server.declare({"node-a": Pool.of([{"name": "gpu-0"}, {"name": "gpu-1"}])})
            await server.wait_published()
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
