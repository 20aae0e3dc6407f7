"""A container whose start failed is tried again after its pause, whatever the clock on the wall does."""

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


class Refusing(SlowRuntime):
    """Makes no container at first."""

    refused = 0

    async def create_container(self, *arguments: Any) -> str:
        if not self.refused:
            self.refused += 1
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
