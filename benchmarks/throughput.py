"""Pods a second through the API of `haru up`, from the first creation to the last binding. No node agent runs.

Nodes and devices are written by the benchmark, so nothing starts the pods: what is measured is the API server, its
store, the claim controller and the scheduler, in one process, and the client in another. `plain` pods ask for cpu and
memory, on 5,000 nodes; `claims` pods have a claim each, made from a template, on 500 nodes with 10 devices. Each also
at a tenth of the nodes and at ten times as many, with as many pods. Run it alone:

    python -m benchmarks.throughput [plain|claims] [SIZE]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from benchmarks.calibrate import calibrate
from benchmarks.cluster import Running, kind, running
from benchmarks.results import CALIBRATION_SECONDS, Result, show
from haru.client.api import ApiClient

Obj = dict[str, Any]
SIZES = (0.1, 1.0, 10.0)
AT_ONCE = 32
PATIENCE_SECONDS = 600
DRIVER = "gpu.example.com"

POD, NODE, CLASS = kind("", "pods"), kind("", "nodes"), kind("resource.k8s.io", "deviceclasses")
SLICE, TEMPLATE = kind("resource.k8s.io", "resourceslices"), kind("resource.k8s.io", "resourceclaimtemplates")


@dataclass(frozen=True)
class Load:
    """So many pods, on so many nodes with so many devices each."""

    name: str
    nodes: int
    devices: int
    pods: int
    target: float | None


LOADS = (Load("plain", 5_000, 0, 1_000, None), Load("claims", 500, 10, 1_000, 100.0))


async def _each(count: int, work: Callable[[int], Awaitable[Any]]) -> None:
    """Do it for each number, `AT_ONCE` at a time."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())


async def _furnish(client: ApiClient, nodes: int, devices: int) -> None:
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110"}

    async def add(number: int) -> None:
        name = f"node-{number:05}"
        await client.create(NODE, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        await client.patch(NODE, name, {"status": status}, subresource="status")
        await client.patch(NODE, name, {"spec": {"taints": None}})
        if devices:
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            listed = [{"name": f"gpu-{i}"} for i in range(devices)]
            spec = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": listed}
            await client.create(SLICE, {"metadata": {"name": name}, "spec": spec})

    await _each(nodes, add)
    if devices:
        await client.create(CLASS, {"metadata": {"name": "gpu.example.com"}, "spec": {}})
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        await client.create(TEMPLATE, {"metadata": {"name": "one"}, "spec": spec}, "default")


def _pod(name: str, devices: int) -> Obj:
    container: Obj = {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spec: Obj = {"containers": [container]}
    if devices:
        container["resources"]["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    return {"metadata": {"name": name}, "spec": spec}


async def _bound(client: ApiClient, count: int, since: str) -> None:
    bound: set[str] = set()
    async with aclosing(client.watch(POD, "default", resource_version=since)) as stream:
        async for _, pod in stream:
            if (pod.get("spec") or {}).get("nodeName"):
                bound.add(pod["metadata"]["name"])
            if len(bound) == count:
                return
    raise TimeoutError(f"{len(bound)} of {count} pods are bound: the rest waits")


async def _measure(client: ApiClient, load: Load, nodes: int) -> float:
    """Pods a second, from the first creation to the last binding."""
    await _furnish(client, nodes, load.devices)
    # One pod is bound before it counts: by then everybody has seen the nodes.
    await client.create(POD, _pod("first", load.devices), "default")
    pods = min(load.pods, nodes * load.devices - 1) if load.devices else load.pods
    async with asyncio.timeout(PATIENCE_SECONDS):
        await _bound(client, 1, "0")
        since = (await client.list(POD, "default"))["metadata"]["resourceVersion"]
        started = time.perf_counter()
        follow = asyncio.create_task(_bound(client, pods, since))
        await _each(pods, lambda n: client.create(POD, _pod(f"pod-{n:05}", load.devices), "default"))
        await follow
    return pods / (time.perf_counter() - started)


def measure(load: Load, size: float) -> tuple[float, float]:
    """Pods a second, and the same scaled to the calibration."""

    async def work(cluster: Running) -> float:
        async with cluster.client() as client:
            return await _measure(client, load, int(load.nodes * size))

    scale = CALIBRATION_SECONDS / calibrate()
    # Nobody renews the leases of these nodes.
    with running("cpu:0", "--controllers", "*,-node-lifecycle-controller") as cluster:
        rate = asyncio.run(work(cluster))
    return rate, rate / scale


def run(wanted: str = "", sizes: tuple[float, ...] = SIZES) -> Iterator[Result]:
    """Every load at every size."""
    for load in (load for load in LOADS if wanted in load.name):
        for size in sizes:
            rate, scaled = measure(load, size)
            on = f"{int(load.nodes * size)} nodes x {load.devices} devices"
            yield Result(f"{load.name} pods bound", rate, "1/s", on)
            yield Result(f"{load.name} pods bound, scaled", scaled, "1/s", on)


if __name__ == "__main__":
    for figure in run(sys.argv[1] if len(sys.argv) > 1 else "", tuple(map(float, sys.argv[2:])) or SIZES):
        show(figure)
