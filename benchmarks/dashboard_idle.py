"""What `haru dashboard` costs while nothing happens: with no page open, and with one, by page.

    python -m benchmarks.dashboard_idle [PROFILE:COUNT] [--seconds 60] [--page / /map …]

A real `haru up` with simulated nodes, which send their heartbeats, ten jobs that hold 70 % of their cards, and a real
`haru dashboard` for it, whose processor time is read from /proc. The exit status is 1 if a page costs more than
`--most` percent of a core. It is no part of `make bench`: run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from benchmarks.cluster import Running, kind, running
from benchmarks.decision_objects import Obj
from benchmarks.processes import cpu_seconds, resident_mib, started
from benchmarks.tables import plain

PROFILE, SECONDS, MOST_PERCENT = "dgx-h100:1000", 60.0, 5.0
SETTLE_SECONDS = 20.0
JOBS = 10
PAGES = ("/", "/map", "/queue", "/timeline", "/usage")
_TEMPLATES, _JOBS, _PODS = kind("resource.k8s.io", "resourceclaimtemplates"), kind("batch", "jobs"), kind("", "pods")
_LINGER_SECONDS = 75.0
"""The watches end a minute after the last page was closed."""


@asynccontextmanager
async def browser(address: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that has entered by the one-time address."""
    base, _, code = address.partition("/?code=")
    async with httpx.AsyncClient(base_url=base, timeout=600) as client:
        answer = await client.get("/", params={"code": code})
        client.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
        yield client


@asynccontextmanager
async def opened(client: httpx.AsyncClient, page: str) -> AsyncIterator[list[int]]:
    """Load a page and follow it as a browser does; yields the bytes that were sent since, one number."""
    counted = [0]
    (await client.get(page)).raise_for_status()

    async def follow() -> None:
        async with client.stream("GET", "/changes", params={"of": page}) as answer:
            async for chunk in answer.aiter_raw():
                counted[0] += len(chunk)

    task = asyncio.create_task(follow())
    try:
        yield counted
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(address: str, pid: int, pages: list[str], seconds: float) -> list[tuple[str, float, float]]:
    """Return for each page what one viewer costs, in percent of a core, and the bytes that it is sent in a second."""
    found = []
    async with browser(address) as client:
        for page in pages:
            async with opened(client, page) as counted:
                await asyncio.sleep(SETTLE_SECONDS)
                counted[0], before, began = 0, cpu_seconds(pid), time.monotonic()
                await asyncio.sleep(seconds)
                took = time.monotonic() - began
                found.append((page, 100 * (cpu_seconds(pid) - before) / took, counted[0] / took))
    await asyncio.sleep(_LINGER_SECONDS)
    before = cpu_seconds(pid)
    await asyncio.sleep(seconds)
    return [("no page", 100 * (cpu_seconds(pid) - before) / seconds, 0.0), *found]


@contextlib.contextmanager
def dashboard(up: Running, home: Path) -> Iterator[tuple[int, str]]:
    """Run `haru dashboard` for a cluster; yields its process and the address that it prints."""
    command = [sys.executable, "-m", "haru", "dashboard", "--kubeconfig", str(up.kubeconfig)]
    with started(command, home / "dashboard.log") as process:
        while (address := re.search(r"http://\S+", (home / "dashboard.log").read_text())) is None:
            time.sleep(0.1)
        yield process.pid, address[0]


async def fill(up: Running, nodes: int) -> None:
    """Create ten jobs of pods with eight cards each, and wait until they run."""
    async with contextlib.AsyncExitStack() as stack:
        client = up.client()
        stack.push_async_callback(client.close)
        size = max(1, nodes * 7 // 100)
        for number in range(JOBS):
            for each, obj in zip((_TEMPLATES, _JOBS), _job(f"train-{number}", size), strict=True):
                await client.create(each, obj)
        while True:
            found = await client.list(_PODS, "default")
            phases = [(pod.get("status") or {}).get("phase") for pod in found["items"]]
            if phases.count("Running") >= JOBS * size:
                return
            await asyncio.sleep(2)


def _job(name: str, size: int) -> tuple[Obj, Obj]:
    """A claim template and a Job."""
    metadata = {"name": name, "namespace": "default"}
    asked = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": {"devices": {"requests": [asked]}}},
    }
    pod = {
        "metadata": {"annotations": {"simulated.haru.dev/utilization": "70"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "work", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        },
    }
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": pod}
    return template, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?", default=PROFILE, metavar="PROFILE:COUNT")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--page", nargs="+", default=list(PAGES))
    parser.add_argument("--most", type=float, default=MOST_PERCENT, help="percent of a core (default 5)")
    options = parser.parse_args()
    nodes = int(options.profile.partition(":")[2] or 1)
    with running(options.profile, "--no-dashboard") as up, tempfile.TemporaryDirectory() as home:
        asyncio.run(fill(up, nodes))
        with dashboard(up, Path(home)) as (pid, address):
            found = asyncio.run(measure(address, pid, options.page, options.seconds))
            memory = resident_mib(pid)
    rows = [(page, f"{percent:.2f} %", f"{rate:.0f}") for page, percent, rate in found]
    print(plain(("page that is open", "of one core", "bytes a second"), rows))
    most = max(percent for _, percent, _ in found)
    verdict = "yes" if most <= options.most else "NO"
    print(f"{nodes} nodes, {memory:.0f} MiB; at most {options.most:g} % of a core: {verdict} ({most:.2f} %)")
    return int(most > options.most)


if __name__ == "__main__":
    sys.exit(main())
