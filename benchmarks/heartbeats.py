"""Heartbeats of simulated nodes on a machine that is busy with other things: how late they come, and who is lost by it.

`haru up` starts beside processes that do nothing but compute, and is watched as a node controller watches: by when a
renewal of a Lease arrives. `--pods` gives the simulated kubelets other work meanwhile: so many pods each minute, each
of which ends by itself and is deleted. `--gangs` starts so many Jobs of 80 pods instead, each with a claim of a card,
and asks meanwhile again and again, as people would: `haru explain` of the last Job, and `kubectl get pods`. Told is
what these took, how many failed, and how often `haru explain` read the cluster itself, with why. The exit status is 1
if a node that was Ready was not any more. Run it alone, it is no part of `make bench`:
`python -m benchmarks.heartbeats [PROFILE:COUNT] [--seconds 300] [--busy 2] [--pods 0 | --gangs 40]`
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cluster import Running, kind, running
from benchmarks.pod_life import run_jobs
from benchmarks.results import Result, show
from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import get_condition

_LEASES = kind("coordination.k8s.io", "leases")
_NODES = kind("", "nodes")
_PODS = kind("", "pods")
_LEASE_NAMESPACE = "kube-node-lease"
_PERIOD_SECONDS = (10.0, 20.0)
_LARGE_FLEET = 200
_GANG = 80
_ASK_AGAIN_SECONDS = 1.0
_EXPLAIN = "haru explain"
_READ = "the cluster is read: "


@dataclass(slots=True)
class Asked:
    """What the runs of a command took, and who answered."""

    took: list[float] = field(default_factory=list)
    failed: int = 0
    reads: list[str] = field(default_factory=list)
    """Why `haru explain` read the cluster itself, each time that explain.haru.dev did not answer."""

    def add(self, seconds: float, status: int, told: str) -> None:
        """Count a run by its exit status, and by what it said on stderr."""
        if status:
            self.failed += 1
            print(f"failed: {told}", file=sys.stderr)
            return
        self.took.append(seconds)
        self.reads += [line.strip() for line in told.splitlines() if line.startswith(_READ)]

    def results(self, name: str) -> Iterator[Result]:
        """The figures of the command."""
        times = f"{len(self.took)} times"
        if self.took:
            yield Result(f"{name} meanwhile, median", statistics.median(self.took), "s", times)
            yield Result(f"{name} meanwhile, longest", max(self.took), "s", times)
        yield Result(f"{name} meanwhile, failed", self.failed, "", times)
        if name == _EXPLAIN:
            whys = "".join(f"; {number} x {why}" for why, number in Counter(self.reads).items())
            yield Result(f"{name} meanwhile, read the cluster itself", len(self.reads), "", times + whys)


class Heartbeats:
    """What a watcher learns of the nodes, by its own clock."""

    def __init__(self) -> None:
        self.ready: dict[str, bool] = {}
        self.lost: list[str] = []
        self.heard: dict[str, float] = {}
        self.longest = 0.0
        """The longest time between two renewals of one node."""
        self.ran = 0.0
        """Seconds until all pods of the Jobs ran."""
        self.asked: defaultdict[str, Asked] = defaultdict(Asked)
        """The commands that were asked meanwhile."""

    def node(self, node: dict[str, Any]) -> None:
        """A node as it is now."""
        name, condition = node["metadata"]["name"], get_condition(node, "Ready")
        is_ready = condition is not None and condition["status"] == "True"
        if self.ready.get(name) and not is_ready:
            self.lost.append(name)
        self.ready[name] = is_ready

    def lease(self, lease: dict[str, Any]) -> None:
        """A Lease that was renewed."""
        name, now = lease["metadata"]["name"], time.monotonic()
        self.longest = max(self.longest, now - self.heard.get(name, now))
        self.heard[name] = now

    def finish(self) -> None:
        """Count those that are still waited for."""
        now = time.monotonic()
        self.longest = max([self.longest, *(now - at for at in self.heard.values())])


async def _follow(client: ApiClient, which: Kind, namespace: str, hear: Callable[[dict[str, Any]], None]) -> None:
    while True:
        listed = await client.list(which, namespace)
        for obj in listed["items"]:
            hear(obj)
        revision = listed["metadata"]["resourceVersion"]
        with contextlib.suppress(StatusError):
            async with aclosing(client.watch(which, namespace, revision)) as events:
                async for type_, obj in events:
                    if type_ in ("ADDED", "MODIFIED"):
                        hear(obj)


async def _give_work(client: ApiClient, count: int) -> None:
    """So many pods a minute, until cancelled; those of the minute before are deleted."""
    annotations = {"simulated.haru.dev/run-seconds": "20"}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
    pod = {"metadata": {"generateName": "work-", "annotations": annotations}, "spec": spec}
    while True:
        began = time.monotonic()
        await client.delete_collection(_PODS, "default")
        for start in range(0, count, 20):
            many = range(start, min(start + 20, count))
            await asyncio.gather(*(client.create(_PODS, pod, "default") for _ in many), return_exceptions=True)
        await asyncio.sleep(max(0.0, 60 - (time.monotonic() - began)))


async def _ask(kubeconfig: str, command: Sequence[str], asked: Asked) -> None:
    """Run a command again and again until cancelled, and note how each run went."""
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    while True:
        began = time.monotonic()
        nowhere, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=nowhere, stderr=pipe)
        try:
            _, told = await process.communicate()
        finally:
            if process.returncode is None:  # cancelled meanwhile
                process.kill()
                await process.wait()
        asked.add(time.monotonic() - began, process.returncode or 0, told.decode())
        await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def _run_jobs(cluster: Running, client: ApiClient, gangs: int, heartbeats: Heartbeats) -> None:
    """Run Jobs; until all of their pods run, ask about them."""
    explain = (sys.executable, "-m", "haru", "explain", "-v", f"job/job-{gangs - 1}")
    commands = {_EXPLAIN: explain, "kubectl get pods": ("kubectl", "get", "pods")}
    asking = [
        asyncio.create_task(_ask(str(cluster.kubeconfig), command, heartbeats.asked[name]))
        for name, command in commands.items()
    ]
    try:
        heartbeats.ran = await run_jobs(client, gangs, _GANG)
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def _watch(cluster: Running, seconds: float, pods: int, gangs: int) -> Heartbeats:
    heartbeats = Heartbeats()
    async with cluster.client() as client:
        tasks = [
            asyncio.create_task(_follow(client, _NODES, "", heartbeats.node)),
            asyncio.create_task(_follow(client, _LEASES, _LEASE_NAMESPACE, heartbeats.lease)),
        ]
        if pods:
            tasks.append(asyncio.create_task(_give_work(client, pods)))
        jobs = asyncio.create_task(_run_jobs(cluster, client, gangs, heartbeats)) if gangs else None
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        if jobs is not None:
            tasks.append(jobs)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
    heartbeats.finish()
    return heartbeats


def _compute() -> None:
    number = 1
    while True:
        number = number * 3 % 1_000_003


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that take what they can get of the machine."""
    started = [multiprocessing.get_context("spawn").Process(target=_compute, daemon=True) for _ in range(count)]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.join()


def measure(profiles: str, seconds: float, busy: int, pods: int, gangs: int = 0) -> Iterator[Result]:
    """Nodes that were lost, and how late renewals came."""
    with busy_processes(busy), running(profiles) as cluster:
        used = cluster.cpu_seconds()
        heartbeats = asyncio.run(_watch(cluster, seconds, pods, gangs))
        load = (cluster.cpu_seconds() - used) / seconds * 100
    size = f"{profiles}, {busy} busy processes, {seconds:g} s" + (f", {pods} pods a minute" if pods else "")
    if gangs:
        size += f", {gangs * _GANG} pods in gangs of {_GANG}"
        yield Result("all pods Running", heartbeats.ran or float("nan"), "s", size)
    for name, asked in heartbeats.asked.items():
        yield from asked.results(name)
    period = _PERIOD_SECONDS[len(heartbeats.ready) > _LARGE_FLEET]
    yield Result("haru up ready", cluster.ready_seconds, "s", size)
    yield Result("haru up load", load, "% CPU", size)
    yield Result("nodes watched", len(heartbeats.ready), "", size)
    yield Result("nodes Ready at the end", sum(heartbeats.ready.values()), "", size)
    yield Result("nodes Ready -> not Ready", len(heartbeats.lost), "", size)
    yield Result("latest renewal of a Lease, after its time", max(0.0, heartbeats.longest - period), "s", size)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heartbeats")
    parser.add_argument("profiles", nargs="?", default="dgx-h100:1000")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--pods", type=int, default=0)
    parser.add_argument("--gangs", type=int, default=0)
    flags = parser.parse_args()
    lost = 0.0
    for result in measure(flags.profiles, flags.seconds, flags.busy, flags.pods, flags.gangs):
        show(result)
        lost += result.value if result.name == "nodes Ready -> not Ready" else 0
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
