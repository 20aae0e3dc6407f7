"""What a kubelet relies on in a DRA driver, tried on one that runs: `haru driver check`.

It plays the kubelet: finds the driver's sockets, makes claims that it allocates itself on devices that nobody has, and
prepares them in every way in which a kubelet may. Nothing is left behind.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from haru.drivers.cdi.edits import CdiError, split_id
from haru.drivers.cdi.reader import CdiFiles
from haru.drivers.kubelet_fake import (
    REQUEST,
    SLICES,
    CallFailed,
    ConformanceError,
    DriverUnderTest,
    FakeKubelet,
    NotApplicable,
    taken,
)
from haru.drivers.protocol import PLUGIN_TYPE, V1, V1BETA1
from haru.kube.meta import Obj
from haru.proto import MessageError
from haru.proto import dra_pb2 as dra

__all__ = ["CHECKS", "Conformance", "DriverUnderTest", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check: `passed`, `failed` or `not applicable`, and why."""

    name: str
    verdict: str
    message: str = ""


class Conformance(FakeKubelet):
    """All checks, in order."""

    async def run(self) -> list[Result]:
        """Try everything. Raises `StatusError` and OSError if the API server does not play along."""
        results = []
        for name, check in CHECKS.items():
            try:
                async with asyncio.timeout(self.subject.seconds * 3):
                    await check(self)
            except NotApplicable as error:
                results.append(Result(name, "not applicable", str(error)))
            except (ConformanceError, MessageError) as error:
                results.append(Result(name, "failed", str(error)))
            except TimeoutError:
                results.append(Result(name, "failed", "the driver took too long"))
            else:
                results.append(Result(name, "passed"))
            if name == "registration" and not self.info.endpoint:
                break
        return results

    # -- checks -------------------------------------------------------------------------------------------------------

    async def check_registration(self) -> None:
        """Who the driver is, and where its services are."""
        info = await self.find()
        if info.type != PLUGIN_TYPE:
            raise ConformanceError(f'GetInfo: type: "{info.type}": {PLUGIN_TYPE} is expected')
        if not info.endpoint.startswith("/") or not _is_socket(info.endpoint):
            raise ConformanceError(f'GetInfo: endpoint: "{info.endpoint}": the absolute path of a socket is expected')
        if not {V1, V1BETA1} & set(info.supported_versions):
            told = ", ".join(info.supported_versions)
            raise ConformanceError(f'GetInfo: supported_versions: "{told}": {V1} or {V1BETA1} is expected')
        self.info = info
        if await self.find() != info:
            raise ConformanceError("GetInfo: two answers differ")

    async def check_versions(self) -> None:
        """Every service that is announced is served."""
        for version in self.versions():
            if answers := await self.prepare(version=version):
                raise ConformanceError(f"{version}: answers about claims nobody asked for: {sorted(answers)}")
            await self.unprepare(version=version)

    async def check_slices(self) -> None:
        """The pools of the node are complete."""
        selector = f"spec.driver={self.subject.driver},spec.nodeName={self.subject.node}"
        found = (await self.client.list(SLICES, field_selector=selector))["items"]
        if not found:
            raise ConformanceError(f"no ResourceSlice of the driver has spec.nodeName {self.subject.node}")
        pools: dict[str, list[Obj]] = {}
        for obj in found:
            pools.setdefault(obj["spec"]["pool"]["name"], []).append(obj["spec"])
        for name, specs in pools.items():
            newest = max(spec["pool"]["generation"] for spec in specs)
            current = [spec for spec in specs if spec["pool"]["generation"] == newest]
            if len(current) != current[0]["pool"]["resourceSliceCount"]:
                raise ConformanceError(
                    f"pool {name}: {len(current)} slices, {current[0]['pool']['resourceSliceCount']} announced"
                )
            names = [device["name"] for spec in current for device in spec.get("devices") or ()]
            if len(set(names)) != len(names):
                raise ConformanceError(f"pool {name}: a device is listed twice")
            self.free += [(name, device) for device in names]
        held = await taken(self.client, self.subject.driver)
        self.free = [key for key in self.free if key not in held]

    async def check_prepare(self) -> None:
        """A prepared claim has the device that was allocated, and CDI ids that lead somewhere."""
        async with self.claim() as claim:
            devices = await self.devices(claim)
            if [(device.pool_name, device.device_name) for device in devices] != [self.free[0]]:
                told = [f"{device.pool_name}/{device.device_name}" for device in devices]
                raise ConformanceError(f"prepared {told}, allocated was {'/'.join(self.free[0])}")
            (device,) = devices
            if not set(device.request_names) <= {REQUEST}:
                raise ConformanceError(f"request_names: {device.request_names}: {REQUEST} or nothing is expected")
            for id_ in device.cdi_device_ids:
                try:
                    split_id(id_)
                    if id_ not in CdiFiles(self.subject.cdi).ids():
                        raise ConformanceError(f"cdi_device_ids: {id_}: no CDI file defines it")
                except CdiError as error:
                    raise ConformanceError(f"cdi_device_ids: {error}") from None

    async def check_prepare_twice(self) -> None:
        """The same again, in every version."""
        async with self.claim() as claim:
            first = await self.devices(claim)
            for version in [*self.versions(), *self.versions()]:
                again = await self.devices(claim, version)
                if [_essence(device) for device in again] != [_essence(device) for device in first]:
                    raise ConformanceError(f"{version}: the second answer is another one: {again} in place of {first}")

    async def check_wrong_claims(self) -> None:
        """A claim that is another one, or is not there, is not prepared, and harms no other claim for long.

        Upstream's kubeletplugin helper fails the whole call for it: the kubelet asks again, then without such a claim.
        """
        missing = dra.Claim(
            namespace=self.subject.namespace, uid=str(uuid.uuid4()), name=f"haru-check-{uuid.uuid4().hex[:8]}"
        )
        async with self.claim() as claim:
            other = dra.Claim(namespace=claim.namespace, uid=str(uuid.uuid4()), name=claim.name)
            try:
                answers = await self.prepare(claim, other, missing)
                if answers[claim.uid].error:
                    raise ConformanceError(f"a good claim beside bad ones: {answers[claim.uid].error}")
            except CallFailed:
                await self.devices(claim)
            if not await self.refuses(other):
                raise ConformanceError("a claim whose UID is another one's is prepared")
            if not await self.refuses(missing):
                raise ConformanceError("a claim that is not there is prepared")
            await self.unprepare(other, missing)

    async def refuses(self, claim: dra.Claim) -> bool:
        """Whether a claim cannot be prepared."""
        try:
            return bool((await self.prepare(claim))[claim.uid].error)
        except CallFailed:
            return True

    async def check_unprepare(self) -> None:
        """Twice, and for claims that were never prepared; then it can be prepared again."""
        async with self.claim() as claim:
            await self.unprepare(claim)
            for version in self.versions():
                await self.devices(claim, version)
                await self.unprepare(claim, version=version)
                await self.unprepare(claim, version=version)
            unknown = dra.Claim(namespace=self.subject.namespace, uid=str(uuid.uuid4()), name="haru-check-never")
            await self.unprepare(unknown)

    async def check_restart(self) -> None:
        """A driver that was killed registers again, and knows what it had prepared."""
        restart = self.restart()
        async with self.claim() as claim:
            first = await self.devices(claim)
            await restart()
            self.info = await self.find()
            again = await self.devices(claim)
            if [_essence(device) for device in again] != [_essence(device) for device in first]:
                raise ConformanceError(f"after a restart the answer is another one: {again} in place of {first}")
            await restart()
            self.info = await self.find()
            await self.unprepare(claim)

    async def check_restart_in_the_middle(self) -> None:
        """A driver that is killed while it prepares or unprepares can repeat that afterwards."""
        restart = self.restart()
        async with self.claim() as claim:
            for work in (self.devices, self.unprepare):
                began: asyncio.Task[Any] = asyncio.create_task(work(claim))
                await restart()
                await asyncio.gather(began, return_exceptions=True)
                self.info = await self.find()
                await self.devices(claim)
            await self.unprepare(claim)

    async def check_health(self) -> None:
        """The first report lists the devices of the driver; streams that are cut do no harm."""
        for _ in range(3):
            report = await self.reports(1)
            for told in report.devices:
                if not told.device.device_name:
                    raise ConformanceError("NodeWatchResources: a report without a device")
                if told.health not in (0, 1, 2):
                    raise ConformanceError(f"NodeWatchResources: health: {told.health}: 0, 1 or 2 is expected")
            known = {(told.device.pool_name, told.device.device_name) for told in report.devices}
            if lacking := [key for key in self.free if key not in known]:
                raise ConformanceError(
                    f"NodeWatchResources: the report lacks {'/'.join(lacking[0])}, which is published"
                )
        await self.check_versions()


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


def _essence(device: dra.Device) -> tuple[Any, ...]:
    """What of a device is the same in both versions."""
    return (device.pool_name, device.device_name, sorted(device.request_names), sorted(device.cdi_device_ids))
