"""Device health on this node: streams of the drivers, reports that expire.

A report holds for the device's own timeout, or 30 s; what is not reported in time, and everything of a driver whose
stream ended, is Unknown. The pods that use a device whose state changed are named, so that their status follows.
Source: kubelet `cm/dra` (healthinfo, plugin health), as behaviour; KEP-4680.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from haru.client.backoff import Backoff
from haru.drivers.protocol import HEALTH_NAMES
from haru.event_loop import cancelled
from haru.node.dra.claim_info_cache import DeviceKey
from haru.node.dra.plugins import Instance
from haru.node.dra.registry import PluginRegistry
from haru.proto import dra_pb2 as dra

_LOG = logging.getLogger("haru.node.dra")
DEFAULT_TIMEOUT: Final = 30.0
LONGEST_MESSAGE: Final = 1024
CHANGES: Final = 100
"""Pods that wait to be looked at; what is more is dropped, and their next look tells it."""


@dataclass(frozen=True, slots=True)
class _Report:
    state: str
    message: str
    timeout: float
    until: float


class HealthCache:
    """What was reported, by the clock that is given with every call (seconds)."""

    def __init__(self) -> None:
        self._reports: dict[DeviceKey, _Report] = {}

    def take(self, driver: str, report: dra.NodeWatchResourcesResponse, now: float) -> list[DeviceKey]:
        """Take a driver's report in; the devices whose state, message or timeout changed."""
        changed = []
        for told in report.devices:
            if not told.HasField("device"):
                continue
            key = (driver, told.device.pool_name, told.device.device_name)
            timeout = float(max(told.health_check_timeout_seconds, 0)) or DEFAULT_TIMEOUT
            made = _Report(HEALTH_NAMES.get(told.health, "Unknown"), _shortened(told.message), timeout, now + timeout)
            before = self._reports.get(key)
            was = (*self.of(*key, now), before.timeout if before else made.timeout)
            self._reports[key] = made
            if was != (made.state, made.message, made.timeout):
                changed.append(key)
        return changed

    def of(self, driver: str, pool: str, device: str, now: float) -> tuple[str, str]:
        """(state, message) of a device."""
        report = self._reports.get((driver, pool, device))
        if report is None or report.until <= now:
            return "Unknown", ""
        return report.state, report.message

    def expire(self, now: float) -> list[DeviceKey]:
        """Forget what is stale; the devices whose state that changes."""
        stale = [key for key, report in self._reports.items() if report.until <= now]
        return [key for key in stale if self._reports.pop(key).state != "Unknown"]

    def forget(self, driver: str) -> list[DeviceKey]:
        """Forget everything of a driver; the devices whose state that changes."""
        mine = [key for key in self._reports if key[0] == driver]
        return [key for key in mine if self._reports.pop(key).state != "Unknown"]

    def next_expiry(self) -> float | None:
        """When the next report grows stale."""
        return min((report.until for report in self._reports.values()), default=None)


def _shortened(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."


class HealthWatcher:
    """Reads the streams of all registered drivers. The registry calls `changed`; `pods` names whose status to make.

    `pods_with_device(driver, pool, device)` names the pods that use a device.
    """

    def __init__(self, pods_with_device: Callable[[str, str, str], Iterable[str]]) -> None:
        self._pods_with_device = pods_with_device
        self._cache = HealthCache()
        self._registry: PluginRegistry | None = None
        self._watching: dict[str, tuple[Instance, asyncio.Task[None]]] = {}
        self._wake = asyncio.Event()
        self.pods: asyncio.Queue[str] = asyncio.Queue(CHANGES)
        """UIDs of pods that use a device whose health changed."""

    def of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """(Healthy|Unhealthy|Unknown, message) of a device now."""
        return self._cache.of(driver, pool, device, _now())

    async def run(self, registry: PluginRegistry) -> None:
        """Follow the drivers until cancelled."""
        self._registry = registry
        for driver in registry.drivers():
            self.changed(driver)
        try:
            while True:
                self._tell(self._cache.expire(_now()))
                due = self._cache.next_expiry()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else max(0.0, due - _now()) + 0.01):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            self._registry = None
            await cancelled(*[task for _, task in self._watching.values()])
            self._watching.clear()

    def changed(self, driver: str) -> None:
        """Follow a driver anew: it was registered or deregistered, or has another instance."""
        if self._registry is None:
            return
        instance = self._registry.find(driver)
        if instance is not None and not instance.has_health:
            instance = None
        watched = self._watching.get(driver)
        if watched is not None and watched[0] is instance:
            return
        if watched is not None:
            watched[1].cancel()
            del self._watching[driver]
            self._tell(self._cache.forget(driver))
        if instance is not None:
            task = asyncio.create_task(self._watch(instance), name=f"health of {driver}")
            self._watching[driver] = (instance, task)

    async def _watch(self, instance: Instance) -> None:
        import grpc
        import grpc.aio

        backoff = Backoff(base=0.2, cap=10.0)
        while True:
            try:
                async for report in instance.health():
                    backoff.reset()
                    self._tell(self._cache.take(instance.driver, report, _now()))
                    self._wake.set()
                why = "the stream ended"
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    _LOG.warning("DRA driver %s announces health and does not serve it", instance.driver)
                    return
                why = f"{error.code().name}: {error.details()}"
            except grpc.aio.UsageError as error:
                why = str(error)
            _LOG.info("health of DRA driver %s: %s", instance.driver, why)
            self._tell(self._cache.forget(instance.driver))
            await backoff.pause()

    def _tell(self, devices: Iterable[DeviceKey]) -> None:
        for pod_uid in dict.fromkeys(uid for key in devices for uid in self._pods_with_device(*key)):
            try:
                self.pods.put_nowait(pod_uid)
            except asyncio.QueueFull:
                _LOG.warning("health of devices: the status of pod %s is told later", pod_uid)


def _now() -> float:
    return asyncio.get_running_loop().time()
