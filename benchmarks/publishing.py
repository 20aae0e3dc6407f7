"""What it costs `haru up` to publish why work waits: pods bound while other pods wait and are explained.

500 nodes with 10 devices, 40 pods that want 99 devices each on one node and wait, then 600 pods with one device each,
as `throughput` binds them. It is done with `--publish-explanations=off` and `counts` in turn; the figure is the median
of the ratios of two runs that follow each other, of pods bound per second and of processor time per pod. Run it alone:

    python -m benchmarks.publishing [ROUNDS]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from benchmarks.cluster import Running, running
from benchmarks.results import Result, show
from benchmarks.throughput import PATIENCE_SECONDS, POD, TEMPLATE, _bound, _each, _furnish, _pod
from haru.client.api import ApiClient

NODES, DEVICES, WAITING, PODS, ROUNDS = 500, 10, 40, 600, 5


class Cost(NamedTuple):
    """Pods bound per second, and seconds of processor time for each."""

    rate: float
    cpu: float


async def _wait_in_vain(client: ApiClient) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 99}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    await client.create(TEMPLATE, {"metadata": {"name": "too-many"}, "spec": spec}, "default")

    async def add(number: int) -> None:
        pod = _pod(f"waits-{number:03}", DEVICES)
        pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "too-many"
        await client.create(POD, pod, "default")

    await _each(WAITING, add)


async def _measure(cluster: Running, client: ApiClient) -> Cost:
    await _furnish(client, NODES, DEVICES)
    await client.create(POD, _pod("first", DEVICES), "default")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await _bound(client, 1, "0")
        await _wait_in_vain(client)
        since = (await client.list(POD, "default"))["metadata"]["resourceVersion"]
        began, used = time.perf_counter(), cluster.cpu_seconds()
        follow = asyncio.create_task(_bound(client, PODS, since))
        await _each(PODS, lambda number: client.create(POD, _pod(f"pod-{number:05}", DEVICES), "default"))
        await follow
    seconds = time.perf_counter() - began
    return Cost(PODS / seconds, (cluster.cpu_seconds() - used) / PODS)


def measure(publish: str) -> Cost:
    """Bind the pods in a cluster of its own."""

    async def work(cluster: Running) -> Cost:
        async with cluster.client() as client:
            return await _measure(cluster, client)

    flags = "--controllers", "*,-node-lifecycle-controller", "--publish-explanations", publish
    with running("cpu:0", *flags) as cluster:
        return asyncio.run(work(cluster))


def run(rounds: int = ROUNDS) -> Iterator[Result]:
    """Both in turn, each first as often as the other."""
    rates, times = [], []
    for number in range(rounds):
        order = ("off", "counts") if number % 2 else ("counts", "off")
        found = {publish: measure(publish) for publish in order}
        rates.append(100.0 * found["counts"].rate / found["off"].rate)
        times.append(100.0 * found["counts"].cpu / found["off"].cpu)
        show(Result("pods bound while explanations are published", rates[-1], "%", f"round {number}"))
        show(Result("processor time per pod bound", times[-1], "%", f"round {number}"))
    on = f"{NODES} nodes x {DEVICES} devices, {WAITING} pods waiting"
    yield Result("pods bound while explanations are published, of those without", median(rates), "%", on)
    yield Result("processor time per pod bound while explanations are published", median(times), "%", on)


if __name__ == "__main__":
    for figure in run(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS):
        show(figure)
