"""All parts of dynamic resources on one node, put together. Source: kubelet `cm/dra`, as behaviour."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from haru.client.api import ApiClient
from haru.drivers.sockets import SocketError
from haru.kube.claim_uses import health_status
from haru.kube.meta import Obj, uid_of
from haru.node.dra.containers import used_devices
from haru.node.dra.devices import Prepared
from haru.node.dra.health import HealthWatcher
from haru.node.dra.manager import DeviceManager
from haru.node.dra.metrics import DraMetrics
from haru.node.dra.pod_resources import SOCKET, PodResourcesServer
from haru.node.dra.registry import LOOK_SECONDS, PluginRegistry
from haru.node.dra.slices import GRACE_SECONDS, SliceCleaner

RECONCILE_SECONDS: Final = 60.0
_LOG = logging.getLogger("haru.node.dra")


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """How devices are prepared here, in seconds. `with_health` is the gate ResourceHealthStatus."""

    with_health: bool = True
    look_seconds: float = LOOK_SECONDS
    """Between two looks for drivers."""
    grace_seconds: float = GRACE_SECONDS
    """How long slices of a driver stay that is gone."""
    reconcile_seconds: float = RECONCILE_SECONDS


class NodeDevices:
    """The `Devices` of a node agent. `load` comes first, then `run` beside everything else.

    `directory` is the node's (/var/lib/kubelet), `pods()` the pods that are bound to it, None while that is not known:
    what is prepared for pods that are not among them is given back.
    """

    def __init__(
        self,
        client: ApiClient,
        directory: Path,
        node_name: str,
        pods: Callable[[], Collection[Obj] | None],
        options: DeviceOptions | None = None,
    ) -> None:
        options = options or DeviceOptions()
        self._pods = pods
        self._socket = directory / SOCKET
        self._reconcile_seconds = options.reconcile_seconds
        self._with_health = options.with_health
        self.metrics = DraMetrics()
        self.registry = PluginRegistry(
            directory / "plugins_registry", self.metrics, self._changed, options.look_seconds
        )
        self.manager = DeviceManager(client, self.registry, directory, node_name, self.metrics)
        self.health = HealthWatcher(self.manager.pods_with_device)
        self._cleaner = SliceCleaner(client, node_name, self.registry.connected, options.grace_seconds)
        self._server = PodResourcesServer(lambda: pods() or (), self.manager.find, self.metrics)

    def load(self) -> None:
        """Read what was prepared before. Raises `CheckpointError`."""
        self.manager.load()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self._server.open(self._socket)
        except SocketError as error:
            _LOG.error("PodResources is not served: %s", error)
        try:
            async with asyncio.TaskGroup() as group:
                if self._with_health:
                    group.create_task(self.health.run(self.registry), name="health of devices")
                group.create_task(self._cleaner.run(), name="slices of drivers that are gone")
                group.create_task(self.registry.run(), name="DRA drivers")
                group.create_task(self._reconcile(), name="claims of pods that are gone")
        finally:
            await self._server.close()

    async def prepare(self, pod: Obj) -> Prepared:
        """Prepare the pod's claims. Raises `DevicesError`."""
        return await self.manager.prepare(pod)

    async def unprepare(self, pod_uid: str) -> None:
        """Unprepare the pod's claims. Raises `DevicesError`."""
        await self.manager.unprepare(pod_uid)

    def status(self, pod: Obj) -> dict[str, list[Obj]]:
        """Container -> `allocatedResourcesStatus`: how the devices of its claims are."""
        if not self._with_health:
            return {}
        return health_status(pod, partial(used_devices, find=self.manager.find), self.health.of)

    def lines(self) -> list[str]:
        """The lines of /metrics about devices."""
        return self.metrics.lines()

    async def pod_to_update(self) -> str:
        """Wait for the UID of a pod whose `allocatedResourcesStatus` is not what it was."""
        return await self.health.pods.get()

    def _changed(self, driver: str) -> None:
        self.health.changed(driver)
        self._cleaner.changed(driver)

    async def _reconcile(self) -> None:
        """Unprepare claims that a lost event or a crash left behind."""
        while True:
            await asyncio.sleep(self._reconcile_seconds)
            pods = self._pods()
            if pods is None:
                continue
            for error in await self.manager.reconcile({uid_of(pod) for pod in pods}):
                _LOG.warning("%s", error)
