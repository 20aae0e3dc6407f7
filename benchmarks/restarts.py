"""Processor time of `haru up` whose simulated containers keep failing, beside one whose containers run.

So many pods are placed, then `haru up` is watched for a while: without pods, with pods that run, with pods that crash
(five seconds, then exit code 1, with the pauses of a kubelet), from the moment that all of them have started.
Run it alone: `python -m benchmarks.restarts [PROFILE:COUNT] [--pods 1000] [--seconds 60]`; it is no part of `make
bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from benchmarks.calibrate import calibrate
from benchmarks.cluster import Running, kind, running
from benchmarks.results import CALIBRATION_SECONDS, Result, show
from haru.client.api import ApiClient

_PODS = kind("", "pods")
_TOGETHER = 20
RUNS, CRASHES = "sleep infinity", "echo loading; sleep 5; echo no data; exit 1"


def _restarts(pods: list[dict[str, Any]]) -> int:
    statuses = [(pod.get("status") or {}).get("containerStatuses") or () for pod in pods]
    return sum(status["restartCount"] for one in statuses for status in one)


async def _until(client: ApiClient, holds: Callable[[list[dict[str, Any]]], bool]) -> None:
    """Ask for the pods every second until they are as they should be."""
    while True:
        if holds((await client.list(_PODS, "default"))["items"]):
            return
        await asyncio.sleep(1)


async def _place(client: ApiClient, count: int, script: str) -> None:
    """Create so many pods in place of those that are there, and wait until all have started."""
    await client.delete_collection(_PODS, "default")
    await _until(client, lambda pods: not pods)
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    pod = {
        "metadata": {"generateName": "work-"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    for start in range(0, count, _TOGETHER):
        many = range(start, min(start + _TOGETHER, count))
        await asyncio.gather(*(client.create(_PODS, pod, "default") for _ in many))
    await _until(client, lambda pods: all(one["status"].get("phase") == "Running" for one in pods))


async def _watch(cluster: Running, seconds: float, pods: int) -> AsyncIterator[Result]:
    async with cluster.client() as client:
        for name, script in (("no pods", ""), ("pods that run", RUNS), ("pods that crash", CRASHES)):
            if script:
                await _place(client, pods, script)
            before, used = _restarts((await client.list(_PODS, "default"))["items"]), cluster.cpu_seconds()
            pace = calibrate(clock=time.process_time)
            await asyncio.sleep(seconds)
            load = (cluster.cpu_seconds() - used) / seconds * 100
            pace = CALIBRATION_SECONDS / ((pace + calibrate(clock=time.process_time)) / 2)
            yield Result(f"haru up, {name}", load, "% CPU", f"scaled {load * pace:.1f}")
            restarts = _restarts((await client.list(_PODS, "default"))["items"]) - before
            yield Result(f"restarts, {name}", restarts, "", f"{restarts / seconds:.1f} a second")


async def _measure(profiles: str, seconds: float, pods: int) -> None:
    with running(profiles) as cluster:
        show(Result("haru up ready", cluster.ready_seconds, "s", profiles))
        async for result in _watch(cluster, seconds, pods):
            show(result)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restarts")
    parser.add_argument("profiles", nargs="?", default="dgx-h100:1000")
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    flags = parser.parse_args()
    asyncio.run(_measure(flags.profiles, flags.seconds, flags.pods))
    return 0


if __name__ == "__main__":
    sys.exit(main())
