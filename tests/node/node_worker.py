"""An agent's worker of one pod, in virtual time, with an API and a runtime in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from slow_runtime import SlowRuntime

from haru.kube import schema
from haru.kube.patch.strategic import apply_strategic_merge_patch
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_resize import Allocations
from haru.node.agent.context import RuntimeInfo
from haru.node.agent.options import CgroupOptions, NodeOptions
from haru.node.cgroups.amounts import Amounts
from haru.node.dra.devices import NoDevices
from haru.node.podworker.container_start import ContainerStarter
from haru.node.podworker.worker import PodWorker
from haru.node.volumes.pod_volumes import PodVolumes

Obj = dict[str, Any]
CALM_SECONDS = 700.0
"""Longer than the longest pause of a crash loop."""


class Api:
    """One pod, as an API server has it."""

    def __init__(self) -> None:
        spec = {"containers": [{"name": "main", "image": "i", "imagePullPolicy": "Never"}], "nodeName": "n"}
        meta = {"name": "p", "namespace": "default", "uid": "u", "generation": 1}
        self.pod: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {}}

    async def patch(self, kind: Any, name: str, patch: Obj, *_: Any, **__: Any) -> Obj:

        self.pod = apply_strategic_merge_patch(self.pod, patch, schema.type_of(kind))
        return self.pod


class Recorder:
    """Events, which nobody reads."""

    def event(self, *_: Any, **__: Any) -> None:
        return None


class Objects:
    """The pod refers to nothing."""

    async def want(self, pod: Obj) -> ReferencedObjects:
        return ReferencedObjects(lambda name: None, lambda name: None)

    async def tokens(self, pod: Obj) -> Obj:
        return {}

    def forget(self, uid: str) -> None:
        return None


class Node:
    """An agent's worker for the pod, which can be started anew as after a restart of the agent."""

    def __init__(self, runtime: SlowRuntime, directory: Path) -> None:
        self.api, self.runtime = Api(), runtime
        options = NodeOptions("n", directory, directory / "logs", cgroups=CgroupOptions(per_qos=False))
        self.context: Any = SimpleNamespace(
            client=self.api,
            runtime=runtime,
            options=options,
            addresses=["10.0.0.9"],
            recorder=Recorder(),
            volumes=PodVolumes(directory),
            objects=Objects(),
            handler_runner=None,
            devices=NoDevices(),
            cgroups=SimpleNamespace(tree=None, hierarchies=SimpleNamespace(mode="unified")),
            allocatable={},
            allocations=Allocations(),
            runtime_info=RuntimeInfo(version="v2.0.0"),
            users=lambda pod: None,
            amounts=lambda pod, container: Amounts(2, 0, 0),
            service_variables=lambda pod: (),
        )
        self.worker: PodWorker | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.worker = PodWorker(self.context, ContainerStarter(self.context), "u", lambda pod: None)
        self._task = asyncio.create_task(self.worker.run())
        self.worker.update(self.api.pod)

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def until(self, holds: Callable[[], Any], seconds: float = CALM_SECONDS) -> None:
        """Wait until something holds; a worker is poked each second, as the agent's relist does."""
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(1.0)
                if self.worker is not None:
                    self.worker.wake()


@contextlib.asynccontextmanager
async def node(runtime: SlowRuntime, directory: Path) -> AsyncIterator[Node]:
    made = Node(runtime, directory)
    made.start()
    try:
        yield made
    finally:
        await made.stop()


@pytest.fixture(autouse=True)
def loop_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the worker takes for the time is the loop's; what it gives to threads is done at once."""

    def now() -> float:
        return 1e9 + asyncio.get_running_loop().time()

    async def at_once(work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        return work(*arguments, **more)

    for module in ("podworker.worker", "podworker.due_starts", "podworker.container_kill", "agent.images"):
        monkeypatch.setattr(f"haru.node.{module}.time", SimpleNamespace(time=now, monotonic=now))
    monkeypatch.setattr(asyncio, "to_thread", at_once)
