"""The API server of `haru up` over HTTPS: requests a second by verb, and what a write costs with many watchers.

The client runs in this process, on the same machine: its own work is part of the figures.
Run it alone: `python -m benchmarks.api`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any

from benchmarks.calibrate import calibrate
from benchmarks.cluster import kind, running
from benchmarks.results import CALIBRATION_SECONDS, Result, show
from haru.client.api import ApiClient

Obj = dict[str, Any]
PROFILES = "cpu:1"
OBJECTS = 1000
LISTS = 20
CONCURRENCY = 16
WATCHERS = 50
WATCHED_WRITES = 100

MAP = kind("", "configmaps")


def _object(name: str) -> Obj:
    return {"metadata": {"name": name, "labels": {"app": "benchmark"}}, "data": {"text": "x" * 500}}


async def _rate(count: int, request: Callable[[int], Awaitable[Any]]) -> float:
    """Requests a second with `CONCURRENCY` of them under way."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await request(number)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(work())
    return count / (time.perf_counter() - started)


async def _follow(client: ApiClient, since: str, count: int) -> None:
    seen = 0
    async with aclosing(client.watch(MAP, "default", resource_version=since)) as stream:
        async for type_, _ in stream:
            seen += type_ != "BOOKMARK"
            if seen == count:
                return


async def _fan_out(client: ApiClient) -> float:
    """Events delivered a second, all watchers together."""
    since = (await client.list(MAP, "default"))["metadata"]["resourceVersion"]
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(WATCHERS):
            group.create_task(_follow(client, since, WATCHED_WRITES))
        await _rate(WATCHED_WRITES, lambda n: client.create(MAP, _object(f"watched-{n}"), "default"))
    return WATCHERS * WATCHED_WRITES / (time.perf_counter() - started)


async def _measure(client: ApiClient) -> dict[str, tuple[float, str]]:
    async def create(number: int) -> None:
        await client.create(MAP, _object(f"object-{number}"), "default")

    async def patch(number: int) -> None:
        await client.patch(MAP, f"object-{number}", {"data": {"more": "y"}}, "default")

    return {
        "create": (await _rate(OBJECTS, create), f"{CONCURRENCY} at once"),
        "get": (await _rate(OBJECTS, lambda n: client.get(MAP, f"object-{n}", "default")), f"{CONCURRENCY} at once"),
        "patch": (await _rate(OBJECTS, patch), f"{CONCURRENCY} at once"),
        "list": (await _rate(LISTS, lambda n: client.list(MAP, "default", limit=OBJECTS)), f"{OBJECTS} objects each"),
        "watch events": (await _fan_out(client), f"{WATCHERS} watchers"),
        "delete": (await _rate(OBJECTS, lambda n: client.delete(MAP, f"object-{n}", "default")), "16 at once"),
    }


def run() -> Iterator[Result]:
    """Rates by verb."""

    async def measure() -> dict[str, tuple[float, str]]:
        async with cluster.client() as client:
            return await _measure(client)

    scale = CALIBRATION_SECONDS / calibrate()
    with running(PROFILES) as cluster:
        rates = asyncio.run(measure())
    for verb, (rate, size) in rates.items():
        yield Result(f"API {verb}", rate, "1/s", size)
        yield Result(f"API {verb}, scaled", rate / scale, "1/s", size)


if __name__ == "__main__":
    for figure in run():
        show(figure)
