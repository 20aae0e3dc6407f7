"""A container whose start failed is tried again after its pause, and says meanwhile why it failed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from node_worker import loop_time as loop_time
from node_worker import node
from slow_runtime import SlowRuntime

import virtual_time
from haru.node.cri.errors import CriError
from haru.proto import cri_pb2 as cri


class Refusing(SlowRuntime):
    """Makes no container as often as it is told."""

    refuses = 1

    async def create_container(self, *arguments: Any) -> str:
        if self.refuses > 0:
            self.refuses -= 1
            raise CriError("CreateContainer", "INTERNAL", "no")
        return await super().create_container(*arguments)


def test_clock_that_is_set_back_does_not_prolong_the_pause_after_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Refusing(random.Random(0), 0.0)

    def now() -> float:
        return 1e9 + asyncio.get_running_loop().time()

    set_back: list[float] = []
    clocks = SimpleNamespace(monotonic=now, time=lambda: now() - sum(set_back))
    monkeypatch.setattr("haru.node.podworker.due_starts.time", clocks)

    async def body() -> float:
        async with node(runtime, tmp_path) as world:
            began = asyncio.get_running_loop().time()
            asyncio.get_running_loop().call_later(5.0, set_back.append, 3600.0)
            await world.until(lambda: runtime.running("main"), 60.0)
            return asyncio.get_running_loop().time() - began

    assert virtual_time.run(body()) == pytest.approx(11.0, abs=1.5)


def test_crashed_container_that_can_not_be_made_again_says_why_instead_of_that_it_crashed(tmp_path: Path) -> None:
    runtime = Refusing(random.Random(0), 0.0)
    runtime.refuses = 0

    async def body() -> set[str]:
        async with node(runtime, tmp_path) as world:

            def state() -> dict[str, Any]:
                found: dict[str, Any] = world.api.pod["status"]["containerStatuses"][0]["state"]
                return found

            await world.until(lambda: runtime.running("main") and "running" in state())
            runtime.refuses = 3
            runtime.end("main", 3)
            reasons = set()
            while not runtime.running("main"):
                await asyncio.sleep(1.0)
                assert world.worker is not None
                world.worker.wake()
                await asyncio.sleep(0.1)
                reasons.add(state().get("waiting", {}).get("reason", ""))
            runtime.end("main", 3)
            await world.until(lambda: state().get("waiting", {}).get("reason") == "CrashLoopBackOff")
            return reasons

    assert virtual_time.run(body()) - {""} == {"CreateContainerError"}


class Imageless(SlowRuntime):
    """Loses its image, and can not pull it."""

    is_there = True
    pulls = 0

    async def image(self, name: str) -> cri.Image | None:
        return await super().image(name) if self.is_there else None

    async def pull(self, *arguments: Any) -> str:
        self.pulls += 1
        raise CriError("PullImage", "NOT_FOUND", "no such image")


def test_crashed_container_whose_image_can_not_be_pulled_says_so_until_the_next_attempt(tmp_path: Path) -> None:
    runtime = Imageless(random.Random(0), 0.0)

    async def body() -> set[str]:
        async with node(runtime, tmp_path) as world:
            world.api.pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
            await world.until(lambda: runtime.running("main"))
            runtime.is_there = False
            runtime.end("main", 3)
            await world.until(lambda: runtime.pulls == 1)
            reasons = set()
            while runtime.pulls == 1:
                await asyncio.sleep(0.5)
                state = world.api.pod["status"]["containerStatuses"][0]["state"]
                reasons.add(state.get("waiting", {}).get("reason", ""))
            return reasons

    assert virtual_time.run(body()) == {"ErrImagePull"}
