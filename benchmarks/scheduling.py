"""Scheduling on a running `haru up` with 1,000 nodes, seen by a client over HTTPS.

A gang of 64 workers with one GPU each: from the creation of its Job until all are bound. Single pods with a GPU of
their own: from creation until bound. Run it alone: `python -m benchmarks.scheduling [PROFILE:COUNT]`.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from benchmarks.calibrate import calibrate
from benchmarks.cluster import kind, running
from benchmarks.results import CALIBRATION_SECONDS, Result, show
from haru.client.api import ApiClient

Obj = dict[str, Any]
PROFILES = "dgx-h100:1000"
WORKERS = 64
GANGS = 3
PODS = 30
PATIENCE_SECONDS = 120

POD, JOB, TEMPLATE = kind("", "pods"), kind("batch", "jobs"), kind("resource.k8s.io", "resourceclaimtemplates")
_CLAIM_TEMPLATE: Obj = {
    "metadata": {"name": "one-gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}},
}
_POD_SPEC: Obj = {
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "main", "image": "work:1", "resources": {"claims": [{"name": "gpu"}]}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
}


def _job(name: str) -> Obj:
    template = {"metadata": {"labels": {"app": name}}, "spec": _POD_SPEC}
    counts = {"completionMode": "Indexed", "parallelism": WORKERS, "completions": WORKERS}
    return {"metadata": {"name": name}, "spec": {**counts, "template": template}}


async def _until_bound(client: ApiClient, label: str, count: int, since: str) -> None:
    """Follow the pods until so many are bound."""
    bound: set[str] = set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        events = client.watch(POD, "default", resource_version=since, label_selector=f"app={label}")
        async with aclosing(events) as stream:
            async for _, pod in stream:
                if (pod.get("spec") or {}).get("nodeName"):
                    bound.add(pod["metadata"]["name"])
                if len(bound) == count:
                    return


async def _measure(client: ApiClient) -> tuple[list[float], list[float]]:
    await client.create(TEMPLATE, _CLAIM_TEMPLATE, "default")
    gangs, singles = [], []
    for number in range(GANGS):
        since = (await client.list(POD, "default"))["metadata"]["resourceVersion"]
        started = time.perf_counter()
        await client.create(JOB, _job(f"gang-{number}"), "default")
        await _until_bound(client, f"gang-{number}", WORKERS, since)
        gangs.append(time.perf_counter() - started)
        await asyncio.sleep(2)
    for number in range(PODS):
        name = f"single-{number}"
        since = (await client.list(POD, "default"))["metadata"]["resourceVersion"]
        started = time.perf_counter()
        await client.create(POD, {"metadata": {"name": name, "labels": {"app": name}}, "spec": _POD_SPEC}, "default")
        await _until_bound(client, name, 1, since)
        singles.append(time.perf_counter() - started)
    return gangs, singles


def run(profiles: str = PROFILES) -> Iterator[Result]:
    """Times of gangs and of single pods; medians, and the slowest."""

    async def measure() -> tuple[list[float], list[float]]:
        async with cluster.client() as client:
            return await _measure(client)

    scale = CALIBRATION_SECONDS / calibrate()
    with running(profiles) as cluster:
        gangs, singles = asyncio.run(measure())
    for what, times in ((f"gang of {WORKERS} pods x 1 GPU bound", gangs), ("single pod x 1 GPU bound", singles)):
        yield Result(what, statistics.median(times), "s", profiles)
        yield Result(f"{what}, scaled", statistics.median(times) * scale, "s", profiles)
        yield Result(f"{what}, slowest of {len(times)}", max(times), "s", profiles)


if __name__ == "__main__":
    for figure in run(*sys.argv[1:2]):
        show(figure)
