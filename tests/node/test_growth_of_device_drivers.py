"""What a node and its DRA driver do for a claim does not depend on how many claims are prepared there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from counted_calls import SIZES, Steps, assert_all_flat

import virtual_time
from haru.drivers.library.claim_service import DriverFiles, Preparer
from haru.drivers.simulated.plugin import SimulatedCards, pool_of
from haru.drivers.simulated.profiles import load_profile
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.node.agent.object_cache import Objects
from haru.node.dra.health import HealthWatcher
from haru.node.dra.manager import DeviceManager
from haru.node.dra.metrics import DraMetrics
from haru.proto import dra_pb2 as dra

Obj = dict[str, Any]
Costs = dict[str, Steps]
PROFILE = load_profile("dgx-h100")
DRIVER = PROFILE.driver


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)


def claim(n: int) -> Obj:
    """A claim of a card, reserved for the pod of its number."""
    result = {"driver": DRIVER, "pool": "node-0", "device": f"gpu-{n % 8}", "request": "gpu"}
    reserved = [{"resource": "pods", "name": f"pod-{n}", "uid": f"pod-{n}"}]
    metadata = {"name": f"claim-{n}", "namespace": "default", "uid": f"claim-{n}"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    return {"metadata": metadata, "spec": {}, "status": status}


def pod(n: int) -> Obj:
    """A pod with the claim, a ConfigMap and a Secret of its number."""
    container = {
        "name": "main",
        "resources": {"claims": [{"name": "gpu"}]},
        "envFrom": [{"configMapRef": {"name": f"config-{n}"}}, {"secretRef": {"name": f"secret-{n}"}}],
    }
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{n}"}], "containers": [container]}
    return {"metadata": {"name": f"pod-{n}", "namespace": "default", "uid": f"pod-{n}"}, "spec": spec}


def asked(n: int) -> dra.Claim:
    return dra.Claim(namespace="default", uid=f"claim-{n}", name=f"claim-{n}")


class Server:
    """Has each claim, ConfigMap and Secret that somebody names, and no news."""

    shared = None

    async def get(self, kind: Kind, name: str, namespace: str) -> Obj:
        return claim(int(name.removeprefix("claim-")))

    async def pages(
        self, kind: Kind, namespace: str, labels: str, fields: str, **_: Any
    ) -> AsyncGenerator[tuple[Obj, bool], None]:
        metadata = {"name": fields.partition("=")[2], "namespace": namespace, "uid": fields, "resourceVersion": "1"}
        yield {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": metadata}]}, True

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Obj]]:
        await asyncio.Event().wait()
        raise StatusError(410, "Gone", "never")
        yield


class Driver:
    """A registered driver that has every device at hand; also the registry that knows it."""

    def get(self, name: str) -> Driver:
        return self

    async def prepare(self, claims: Sequence[dra.Claim]) -> dict[str, list[dra.Device]]:
        return {one.uid: [dra.Device(pool_name="node-0", device_name=one.uid)] for one in claims}

    async def unprepare(self, claims: Sequence[dra.Claim]) -> None:
        """Nothing is left of it."""


async def costs_of(work: dict[str, Callable[[], Awaitable[object]]]) -> Costs:
    found: Costs = {}
    for what, each in work.items():
        with Steps() as found[what]:
            await each()
    return found


async def kubelet_cost(size: int, directory: Path) -> Costs:
    """What a pod's claims and a device's health take a node with so many prepared claims."""
    manager = DeviceManager(Server(), Driver(), directory, "node-0", DraMetrics())  # type: ignore[arg-type]
    watcher = HealthWatcher(manager.pods_with_device)
    for n in range(size):
        await manager.prepare(pod(n))

    async def health(state: int) -> None:
        device = dra.DeviceIdentifier(pool_name="node-0", device_name="claim-3")
        report = dra.NodeWatchResourcesResponse(devices=[dra.DeviceHealth(device=device, health=state)])  # type: ignore[arg-type]
        watcher._tell(watcher._cache.take(DRIVER, report, 0.0))
        assert watcher.pods.get_nowait() == "pod-3"

    return await costs_of(
        {
            "prepare": lambda: manager.prepare(pod(size)),
            "prepare again": lambda: manager.prepare(pod(size)),
            "device falls ill": lambda: health(dra.UNHEALTHY),
            "unprepare": lambda: manager.unprepare(f"pod-{size}"),
        }
    )


async def driver_cost(size: int, directory: Path) -> Costs:
    """What a claim takes a driver that has so many prepared."""
    plugin = SimulatedCards(pool_of(PROFILE, "node-0"), directory / "devices")
    files = DriverFiles(directory / "data", directory / "cdi")
    preparer = Preparer(plugin, DRIVER, Server(), files)  # type: ignore[arg-type]
    preparer.load()
    for n in range(size):
        await preparer.prepare(asked(n))
    return await costs_of(
        {
            "prepare": lambda: preparer.prepare(asked(size)),
            "prepare again": lambda: preparer.prepare(asked(size)),
            "unprepare": lambda: preparer.unprepare(asked(size)),
        }
    )


async def object_cost(size: int, directory: Path) -> Costs:
    """What it takes to have a pod's ConfigMap and Secret beside those of so many pods."""
    objects = Objects(Server(), lambda uid: None)  # type: ignore[arg-type]
    for n in range(size):
        await objects.want(pod(n))

    async def forget() -> None:
        objects.forget(f"pod-{size}")

    costs = await costs_of(
        {"wanted again": lambda: objects.want(pod(0)), "wanted": lambda: objects.want(pod(size)), "forgotten": forget}
    )
    await objects.close()
    return costs


@pytest.mark.parametrize("cost", [kubelet_cost, driver_cost, object_cost])
@pytest.mark.parametrize("sizes", SIZES)
def test_claim_costs_as_much_beside_many_as_beside_few(
    cost: Callable[[int, Path], Any], sizes: tuple[int, ...], tmp_path: Path
) -> None:
    assert_all_flat({size: virtual_time.run(cost(size, tmp_path / str(size))) for size in sizes})
