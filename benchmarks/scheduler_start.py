"""`haru scheduler` that starts before a long queue: when it is ready, when its first pod is bound, its longest pause.

10,000 pods wait that name 10,000 claims, one each; the API server is a process of its own. `fits`: there is a device
for every claim. `scarce`: for one in ten, so that nine in ten are refused. The longest pause is that of the scheduler's
event loop, as its metrics tell it, from its start until all is bound that can be; they tell, too, how much of its
pauses was the fault of a busy machine. Run it alone:

    python -m benchmarks.scheduler_start [fits|scarce] [PODS]
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from benchmarks.cluster import Running, cpu_seconds, kind, running
from benchmarks.load import POD, each, furnish
from benchmarks.results import Result, show
from haru.client.api import ApiClient

Obj = dict[str, Any]
Moment = tuple[float, float]
"""By the clock, and by the scheduler's processor time."""
CLAIM = kind("resource.k8s.io", "resourceclaims")
PODS = 10_000
DEVICES = 10
SHARES = {"fits": 1.0, "scarce": 0.1}
PATIENCE_SECONDS = 1800  # what a busy machine may take; nothing is measured by it
SETTLE_SECONDS = 1.0
LONGEST = "haru_event_loop_lag_longest_seconds"
MACHINE = 'haru_event_loop_held_up_seconds_total{by="machine"}'


async def _queue(client: ApiClient, pods: int) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    container = {
        "name": "main",
        "image": "work:1",
        "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
    }

    async def add(number: int) -> None:
        claim = f"claim-{number:05}"
        body = {"metadata": {"name": claim}, "spec": {"devices": {"requests": [request]}}}
        spec = {
            "schedulerName": "haru",
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        }
        await client.create(POD, {"metadata": {"name": f"pod-{number:05}"}, "spec": spec}, "default")
        await client.create(CLAIM, body, "default")

    await each(pods, add)


def _asked(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError as error:
        return 0, str(error)
    finally:
        connection.close()


def _metric(text: str, name: str) -> float:
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


@contextlib.contextmanager
def _scheduler(cluster: Running) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--health-port", str(port)]
    process = subprocess.Popen([sys.executable, "-m", "haru", "scheduler", *flags])
    try:
        yield process, port
    finally:
        process.terminate()
        process.wait(60)


def _now(process: subprocess.Popen[bytes]) -> Moment:
    return time.perf_counter(), cpu_seconds(process.pid)


async def _ready(process: subprocess.Popen[bytes], port: int) -> Moment:
    while process.poll() is None:
        status, _ = await asyncio.to_thread(_asked, port, "/readyz")
        _, text = await asyncio.to_thread(_asked, port, "/metrics")
        # Who is not elected yet is ready, too, but has no queue to tell of.
        if status == 200 and "scheduler_pending_pods" in text:
            return _now(process)
        await asyncio.sleep(0.05)
    raise RuntimeError("the scheduler has ended")


async def _bound(process: subprocess.Popen[bytes], client: ApiClient, since: str, count: int) -> list[Moment]:
    """When each pod was bound, until so many are."""
    found: dict[str, Moment] = {}
    async with aclosing(client.watch(POD, "default", resource_version=since)) as stream:
        async for _, pod in stream:
            if (pod.get("spec") or {}).get("nodeName"):
                found.setdefault(pod["metadata"]["name"], _now(process))
            if len(found) == count:
                break
    return list(found.values())


async def _prepare(cluster: Running, pods: int, fitting: int) -> str:
    async with cluster.client() as client:
        await furnish(client, fitting // DEVICES, DEVICES)
        await _queue(client, pods)
        return str((await client.list(POD, "default", limit=1))["metadata"]["resourceVersion"])


async def _follow(
    cluster: Running, process: subprocess.Popen[bytes], port: int, since: str, fitting: int
) -> tuple[Moment, list[Moment], str]:
    """When it was ready, when pods were bound, and its metrics after all of that."""
    async with asyncio.timeout(PATIENCE_SECONDS), cluster.client() as client:
        ready, bound = await asyncio.gather(_ready(process, port), _bound(process, client, since, fitting))
        await asyncio.sleep(SETTLE_SECONDS)
        _, text = await asyncio.to_thread(_asked, port, "/metrics")
    return ready, bound, text


def measure(pods: int, share: float) -> dict[str, float]:
    """Seconds, by what was measured. There are devices for this share of the pods."""
    fitting = int(pods * share)
    with running("cpu:0", "--no-scheduler", "--controllers=") as cluster:
        since = asyncio.run(_prepare(cluster, pods, fitting))
        started = time.perf_counter()
        with _scheduler(cluster) as (process, port):
            ready, bound, text = asyncio.run(_follow(cluster, process, port, since, fitting))
    return {
        "scheduler ready": ready[0] - started,
        "its processor time until then": ready[1],
        "first pod bound": bound[0][0] - started,
        "its processor time until the first pod is bound": bound[0][1],
        "all pods bound that can be": bound[-1][0] - started,
        "longest pause of the scheduler's loop": _metric(text, LONGEST),
        "pauses by a busy machine": _metric(text, MACHINE),
    }


def run(wanted: str = "", pods: int = PODS) -> Iterator[Result]:
    """Every load."""
    for name, share in SHARES.items():
        if wanted in name:
            for what, seconds in measure(pods, share).items():
                yield Result(what, seconds, "s", f"{pods} pods with claims, {name}")


if __name__ == "__main__":
    for result in run(sys.argv[1] if len(sys.argv) > 1 else "", int(sys.argv[2]) if len(sys.argv) > 2 else PODS):
        show(result)
