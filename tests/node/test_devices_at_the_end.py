"""Devices of a pod are given back before its status says that it has ended: from then on others may have its claims."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from node_worker import Node, loop_time, node
from slow_runtime import SlowRuntime

import virtual_time
from haru.node.dra.devices import DevicesError, NoDevices

__all__ = ["loop_time"]


class Held(NoDevices):
    """Devices of the pod; they cannot be given back while somebody keeps them."""

    def __init__(self, made: Node) -> None:
        self._made, self.kept, self.back = made, False, list[tuple[str, int]]()

    async def unprepare(self, pod_uid: str) -> None:
        if self.kept:
            raise DevicesError("GPU 3 is busy")
        running = len(self._made.runtime.running("main"))
        self.back.append((self._made.api.pod["status"].get("phase", ""), running))


def _until_ended(tmp_path: Path, end: str, seconds_kept: float = 0.0) -> tuple[Held, dict[str, Any]]:
    """A pod that runs and then ends; its devices, and its status while they were kept."""
    runtime = SlowRuntime(random.Random(0), 0.0)

    async def work() -> tuple[Held, dict[str, Any]]:
        async with node(runtime, tmp_path) as made:
            held = made.context.devices = Held(made)
            made.api.pod["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
            await made.until(lambda: made.api.pod["status"].get("phase") == "Running", 60)
            held.kept = bool(seconds_kept)
            if end == "exits":
                runtime.end("main", 3)
            else:
                assert made.worker is not None and made.worker.evict("Evicted", "too much")
            await asyncio.sleep(seconds_kept)
            status = made.api.pod["status"]
            held.kept = False
            await made.until(lambda: made.api.pod["status"].get("phase") == "Failed", 90)
            return held, status

    return virtual_time.run(work())


@pytest.mark.parametrize("end", ["exits", "is evicted"])
def test_devices_are_given_back_before_the_end_is_told(tmp_path: Path, end: str) -> None:
    held, _ = _until_ended(tmp_path, end)
    assert held.back[0] == ("Running", 0)


@pytest.mark.parametrize("end", ["exits", "is evicted"])
def test_pod_whose_devices_are_kept_has_not_ended(tmp_path: Path, end: str) -> None:
    held, meanwhile = _until_ended(tmp_path, end, 60.0)
    assert meanwhile["phase"] == "Running" and held.back[0] == ("Running", 0)
