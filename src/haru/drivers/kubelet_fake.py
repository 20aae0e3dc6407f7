"""A fake kubelet for `haru driver check`: find a driver, allocate claims on free devices, have them prepared.

What a driver does that a kubelet does not expect is a `ConformanceError`. Sources: KEP-4381, KEP-4680; the kubelet's
APIs as `protocol` has them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from haru.client.api import ApiClient
from haru.dra import AllocationError, InputError, allocate
from haru.drivers.cdi.reader import DIRECTORIES
from haru.drivers.protocol import HEALTH, REGISTRATION, V1, V1BETA1, method
from haru.drivers.sockets import call, channel
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, allocation_of, name_of, namespace_of, uid_of
from haru.proto import dra_pb2 as dra

if TYPE_CHECKING:
    import grpc.aio

CLAIMS: Final = known_kind("resource.k8s.io/v1", "ResourceClaim")
NODES: Final = known_kind("v1", "Node")
SLICES: Final = known_kind("resource.k8s.io/v1", "ResourceSlice")
REQUEST: Final = "checked"
_CLASS: Final = "haru-check"
_SECONDS: Final = 45.0
_LOOK_SECONDS: Final = 0.1


class ConformanceError(Exception):
    """The driver does something that a kubelet does not expect; the text says what, and what was expected."""


class CallFailed(ConformanceError):
    """The driver fails a whole call, whatever it has for the claims of it."""


class NotApplicable(Exception):
    """A check does not apply; the text says why."""


@dataclass(frozen=True, slots=True)
class DriverUnderTest:
    """The driver to check, and where it is."""

    driver: str
    node: str
    kubelet: Path
    cdi: Sequence[Path] = DIRECTORIES
    namespace: str = "default"
    restart: Callable[[], Awaitable[None]] | None = None
    """Kills the driver and starts it again; it need not wait until it is back."""
    seconds: float = _SECONDS


class FakeKubelet:
    """The calls that checks are made of. `find` comes first."""

    def __init__(self, client: ApiClient, subject: DriverUnderTest) -> None:
        self.client, self.subject = client, subject
        self.info = dra.PluginInfo()
        self.free: list[tuple[str, str]] = []
        """(pool, device) of all that nobody has."""

    async def find(self) -> dra.PluginInfo:
        """Wait for the driver's registrar and return its info."""
        deadline = asyncio.get_running_loop().time() + self.subject.seconds
        registry = self.subject.kubelet / "plugins_registry"
        while asyncio.get_running_loop().time() < deadline:
            for path in sorted(registry.rglob("*.sock")):
                try:
                    async with channel(path) as through:
                        info = await self._call(
                            through, method(REGISTRATION, "GetInfo"), dra.InfoRequest(), dra.PluginInfo, 5
                        )
                        if info.name == self.subject.driver:
                            status = dra.RegistrationStatus(plugin_registered=True)
                            notify = method(REGISTRATION, "NotifyRegistrationStatus")
                            await self._call(through, notify, status, dra.RegistrationStatusResponse, 5)
                            found: dra.PluginInfo = info
                            return found
                except ConformanceError:
                    continue
            await asyncio.sleep(_LOOK_SECONDS)
        raise ConformanceError(f"{registry}: no socket answers GetInfo with the name {self.subject.driver}")

    async def _call(self, through: grpc.aio.Channel, path: str, request: Any, answer: Any, seconds: float) -> Any:
        import grpc.aio

        try:
            return await call(through, path, answer)(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise CallFailed(f"{path}: {error.code().name}: {error.details() or 'no reason given'}") from None

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[grpc.aio.Channel]:
        async with channel(self.info.endpoint) as through:
            yield through

    def versions(self) -> list[str]:
        """The DRA services that are announced, the newest first."""
        return [version for version in (V1, V1BETA1) if version in self.info.supported_versions]

    async def prepare(self, *claims: dra.Claim, version: str = "") -> dict[str, dra.NodePrepareResourceResponse]:
        """NodePrepareResources; the answer mentions every claim."""
        async with self._open() as through:
            path = method(version or self.versions()[0], "NodePrepareResources")
            request = dra.NodePrepareResourcesRequest(claims=claims)
            answer = await self._call(through, path, request, dra.NodePrepareResourcesResponse, self.subject.seconds)
        _complete(path, claims, answer.claims)
        return dict(answer.claims)

    async def unprepare(self, *claims: dra.Claim, version: str = "") -> None:
        """NodeUnprepareResources without an error for any claim."""
        async with self._open() as through:
            path = method(version or self.versions()[0], "NodeUnprepareResources")
            request = dra.NodeUnprepareResourcesRequest(claims=claims)
            answer = await self._call(through, path, request, dra.NodeUnprepareResourcesResponse, self.subject.seconds)
        _complete(path, claims, answer.claims)
        for claim in claims:
            if error := answer.claims[claim.uid].error:
                raise ConformanceError(f"{path}: claim {claim.uid}: {error}")

    async def devices(self, claim: dra.Claim, version: str = "") -> list[dra.Device]:
        """The devices of a claim that can be prepared."""
        answer = (await self.prepare(claim, version=version))[claim.uid]
        if answer.error:
            raise ConformanceError(f"NodePrepareResources: claim {claim.uid}: {answer.error}")
        return sorted(answer.devices, key=lambda device: (device.pool_name, device.device_name))

    @asynccontextmanager
    async def claim(self) -> AsyncIterator[dra.Claim]:
        """Allocate a claim on a free device; unprepare and delete it at the end."""
        if not self.free:
            raise NotApplicable("no device of the driver is published on the node and free")
        pool, device = self.free[0]
        made = await _allocated(self.client, self.subject, pool, device)
        claim = dra.Claim(namespace=namespace_of(made), uid=uid_of(made), name=name_of(made))
        try:
            yield claim
        finally:
            try:
                await self.unprepare(claim)
            finally:
                await self.client.delete(CLAIMS, claim.name, claim.namespace, uid=claim.uid)

    async def reports(self, count: int) -> dra.NodeWatchResourcesResponse:
        """The last of so many reports of a new stream, which is then cut."""
        import grpc.aio

        if HEALTH not in self.info.supported_versions:
            raise NotApplicable(f"{HEALTH} is not announced")
        async with self._open() as through, asyncio.timeout(self.subject.seconds):
            watch = call(through, method(HEALTH, "NodeWatchResources"), dra.NodeWatchResourcesResponse, stream=True)(
                dra.NodeWatchResourcesRequest()
            )
            report = dra.NodeWatchResourcesResponse()
            try:
                for _ in range(count):
                    report = await watch.read()
                    if not isinstance(report, dra.NodeWatchResourcesResponse):
                        raise ConformanceError("NodeWatchResources: the stream ends by itself")
            except grpc.aio.AioRpcError as error:
                raise ConformanceError(f"NodeWatchResources: {error.code().name}: {error.details()}") from None
            watch.cancel()
        return report

    def restart(self) -> Callable[[], Awaitable[None]]:
        """What kills the driver and starts it again. Raises `NotApplicable`."""
        if self.subject.restart is None:
            raise NotApplicable("nothing was named that restarts the driver")
        return self.subject.restart


def _complete(path: str, claims: Sequence[dra.Claim], answers: Mapping[str, Any]) -> None:
    if set(answers) != {claim.uid for claim in claims}:
        raise ConformanceError(
            f"{path}: the answer is about {sorted(answers)}, asked was {sorted(c.uid for c in claims)}"
        )


async def taken(client: ApiClient, driver: str) -> set[tuple[str, str]]:
    """(pool, device) of all that claims have."""
    taken = set()
    for claim in (await client.list(CLAIMS))["items"]:
        allocation = allocation_of(claim) or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if result["driver"] == driver:
                taken.add((result["pool"], result["device"]))
    return taken


async def _allocated(client: ApiClient, subject: DriverUnderTest, pool: str, device: str) -> Obj:
    """A claim that is allocated as a scheduler does it, with the share that it gets of a device for several claims."""
    exactly = {"deviceClassName": _CLASS, "tolerations": [{"operator": "Exists"}]}
    spec = {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}}
    metadata = {"name": f"haru-check-{uuid.uuid4().hex[:8]}", "namespace": subject.namespace}
    found = (await client.list(SLICES, field_selector=f"spec.driver={subject.driver}"))["items"]
    slices = [_with_only(device, obj) for obj in found if obj["spec"]["pool"]["name"] == pool]
    node = await client.get(NODES, subject.node)
    classes = [{"metadata": {"name": _CLASS}, "spec": {}}]
    claim = {"metadata": metadata, "spec": spec}
    try:
        allocations = allocate([claim], node=node, slices=slices, classes=classes)
    except (AllocationError, InputError) as error:
        raise ConformanceError(f"device {pool}/{device} can not be allocated: {error}") from None
    if allocations is None:
        raise ConformanceError(f"device {pool}/{device} can not be allocated on the node {subject.node}")
    made = await client.create(CLAIMS, claim)
    try:
        return await client.update_status(CLAIMS, {**made, "status": {"allocation": allocations[0]}})
    except StatusError:
        await client.delete(CLAIMS, name_of(made), subject.namespace)
        raise


def _with_only(device: str, obj: Obj) -> Obj:
    devices = [one for one in obj["spec"].get("devices") or () if one["name"] == device]
    return {**obj, "spec": {**obj["spec"], "devices": devices}}
