"""A container runtime in memory, in virtual time: slow, sometimes too slow for its caller, and seen late by its lists.

What a call begins is carried out although the caller gives up, as runtimes do. As containerd does it, a name is taken
from the moment that a container is being made, one that is being started can not be removed, and one that is being
removed can not be started.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from haru.node.cri.errors import CriError
from haru.node.podworker.observed import CREATED, EXITED, RUNNING
from haru.proto import cri_pb2 as cri

PATIENCE = 2.0
"""Seconds that a caller waits."""


@dataclass
class Held:
    """A container."""

    id: str
    sandbox: str
    config: cri.ContainerConfig
    state: int = CREATED
    busy: str = ""
    """Starting or removing."""
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0

    @property
    def name(self) -> str:
        return self.config.metadata.name


@dataclass
class Sandbox:
    """A sandbox."""

    id: str
    config: cri.PodSandboxConfig
    ready: bool = True
    labels: dict[str, str] = field(default_factory=dict)


class SlowRuntime:
    """What the agent's runtime client is to its callers. `faults` is the share of calls that are slow or see little."""

    def __init__(self, rng: random.Random, faults: float) -> None:
        self._rng, self.faults = rng, faults
        self.held: dict[str, Held] = {}
        self.rooms: dict[str, Sandbox] = {}
        self._taken: set[tuple[str, int]] = set()
        self._numbers = iter(range(1, 1_000_000))
        self._shown: list[str] = []
        self._work: set[asyncio.Task[Any]] = set()
        self.twice: list[str] = []
        """Each time that a container began to run beside another one of its name."""
        self.starts: Counter[str] = Counter()

    def running(self, name: str) -> list[Held]:
        return [one for one in self.held.values() if one.name == name and one.state == RUNNING]

    def end(self, name: str, code: int) -> None:
        """The containers of a name end by themselves."""
        for one in self.running(name):
            self._ended(one, code)

    # -- how calls go

    async def _call(self, operation: str, work: Coroutine[Any, Any, Any]) -> Any:
        """Carry a call out; its caller may give up before."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(task)
        except TimeoutError:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise CriError(operation, "DEADLINE_EXCEEDED", "context deadline exceeded") from None
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    async def _take_time(self) -> None:
        slow = self._rng.random() < self.faults
        await asyncio.sleep(self._rng.uniform(0.5, 15.0) if slow else self._rng.uniform(0.001, 0.05))

    def _of(self, operation: str, id_: str) -> Held:
        if id_ not in self.held:
            raise CriError(operation, "NOT_FOUND", f"container {id_} not found")
        return self.held[id_]

    @staticmethod
    def _now() -> int:
        return 10**18 + int(asyncio.get_running_loop().time() * 1e9)

    def _ended(self, one: Held, code: int) -> None:
        one.state, one.finished_at, one.exit_code = EXITED, self._now(), code

    # -- sandboxes

    async def run_sandbox(self, config: cri.PodSandboxConfig, handler: str = "") -> str:
        async def work() -> str:
            await self._take_time()
            sandbox = Sandbox(f"s{next(self._numbers)}", config, labels=dict(config.labels))
            self.rooms[sandbox.id] = sandbox
            return sandbox.id

        return str(await self._call("run_podsandbox", work()))

    async def stop_sandbox(self, id_: str) -> None:
        async def work() -> None:
            await self._take_time()
            if id_ in self.rooms:
                self.rooms[id_].ready = False
            for one in self.held.values():
                if one.sandbox == id_ and one.state == RUNNING:
                    self._ended(one, 137)

        await self._call("stop_podsandbox", work())

    async def sandboxes(self, labels: dict[str, str] | None = None) -> list[cri.PodSandbox]:
        return [
            cri.PodSandbox(id=one.id, metadata=one.config.metadata, state=_state(one), labels=one.labels)
            for one in self.rooms.values()
        ]

    async def sandbox_status(self, id_: str) -> cri.PodSandboxStatus:
        one = self.rooms[id_]
        return cri.PodSandboxStatus(
            id=one.id,
            metadata=one.config.metadata,
            state=_state(one),
            network=cri.PodSandboxNetworkStatus(ip="10.0.0.1"),
            labels=one.labels,
        )

    # -- containers

    async def create_container(self, sandbox: str, config: cri.ContainerConfig, pod: cri.PodSandboxConfig) -> str:
        async def work() -> str:
            name = config.metadata.name, config.metadata.attempt
            if name in self._taken:
                raise CriError("create_container", "UNKNOWN", f"name {name} is reserved")
            self._taken.add(name)
            await self._take_time()
            one = Held(f"c{next(self._numbers)}", sandbox, config)
            self.held[one.id] = one
            return one.id

        return str(await self._call("create_container", work()))

    async def start_container(self, id_: str) -> None:
        async def work() -> None:
            one = self._of("start_container", id_)
            if one.state != CREATED or one.busy:
                raise CriError("start_container", "UNKNOWN", f"container is {one.busy or one.state}")
            one.busy = "starting"
            await self._take_time()
            one.busy = ""
            if not self.rooms[one.sandbox].ready:
                self._ended(one, 128)
                raise CriError("start_container", "UNKNOWN", "sandbox is not running")
            if beside := self.running(one.name):
                self.twice.append(f"{one.id} began beside {[other.id for other in beside]}")
            one.state, one.started_at = RUNNING, self._now()
            self.starts[one.name] += 1

        await self._call("start_container", work())

    async def stop_container(self, id_: str, grace: int) -> None:
        async def work() -> None:
            await self._take_time()
            if id_ in self.held and self.held[id_].state == RUNNING:
                self._ended(self.held[id_], 137)

        await self._call("stop_container", work())

    async def remove_container(self, id_: str) -> None:
        async def work() -> None:
            if id_ not in self.held:
                return
            one = self.held[id_]
            if one.busy:
                raise CriError("remove_container", "UNKNOWN", f"container is {one.busy}")
            one.busy = "removing"
            await self._take_time()
            self._taken.discard((one.name, one.config.metadata.attempt))
            self.held.pop(id_, None)

        await self._call("remove_container", work())

    async def container_status(self, id_: str) -> cri.ContainerStatus:
        one = self._of("container_status", id_)
        return cri.ContainerStatus(
            id=one.id,
            metadata=one.config.metadata,
            state=one.state,
            started_at=one.started_at,
            finished_at=one.finished_at,
            exit_code=one.exit_code,
            image=cri.ImageSpec(image="i"),
            labels=dict(one.config.labels),
            annotations=dict(one.config.annotations),
        )

    async def containers(self, labels: dict[str, str] | None = None) -> list[cri.Container]:
        """Now and then as they were at the last time that somebody asked."""
        if self._rng.random() >= self.faults:
            self._shown = list(self.held)
        listed = [self.held[id_] for id_ in self._shown if id_ in self.held]
        return [cri.Container(id=one.id, pod_sandbox_id=one.sandbox, metadata=one.config.metadata) for one in listed]

    async def image(self, name: str) -> cri.Image | None:
        return cri.Image(id="sha256:1")


def _state(sandbox: Sandbox) -> cri.PodSandboxState:
    return cri.SANDBOX_READY if sandbox.ready else cri.SANDBOX_NOTREADY
