"""What it costs `haru up` to publish why work waits: processor time for each pod bound while other pods wait.

Two clusters of 500 nodes with 10 devices, one with `--publish-explanations=off`, one with `counts`. In each, 40 pods
that want 99 devices on one node begin to wait; then 1,200 pods with one device are bound, as `throughput` binds them,
in batches by turns. The cluster whose turn it is not is stopped (SIGSTOP), so both meet the same machine, and a batch
is compared with the one next to it. A few pods are bound before a batch counts: a cluster that goes on takes itself for
idle. The figures are the ratio of the sums, with the standard error of the batches, and the processor time of the
thread that explains, of that of its whole process, which does not depend on the other cluster. Run it:

    python -m benchmarks.publishing [ROUNDS]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.cluster import Running, running
from benchmarks.load import PATIENCE_SECONDS, POD, TEMPLATE, bound, each, furnish, pod, template
from benchmarks.results import Result, show
from haru.client.api import ApiClient

NODES, DEVICES, WAITING, BATCHES, BATCH, FIRST, ROUNDS = 500, 10, 40, 3, 400, 10, 3
CHOICES = ("off", "counts")


@dataclass(slots=True)
class Side:
    """A cluster, and what its batches took: seconds of processor time and of the clock."""

    cluster: Running
    client: ApiClient
    cpu: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    threads: Counter[int] = field(default_factory=Counter)
    earlier: set[int] = field(default_factory=set)
    """The threads from before there was anything to explain."""

    async def prepare(self) -> None:
        """Furnish it, and have everybody see the nodes."""
        await furnish(self.client, NODES, DEVICES)
        await self.client.create(TEMPLATE, template(), "default")
        await self.client.create(POD, pod("first", from_template=True), "default")
        await bound(self.client, 1, "0")
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 99}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        await self.client.create(TEMPLATE, {"metadata": {"name": "too-many"}, "spec": spec}, "default")
        self.stop()

    async def bind(self, batch: int) -> None:
        """Bind one batch; the first comes with the pods that wait in vain."""
        os.kill(self.cluster.process, signal.SIGCONT)
        await self._bind(f"first-{batch:03}", FIRST)
        used, began = self._used(), time.perf_counter()
        if not batch:
            await each(WAITING, self._wait_in_vain)
        await self._bind(f"pod-{batch:03}", BATCH)
        self.clock.append(time.perf_counter() - began)
        self.stop()
        now = self._used()
        self.cpu.append(sum(now.values()) - sum(used.values()))
        self.earlier |= set(used) if not batch else set()
        self.threads.update({thread: seconds - used.get(thread, 0.0) for thread, seconds in now.items()})

    async def _bind(self, name: str, count: int) -> None:
        since = (await self.client.list(POD, "default"))["metadata"]["resourceVersion"]
        follow = asyncio.create_task(bound(self.client, count, since))
        await each(
            count, lambda number: self.client.create(POD, pod(f"{name}-{number:03}", from_template=True), "default")
        )
        await follow

    def _used(self) -> dict[int, float]:
        """Seconds of processor time of each thread."""
        tasks = Path(f"/proc/{self.cluster.process}/task").iterdir()
        return {int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks}

    async def _wait_in_vain(self, number: int) -> None:
        body = pod(f"waits-{number:03}", from_template=True)
        body["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "too-many"
        await self.client.create(POD, body, "default")

    def explaining(self) -> float:
        """Seconds of processor time of the thread that explains: the one that came with the first explanation."""
        return max((seconds for thread, seconds in self.threads.items() if thread not in self.earlier), default=0.0)

    def stop(self) -> None:
        """Stop it until its next turn."""
        os.kill(self.cluster.process, signal.SIGSTOP)


def measure() -> list[Side]:
    """Bind all batches in two clusters by turns: without explanations, and with them."""

    async def work(clusters: Sequence[Running]) -> list[Side]:
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_SECONDS):
            sides = [Side(cluster, await stack.enter_async_context(cluster.client())) for cluster in clusters]
            for side in sides:
                await side.prepare()
            for batch in range(BATCHES):
                for side in sides if batch % 2 else reversed(sides):
                    await side.bind(batch)
            return sides

    with ExitStack() as stack:
        clusters = []
        for publish in CHOICES:
            flags = "--controllers", "*,-node-lifecycle-controller", "--publish-explanations", publish
            clusters.append(stack.enter_context(running("cpu:0", *flags)))
        try:
            return asyncio.run(work(clusters))
        finally:
            for cluster in clusters:
                os.kill(cluster.process, signal.SIGCONT)


def run(rounds: int = ROUNDS) -> Iterator[Result]:
    """All rounds, each with two clusters of its own."""
    pairs: list[tuple[float, float]] = []
    clocks: list[tuple[float, float]] = []
    explaining = 0.0
    for number in range(rounds):
        off, counts = measure()
        pairs += zip(off.cpu, counts.cpu, strict=True)
        clocks += zip(off.clock, counts.clock, strict=True)
        explaining += counts.explaining()
        told = " ".join(f"{100.0 * b / a:.0f}" for a, b in zip(off.cpu, counts.cpu, strict=True))
        show(Result("processor time per pod bound", 100.0 * sum(counts.cpu) / sum(off.cpu), "%", f"{number}: {told}"))
    on = f"{NODES} nodes x {DEVICES} devices, {WAITING} pods waiting, {len(pairs)} batches of {BATCH} pods"
    ratios = [100.0 * b / a for a, b in pairs]
    error = stdev(ratios) / sqrt(len(ratios))
    without, published = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    yield Result("processor time of the thread that explains, of all", 100.0 * explaining / published, "%", on)
    title = "processor time per pod bound while explanations are published, of that without"
    yield Result(title, 100.0 * published / without, "%", f"{on}, ± {error:.1f}")
    rate = 100.0 * fmean(a for a, _ in clocks) / fmean(b for _, b in clocks)
    yield Result("pods bound while explanations are published, of those without", rate, "%", on)


if __name__ == "__main__":
    for figure in run(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS):
        show(figure)
