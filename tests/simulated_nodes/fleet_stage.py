"""A fleet over a client in memory, on which a test plays the scheduler and moves the clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from in_memory_client import InMemoryClient, named

from haru.clock import Clock
from haru.simulated_nodes.claim_preparation import CLAIMS
from haru.simulated_nodes.fleet import Fleet, FleetOptions
from haru.simulated_nodes.pod_workers import PODS

Obj = dict[str, Any]


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, obj: Obj, type: str, reason: str, message: str, action: str = "", related: Any = None) -> None:
        self.events.append((obj["metadata"]["name"], reason, message))


class Watch:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Stage:
    """A fleet over a client that a test plays the scheduler on."""

    def __init__(self, nodes: str = "dgx-h100:1,cpu:1") -> None:
        self.client = InMemoryClient()
        self.recorder = Recorder()
        self.clock = Watch()
        self.nodes = nodes
        self.options = FleetOptions()
        self.fleet: Fleet | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Fleet]:
        self.fleet = Fleet(
            self.client,  # type: ignore[arg-type]
            named(self.nodes),
            Clock(self.clock),
            recorder=self.recorder,  # type: ignore[arg-type]
            renew_seconds=0.05,
            options=self.options,
        )
        task = asyncio.create_task(self.fleet.run())
        try:
            yield self.fleet
            if task.done():
                task.result()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def pod(self, name: str, *, node: str = "dgx-h100-0", annotations: dict[str, str] | None = None, **spec: Any) -> Obj:  # fmt: skip # noqa: E501
        spec.setdefault("containers", [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}])
        pod = {
            "metadata": {"name": name, "annotations": annotations or {}, "generation": 1},
            "spec": {"nodeName": node, **spec},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        }
        return await self.client.create(PODS, pod)

    async def claim(self, name: str, *reserved_for: Obj, **extra: Any) -> Obj:
        result = {"request": "gpu/h100", "driver": "gpu.nvidia.com", "pool": "dgx-h100-0", "device": "gpu-0"}
        consumers = [
            {"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]} for p in reserved_for
        ]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}
        return await self.client.create(CLAIMS, {"metadata": {"name": name, **extra}, "spec": {}, "status": status})

    def stored(self, name: str) -> Obj | None:
        return self.client.objects.get(("pods", "default", name))

    async def phase(self, name: str, phase: str) -> Obj:
        return await self.client.until(
            lambda: (p := self.stored(name)) and p["status"].get("phase") == phase and p
        )  # fmt: skip

    def reasons(self, name: str) -> list[str]:
        return [reason for about, reason, _ in self.recorder.events if about == name]
