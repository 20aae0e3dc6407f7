"""Device health: a stream to the kubelet, taints for the scheduler.

Every report lists all devices, at once when something changes and now and then otherwise, so that it stays fresh.
Source: KEP-4680 (service `v1alpha1.DRAResourceHealth`), KEP-5055.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from haru.kube.meta import Obj
from haru.proto import dra_pb2 as dra

REPORT_SECONDS: Final = 10.0
"""Between two reports without a change; a report holds 30 s unless it says otherwise."""
STATES: Final = {"Unknown": dra.UNKNOWN, "Healthy": dra.HEALTHY, "Unhealthy": dra.UNHEALTHY}


@dataclass(frozen=True, slots=True)
class Health:
    """How a device is: a state of `STATES`, why, how long that holds (seconds, 0: 30), and the taints it gets by it."""

    state: str = "Healthy"
    message: str = ""
    timeout_seconds: int = 0
    taints: tuple[Obj, ...] = ()

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f'health: "{self.state}": write one of {", ".join(STATES)}')


class DeviceHealthStore:
    """The health of all devices of a driver: (pool, device) -> health."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._devices: dict[tuple[str, str], Health] = {}
        self._version = 0
        self._changed = asyncio.Condition()

    def taints(self) -> dict[str, dict[str, Sequence[Obj]]]:
        """Pool -> device -> taints."""
        found: dict[str, dict[str, Sequence[Obj]]] = {}
        for (pool, device), health in self._devices.items():
            if health.taints:
                found.setdefault(pool, {})[device] = health.taints
        return found

    async def replace(self, devices: Mapping[tuple[str, str], Health]) -> None:
        """How all devices are now."""
        async with self._changed:
            if devices != self._devices:
                self._devices = dict(devices)
                self._version += 1
                self._changed.notify_all()

    def get(self, pool: str, device: str) -> Health | None:
        """How a device is."""
        return self._devices.get((pool, device))

    async def reports(self) -> AsyncIterator[dra.NodeWatchResourcesResponse]:
        """One report now, and further ones until the reader leaves."""
        while True:
            seen = self._version
            yield self._report()
            async with self._changed:
                try:
                    async with asyncio.timeout(REPORT_SECONDS):
                        await self._changed.wait_for(lambda seen=seen: self._version != seen)  # type: ignore[misc]
                except TimeoutError:
                    pass

    def _report(self) -> dra.NodeWatchResourcesResponse:
        now = int(self._clock())
        return dra.NodeWatchResourcesResponse(
            devices=[
                dra.DeviceHealth(
                    device=dra.DeviceIdentifier(pool_name=pool, device_name=device),
                    health=STATES[health.state],
                    last_updated_time=now,
                    health_check_timeout_seconds=health.timeout_seconds,
                    message=health.message,
                )
                for (pool, device), health in self._devices.items()
            ]
        )
