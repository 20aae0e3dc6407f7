"""What a kubelet relies on in a DRA driver, tried on one that runs: `haru driver check`.

It plays the kubelet: finds the driver's sockets, makes claims that it allocates itself on devices that nobody has, and
prepares them in every way in which a kubelet may. Nothing is left behind. Sources: KEP-4381, KEP-4680; the kubelet's
APIs as `protocol` has them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from haru.client.api import ApiClient
from haru.drivers.cdi.edits import CdiError, split_id
from haru.drivers.cdi.reading import DIRECTORIES, CdiFiles
from haru.drivers.protocol import (
    HEALTH,
    PLUGIN_TYPE,
    REGISTRATION,
    V1,
    V1BETA1,
    Claim,
    ClaimsRequest,
    Device,
    Empty,
    HealthReport,
    PluginInfo,
    PrepareAnswer,
    PreparedClaim,
    RegistrationStatus,
    UnprepareAnswer,
    method,
)
from haru.drivers.sockets import call, channel
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import name_of, namespace_of, uid_of
from haru.protobuf import WireError

if TYPE_CHECKING:
    import grpc.aio

Obj = dict[str, Any]
SLICES: Final = known_kind("resource.k8s.io/v1", "ResourceSlice")
CLAIMS: Final = known_kind("resource.k8s.io/v1", "ResourceClaim")
REQUEST: Final = "checked"
_SECONDS: Final = 45.0
_LOOK_SECONDS: Final = 0.1


class Wrong(Exception):
    """The driver does something that a kubelet does not expect; the text says what, and what was expected."""


class NotApplicable(Exception):
    """There is nothing to try; the text says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check: `passed`, `failed` or `not applicable`, and why."""

    name: str
    verdict: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The driver to check, and where it is."""

    driver: str
    node: str
    kubelet: Path
    cdi: Sequence[Path] = DIRECTORIES
    namespace: str = "default"
    restart: Callable[[], Awaitable[None]] | None = None
    """Kills the driver and starts it again; it need not wait until it is back."""
    seconds: float = _SECONDS


class Conformance:
    """All checks, in the order in which they make sense."""

    def __init__(self, client: ApiClient, subject: Subject) -> None:
        self._client = client
        self._subject = subject
        self._info = PluginInfo()
        self._free: list[tuple[str, str]] = []

    async def run(self) -> list[Result]:
        """Try everything. Raises `StatusError` and OSError if the API server does not play along."""
        results = []
        for name, check in CHECKS.items():
            try:
                async with asyncio.timeout(self._subject.seconds * 3):
                    await check(self)
            except NotApplicable as error:
                results.append(Result(name, "not applicable", str(error)))
            except (Wrong, WireError) as error:
                results.append(Result(name, "failed", str(error)))
            except TimeoutError:
                results.append(Result(name, "failed", "the driver took too long"))
            else:
                results.append(Result(name, "passed"))
            if name == "registration" and not self._info.endpoint:
                break
        return results

    # -- what checks are made of --------------------------------------------------------------------------------------

    async def _find(self) -> PluginInfo:
        """What the driver says at its registrar, once it answers."""
        deadline = asyncio.get_running_loop().time() + self._subject.seconds
        registry = self._subject.kubelet / "plugins_registry"
        while asyncio.get_running_loop().time() < deadline:
            for path in sorted(registry.rglob("*.sock")):
                try:
                    async with channel(path) as through:
                        info = await self._call(through, method(REGISTRATION, "GetInfo"), Empty(), PluginInfo, 5)
                        if info.name == self._subject.driver:
                            status = RegistrationStatus(True)
                            notify = method(REGISTRATION, "NotifyRegistrationStatus")
                            await self._call(through, notify, status, Empty, 5)
                            found: PluginInfo = info
                            return found
                except Wrong:
                    continue
            await asyncio.sleep(_LOOK_SECONDS)
        raise Wrong(f"{registry}: no socket answers GetInfo with the name {self._subject.driver}")

    async def _call(self, through: grpc.aio.Channel, path: str, request: Any, answer: Any, seconds: float) -> Any:
        import grpc.aio

        try:
            return await call(through, path, answer)(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise Wrong(f"{path}: {error.code().name}: {error.details() or 'no reason given'}") from None

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[grpc.aio.Channel]:
        async with channel(self._info.endpoint) as through:
            yield through

    def _versions(self) -> list[str]:
        return [version for version in (V1, V1BETA1) if version in self._info.supported_versions]

    async def prepare(self, *claims: Claim, version: str = "") -> dict[str, PreparedClaim]:
        """NodePrepareResources; the answer mentions every claim."""
        async with self._open() as through:
            path = method(version or self._versions()[0], "NodePrepareResources")
            answer = await self._call(through, path, ClaimsRequest(list(claims)), PrepareAnswer, self._subject.seconds)
        _complete(path, claims, answer.claims)
        found: dict[str, PreparedClaim] = answer.claims
        return found

    async def unprepare(self, *claims: Claim, version: str = "") -> None:
        """NodeUnprepareResources without an error for any claim."""
        async with self._open() as through:
            path = method(version or self._versions()[0], "NodeUnprepareResources")
            request = ClaimsRequest(list(claims))
            answer = await self._call(through, path, request, UnprepareAnswer, self._subject.seconds)
        _complete(path, claims, answer.claims)
        for claim in claims:
            if error := answer.claims[claim.uid].error:
                raise Wrong(f"{path}: claim {claim.uid}: {error}")

    async def devices(self, claim: Claim, version: str = "") -> list[Device]:
        """The devices of a claim that can be prepared."""
        answer = (await self.prepare(claim, version=version))[claim.uid]
        if answer.error:
            raise Wrong(f"NodePrepareResources: claim {claim.uid}: {answer.error}")
        return sorted(answer.devices, key=lambda device: (device.pool_name, device.device_name))

    @asynccontextmanager
    async def claim(self) -> AsyncIterator[Claim]:
        """An allocated claim on a device that nobody has; it is given back and deleted."""
        if not self._free:
            raise NotApplicable("no device of the driver is published on the node and free")
        pool, device = self._free[0]
        made = await _allocated(self._client, self._subject, pool, device)
        claim = Claim(namespace_of(made), uid_of(made), name_of(made))
        try:
            yield claim
        finally:
            try:
                await self.unprepare(claim)
            finally:
                await self._client.delete(CLAIMS, claim.name, claim.namespace, uid=claim.uid)

    async def reports(self, count: int) -> HealthReport:
        """The last of so many reports of a new stream, which is then cut."""
        import grpc.aio

        if HEALTH not in self._info.supported_versions:
            raise NotApplicable(f"{HEALTH} is not announced")
        async with self._open() as through, asyncio.timeout(self._subject.seconds):
            watch = call(through, method(HEALTH, "NodeWatchResources"), HealthReport, stream=True)(Empty())
            report = HealthReport()
            try:
                for _ in range(count):
                    report = await watch.read()
                    if not isinstance(report, HealthReport):
                        raise Wrong("NodeWatchResources: the stream ends by itself")
            except grpc.aio.AioRpcError as error:
                raise Wrong(f"NodeWatchResources: {error.code().name}: {error.details()}") from None
            watch.cancel()
        return report

    # -- checks -------------------------------------------------------------------------------------------------------

    async def check_registration(self) -> None:
        """Who the driver is, and where its services are."""
        info = await self._find()
        if info.type != PLUGIN_TYPE:
            raise Wrong(f'GetInfo: type: "{info.type}": {PLUGIN_TYPE} is expected')
        if not info.endpoint.startswith("/") or not _is_socket(info.endpoint):
            raise Wrong(f'GetInfo: endpoint: "{info.endpoint}": the absolute path of a socket is expected')
        if not {V1, V1BETA1} & set(info.supported_versions):
            told = ", ".join(info.supported_versions)
            raise Wrong(f'GetInfo: supported_versions: "{told}": {V1} or {V1BETA1} is expected')
        self._info = info
        if await self._find() != info:
            raise Wrong("GetInfo: two answers differ")

    async def check_versions(self) -> None:
        """Every service that is announced is served."""
        for version in self._versions():
            if answers := await self.prepare(version=version):
                raise Wrong(f"{version}: answers about claims nobody asked for: {sorted(answers)}")
            await self.unprepare(version=version)

    async def check_slices(self) -> None:
        """The pools of the node are complete and say where they are."""
        selector = f"spec.driver={self._subject.driver},spec.nodeName={self._subject.node}"
        found = (await self._client.list(SLICES, field_selector=selector))["items"]
        if not found:
            raise Wrong(f"no ResourceSlice of the driver has spec.nodeName {self._subject.node}")
        pools: dict[str, list[Obj]] = {}
        for obj in found:
            pools.setdefault(obj["spec"]["pool"]["name"], []).append(obj["spec"])
        for name, specs in pools.items():
            newest = max(spec["pool"]["generation"] for spec in specs)
            current = [spec for spec in specs if spec["pool"]["generation"] == newest]
            if len(current) != current[0]["pool"]["resourceSliceCount"]:
                raise Wrong(f"pool {name}: {len(current)} slices, {current[0]['pool']['resourceSliceCount']} announced")
            names = [device["name"] for spec in current for device in spec.get("devices") or ()]
            if len(set(names)) != len(names):
                raise Wrong(f"pool {name}: a device is listed twice")
            self._free += [(name, device) for device in names]
        taken = await _taken(self._client, self._subject.driver)
        self._free = [key for key in self._free if key not in taken]

    async def check_prepare(self) -> None:
        """A prepared claim has the device that was allocated, and CDI ids that lead somewhere."""
        async with self.claim() as claim:
            devices = await self.devices(claim)
            if [(device.pool_name, device.device_name) for device in devices] != [self._free[0]]:
                told = [f"{device.pool_name}/{device.device_name}" for device in devices]
                raise Wrong(f"prepared {told}, allocated was {'/'.join(self._free[0])}")
            (device,) = devices
            if not set(device.request_names) <= {REQUEST}:
                raise Wrong(f"request_names: {device.request_names}: {REQUEST} or nothing is expected")
            for id_ in device.cdi_device_ids:
                try:
                    split_id(id_)
                    if id_ not in CdiFiles(self._subject.cdi).ids():
                        raise Wrong(f"cdi_device_ids: {id_}: no CDI file defines it")
                except CdiError as error:
                    raise Wrong(f"cdi_device_ids: {error}") from None

    async def check_prepare_twice(self) -> None:
        """The same again, in every version."""
        async with self.claim() as claim:
            first = await self.devices(claim)
            for version in [*self._versions(), *self._versions()]:
                again = await self.devices(claim, version)
                if [_essence(device) for device in again] != [_essence(device) for device in first]:
                    raise Wrong(f"{version}: the second answer is another one: {again} in place of {first}")

    async def check_wrong_claims(self) -> None:
        """A claim that is another one, or is not there, has an error, and harms no other claim of the call."""
        missing = Claim(self._subject.namespace, str(uuid.uuid4()), f"haru-check-{uuid.uuid4().hex[:8]}")
        async with self.claim() as claim:
            other = Claim(claim.namespace, str(uuid.uuid4()), claim.name)
            answers = await self.prepare(claim, other, missing)
            if answers[claim.uid].error:
                raise Wrong(f"a good claim beside bad ones: {answers[claim.uid].error}")
            if not answers[other.uid].error:
                raise Wrong("a claim whose UID is another one's is prepared")
            if not answers[missing.uid].error:
                raise Wrong("a claim that is not there is prepared")
            await self.unprepare(other, missing)

    async def check_unprepare(self) -> None:
        """Twice, and for claims that were never prepared; then it can be prepared again."""
        async with self.claim() as claim:
            await self.unprepare(claim)
            for version in self._versions():
                await self.devices(claim, version)
                await self.unprepare(claim, version=version)
                await self.unprepare(claim, version=version)
            unknown = Claim(self._subject.namespace, str(uuid.uuid4()), "haru-check-never")
            await self.unprepare(unknown)

    async def check_restart(self) -> None:
        """A driver that was killed registers again, and knows what it had prepared."""
        restart = self._restart()
        async with self.claim() as claim:
            first = await self.devices(claim)
            await restart()
            self._info = await self._find()
            again = await self.devices(claim)
            if [_essence(device) for device in again] != [_essence(device) for device in first]:
                raise Wrong(f"after a restart the answer is another one: {again} in place of {first}")
            await restart()
            self._info = await self._find()
            await self.unprepare(claim)

    async def check_restart_in_the_middle(self) -> None:
        """A driver that is killed while it prepares, or gives back, can do so afterwards."""
        restart = self._restart()
        async with self.claim() as claim:
            for work in (self.devices, self.unprepare):
                began: asyncio.Task[Any] = asyncio.create_task(work(claim))
                await restart()
                await asyncio.gather(began, return_exceptions=True)
                self._info = await self._find()
                await self.devices(claim)
            await self.unprepare(claim)

    async def check_health(self) -> None:
        """The first report lists the devices of the driver; streams that are cut do no harm."""
        for _ in range(3):
            report = await self.reports(1)
            for told in report.devices:
                if told.device is None or not told.device.device_name:
                    raise Wrong("NodeWatchResources: a report without a device")
                if told.health not in (0, 1, 2):
                    raise Wrong(f"NodeWatchResources: health: {told.health}: 0, 1 or 2 is expected")
            known = {(told.device.pool_name, told.device.device_name) for told in report.devices if told.device}
            if lacking := [key for key in self._free if key not in known]:
                raise Wrong(f"NodeWatchResources: the report lacks {'/'.join(lacking[0])}, which is published")
        await self.check_versions()

    def _restart(self) -> Callable[[], Awaitable[None]]:
        if self._subject.restart is None:
            raise NotApplicable("nothing was named that restarts the driver")
        return self._subject.restart


CHECKS: Final[dict[str, Callable[[Conformance], Awaitable[None]]]] = {
    "registration": Conformance.check_registration,
    "versions": Conformance.check_versions,
    "slices": Conformance.check_slices,
    "prepare": Conformance.check_prepare,
    "prepare twice": Conformance.check_prepare_twice,
    "wrong claims": Conformance.check_wrong_claims,
    "unprepare": Conformance.check_unprepare,
    "restart": Conformance.check_restart,
    "restart in the middle": Conformance.check_restart_in_the_middle,
    "health": Conformance.check_health,
}


def _is_socket(path: str) -> bool:
    return Path(path).is_socket()


def _essence(device: Device) -> tuple[Any, ...]:
    """What of a device is the same in both versions."""
    return (device.pool_name, device.device_name, sorted(device.request_names), sorted(device.cdi_device_ids))


def _complete(path: str, claims: Sequence[Claim], answers: dict[str, Any]) -> None:
    if set(answers) != {claim.uid for claim in claims}:
        raise Wrong(f"{path}: the answer is about {sorted(answers)}, asked was {sorted(c.uid for c in claims)}")


async def _taken(client: ApiClient, driver: str) -> set[tuple[str, str]]:
    """(pool, device) of all that claims have."""
    taken = set()
    for claim in (await client.list(CLAIMS))["items"]:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if result["driver"] == driver:
                taken.add((result["pool"], result["device"]))
    return taken


async def _allocated(client: ApiClient, subject: Subject, pool: str, device: str) -> Obj:
    """A claim that is allocated as a scheduler does it."""
    request = {"name": REQUEST, "exactly": {"deviceClassName": "haru-check"}}
    metadata = {"name": f"haru-check-{uuid.uuid4().hex[:8]}", "namespace": subject.namespace}
    made = await client.create(CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [subject.node]}]}
    result = {"request": REQUEST, "driver": subject.driver, "pool": pool, "device": device}
    made["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}}
    try:
        return await client.update_status(CLAIMS, made)
    except StatusError:
        await client.delete(CLAIMS, name_of(made), subject.namespace)
        raise
