"""A driver on a node: its sockets, its slices, its health, from start to stop.

    class Cards:
        async def prepare(self, claim): return [ReadyDevice(d, Edits(env=(f"CARD={d.device}",))) for d in claim.devices]
        async def unprepare(self, claim): pass

    server = DriverServer(Cards(), client, DriverOptions("cards.example.com", node_name, node_uid))
    async with server:
        await server.declare({node_name: Pool.of(devices)})
        await stopped.wait()

Sources: k8s.io/dynamic-resource-allocation `kubeletplugin`, as behaviour; KEP-4381, KEP-5304.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from haru.client.api import ApiClient
from haru.drivers.library import pools
from haru.drivers.library.claim_service import DriverFiles, Plugin, Preparer
from haru.drivers.library.errors import ClaimError
from haru.drivers.library.health import DeviceHealthStore, Health
from haru.drivers.library.pools import Pool
from haru.drivers.library.publisher import FOREIGN_SECONDS, SlicePublisher
from haru.drivers.protocol import HEALTH, PLUGIN_TYPE, REGISTRATION, SERVICES, V1, V1BETA1
from haru.drivers.sockets import remove, serve, streaming, unary
from haru.event_loop import cancelled
from haru.proto import dra_pb2 as dra

if TYPE_CHECKING:
    import grpc.aio

_LOG = logging.getLogger("haru.driver")
KUBELET: Final = Path("/var/lib/kubelet")
CDI: Final = Path("/var/run/cdi")


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """Which driver, on which node, and where its files are."""

    name: str
    node_name: str
    node_uid: str = ""
    kubelet: Path = KUBELET
    """The kubelet's directory: sockets are below its `plugins` and `plugins_registry`."""
    cdi: Path = CDI
    instance: str = ""
    """The UID of the driver's pod, for updates during which the old and the new instance run side by side."""
    versions: tuple[str, ...] = (V1, V1BETA1)
    """The DRA services that are announced and served."""
    metadata_versions: tuple[str, ...] = ()
    """The versions of metadata files in containers (KEP-5304); none means no files."""
    foreign_seconds: float = FOREIGN_SECONDS

    @property
    def data(self) -> Path:
        """The driver's own directory."""
        return self.kubelet / "plugins" / self.name

    @property
    def socket(self) -> Path:
        """Where the DRA service is."""
        return self.data / (f"dra-{self.instance}.sock" if self.instance else "dra.sock")

    @property
    def registrar(self) -> Path:
        """Where the kubelet finds the driver."""
        name = f"{self.name}-{self.instance}-reg.sock" if self.instance else f"{self.name}-reg.sock"
        return self.kubelet / "plugins_registry" / name


class DriverServer:
    """Serves one driver while it is entered. `withdraw` before leaving removes the slices, too."""

    def __init__(self, plugin: Plugin, client: ApiClient, options: DriverOptions) -> None:
        self._options = options
        files = DriverFiles(options.data, options.cdi, options.metadata_versions)
        self._preparer = Preparer(plugin, options.name, client, files)
        who = pools.Publisher(options.name, options.node_name, options.node_uid)
        self._publisher = SlicePublisher(client, who, options.foreign_seconds)
        self._health = DeviceHealthStore()
        self._pools: dict[str, Pool] = {}
        self._given: dict[tuple[str, str], Health] = {}
        self._servers: list[grpc.aio.Server] = []
        self._publishing: asyncio.Task[None] | None = None
        self.registered = asyncio.Event()
        """Set once a kubelet has taken the driver."""
        self.refusal = ""
        """Why a kubelet did not take it."""

    @property
    def preparer(self) -> Preparer:
        """The claims that are prepared, and their metadata files."""
        return self._preparer

    async def __aenter__(self) -> DriverServer:
        """Serve. Raises `CheckpointError`, `SocketError`, OSError."""
        self._preparer.load()
        services = {SERVICES[version]: self._dra(version) for version in self._options.versions}
        services[SERVICES[HEALTH]] = {"NodeWatchResources": streaming(self._watch, dra.NodeWatchResourcesRequest)}
        self._servers.append(await serve(self._options.socket, services))
        registration = {
            "GetInfo": unary(self._info, dra.InfoRequest),
            "NotifyRegistrationStatus": unary(self._notified, dra.RegistrationStatus),
        }
        # Last: whoever finds the registrar finds everything else, too.
        self._servers.append(await serve(self._options.registrar, {REGISTRATION: registration}))
        self._publishing = asyncio.create_task(self._publisher.run(), name=f"{self._options.name} slices")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        remove(self._options.registrar)
        for server in reversed(self._servers):
            await server.stop(1.0)
        self._servers = []
        remove(self._options.socket)
        if self._publishing is not None:
            await cancelled(self._publishing)

    # -- what there is ------------------------------------------------------------------------------------------------

    async def declare(self, wanted: Mapping[str, Pool]) -> None:
        """The driver's pools, by name; devices that are new are healthy."""
        self._pools = dict(wanted)
        self._publisher.declare(wanted)
        await self._show()

    async def set_health(self, devices: Mapping[tuple[str, str], Health]) -> None:
        """How devices are, (pool, device) -> health; those that are not named are healthy."""
        self._given = dict(devices)
        await self._show()

    async def _show(self) -> None:
        keys = [(name, device) for name, pool in self._pools.items() for device in pool.devices()]
        await self._health.replace({key: self._given.get(key, Health()) for key in keys})
        taints = self._health.taints()
        for name in self._pools:
            self._publisher.taint(name, taints.get(name, {}))

    async def wait_published(self) -> None:
        """Wait until what is declared has been written."""
        waiting = asyncio.ensure_future(self._publisher.wait_published())
        assert self._publishing is not None
        await asyncio.wait({waiting, self._publishing}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            await self._publishing  # raises what ended it
        await waiting

    async def withdraw(self) -> None:
        """Remove the slices: no new pod is to get a device."""
        await self._publisher.withdraw()

    # -- calls --------------------------------------------------------------------------------------------------------

    def _dra(self, version: str) -> dict[str, Any]:
        async def prepare(request: dra.NodePrepareResourcesRequest, _: Any) -> dra.NodePrepareResourcesResponse:
            return await self._prepare(request, with_shares=version == V1)

        return {
            "NodePrepareResources": unary(prepare, dra.NodePrepareResourcesRequest),
            "NodeUnprepareResources": unary(self._unprepare, dra.NodeUnprepareResourcesRequest),
        }

    async def _prepare(
        self, request: dra.NodePrepareResourcesRequest, with_shares: bool
    ) -> dra.NodePrepareResourcesResponse:
        answer = dra.NodePrepareResourcesResponse()
        for claim in request.claims:
            try:
                devices = await self._preparer.prepare(claim)
            except ClaimError as error:
                _LOG.warning("claim %s/%s (%s): %s", claim.namespace, claim.name, claim.uid, error)
                answer.claims[claim.uid].error = str(error)
                continue
            for device in devices:
                if not with_shares:
                    device.share_id = ""
            answer.claims[claim.uid].devices.extend(devices)
        return answer

    async def _unprepare(
        self, request: dra.NodeUnprepareResourcesRequest, _: Any
    ) -> dra.NodeUnprepareResourcesResponse:
        answer = dra.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            try:
                await self._preparer.unprepare(claim)
            except ClaimError as error:
                _LOG.warning("claim %s/%s (%s): %s", claim.namespace, claim.name, claim.uid, error)
                answer.claims[claim.uid].error = str(error)
            else:
                answer.claims.get_or_create(claim.uid)
        return answer

    async def _watch(self, _: dra.NodeWatchResourcesRequest, __: Any) -> AsyncIterator[dra.NodeWatchResourcesResponse]:
        async for report in self._health.reports():
            yield report

    async def _info(self, _: dra.InfoRequest, __: Any) -> dra.PluginInfo:
        versions: Sequence[str] = (*self._options.versions, HEALTH)
        return dra.PluginInfo(
            type=PLUGIN_TYPE,
            name=self._options.name,
            endpoint=str(self._options.socket.absolute()),
            supported_versions=versions,
        )

    async def _notified(self, status: dra.RegistrationStatus, _: Any) -> dra.RegistrationStatusResponse:
        self.refusal = status.error
        if status.plugin_registered:
            _LOG.info("registered with the kubelet")
            self.registered.set()
        else:
            _LOG.error("the kubelet refused to register %s: %s", self._options.name, status.error)
        return dra.RegistrationStatusResponse()
