"""Discovery of DRA drivers by the sockets in the registry directory.

The directory is looked at twice a second. A socket that was made anew (a driver that was killed and came back) is
another socket, whatever it is called. Source: kubelet `pluginmanager` and `cm/dra/plugin`, as behaviour; the API
pluginregistration.v1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from haru.client.backoff import Backoff
from haru.drivers.protocol import HEALTH, PLUGIN_TYPE, REGISTRATION, method
from haru.drivers.sockets import call, channel, too_long
from haru.event_loop import cancelled
from haru.kube.names import is_dns1123_subdomain
from haru.node.dra.errors import DriverMissing
from haru.node.dra.metrics import DraMetrics
from haru.node.dra.plugins import Instance, negotiate
from haru.proto import MessageError
from haru.proto import dra_pb2 as dra

_LOG = logging.getLogger("haru.node.dra")
LOOK_SECONDS: Final = 0.5
_ASK_SECONDS: Final = 5.0
_LONGEST_NAME: Final = 63
Identity = tuple[int, int, int]


class RegistrationRefused(Exception):
    """A plugin cannot be registered; it gets the text."""


class PluginRegistry:
    """The drivers that are registered on this node. `run` keeps it so; `changed` is called with a driver's name."""

    def __init__(
        self,
        directory: Path,
        metrics: DraMetrics,
        changed: Callable[[str], None] = lambda driver: None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._directory = directory
        self._metrics = metrics
        self._changed = changed
        self._look_seconds = look_seconds
        self._instances: dict[Path, Instance] = {}
        self._asking: dict[Path, tuple[Identity, asyncio.Task[None]]] = {}

    def drivers(self) -> set[str]:
        """The names of all registered drivers."""
        return {instance.driver for instance in self._instances.values()}

    def connected(self) -> set[str]:
        """The names of the drivers that can be reached."""
        return {instance.driver for instance in self._instances.values() if instance.connected}

    def find(self, driver: str) -> Instance | None:
        """The instance to ask: the one that registered last, if possible one that is connected."""
        mine = [instance for instance in self._instances.values() if instance.driver == driver]
        return max(mine, key=lambda instance: (instance.connected, instance.number), default=None)

    def get(self, driver: str) -> Instance:
        """The instance to ask. Raises `DriverMissing`."""
        found = self.find(driver)
        if found is None:
            raise DriverMissing(f"DRA driver {driver} is not registered")
        return found

    async def run(self) -> None:
        """Watch the directory until cancelled."""
        try:
            while True:
                self._look()
                await asyncio.sleep(self._look_seconds)
        finally:
            await cancelled(*[task for _, task in self._asking.values()])

    def _look(self) -> None:
        found = _sockets(self._directory)
        for path, (identity, task) in list(self._asking.items()):
            if found.get(path) != identity:
                del self._asking[path]
                task.cancel()
        for path, identity in found.items():
            if path not in self._asking:
                task = asyncio.create_task(self._keep(path), name=f"plugin {path.name}")
                self._asking[path] = (identity, task)

    async def _keep(self, path: Path) -> None:
        """Register what is behind a socket; deregister it when the socket is gone, which cancels this."""
        backoff = Backoff()
        while True:
            try:
                instance = await self._register(path)
            except RegistrationRefused as error:
                _LOG.warning("%s: %s", path, error)
                return
            except (OSError, MessageError) as error:
                _LOG.info("%s: %s", path, error)
                await asyncio.sleep(min(backoff.next(), 10.0))
                continue
            break
        self._instances[path] = instance
        _LOG.info("registered DRA driver %s at %s, %s", instance.driver, instance.endpoint, instance.version)
        self._changed(instance.driver)
        try:
            while True:
                await instance.connection_changed()
                self._changed(instance.driver)
        finally:
            if self._instances.get(path) is instance:
                del self._instances[path]
            _LOG.info("deregistered DRA driver %s at %s", instance.driver, instance.endpoint)
            self._changed(instance.driver)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(instance.close())

    async def _register(self, path: Path) -> Instance:
        """Get the info, check it, notify the plugin. Raises `RegistrationRefused`; OSError without an answer."""
        import grpc.aio

        if told := too_long(path):
            raise RegistrationRefused(told)
        async with channel(path) as through:
            try:
                ask = call(through, method(REGISTRATION, "GetInfo"), dra.PluginInfo)
                info: dra.PluginInfo = await ask(dra.InfoRequest(), timeout=_ASK_SECONDS)
                tell = call(through, method(REGISTRATION, "NotifyRegistrationStatus"), dra.RegistrationStatusResponse)
                try:
                    instance = self._judge(path, info)
                except RegistrationRefused as error:
                    await tell(dra.RegistrationStatus(error=str(error)), timeout=_ASK_SECONDS)
                    raise
                try:
                    await tell(dra.RegistrationStatus(plugin_registered=True), timeout=_ASK_SECONDS)
                except BaseException:
                    await instance.close()
                    raise
            except grpc.aio.AioRpcError as error:
                raise OSError(f"{error.code().name}: {error.details()}") from None
        return instance

    def _judge(self, path: Path, info: dra.PluginInfo) -> Instance:
        if info.type != PLUGIN_TYPE:
            raise RegistrationRefused(f'type: "{info.type}": only {PLUGIN_TYPE} is registered here')
        if len(info.name) > _LONGEST_NAME or is_dns1123_subdomain(info.name):
            raise RegistrationRefused(
                f'name: "{info.name}": no name of a driver: write a DNS subdomain of at most 63 characters'
            )
        endpoint = info.endpoint or str(path.absolute())
        if not endpoint.startswith("/"):
            raise RegistrationRefused(f'endpoint: "{endpoint}": write an absolute path')
        if told := too_long(endpoint):
            raise RegistrationRefused(f'endpoint: "{endpoint}": {told}')
        version = negotiate(info.supported_versions)
        if not version:
            told = ", ".join(info.supported_versions) or "none"
            raise RegistrationRefused(f"supported_versions: {told}: name v1.DRAPlugin or v1beta1.DRAPlugin")
        for other_path, other in self._instances.items():
            if other.endpoint == endpoint and other_path != path:
                raise RegistrationRefused(f'endpoint: "{endpoint}": registered by {other_path.name}')
        return Instance(info.name, endpoint, version, HEALTH in info.supported_versions, path, self._metrics)


def _sockets(directory: Path) -> dict[Path, Identity]:
    """The sockets in a directory and those below it; hidden ones are left out."""
    found: dict[Path, Identity] = {}
    try:
        entries = list(directory.rglob("*"))
    except OSError:
        return found
    for path in entries:
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISSOCK(status.st_mode) and not path.name.startswith("."):
                found[path] = (status.st_dev, status.st_ino, status.st_ctime_ns)
    return found
