"""What one pod's life from POST to Running costs in `haru up`, by component, and which requests it takes.

    python -m benchmarks.pod_life [--nodes 200] [--gangs 10] [--size 80] [--functions 40] [--document PAGE.md]
    python -m benchmarks.pod_life --nodes 5000 --gangs 250 --unsampled [--seconds 1200]

One process with simulated dgx-h100 nodes runs Jobs of `--size` pods, each with a claim of one GPU, until
all run. The processor time of its main thread is sampled (benchmarks/sampled_up.py), and a sample counts for the
component that asked for the work: the innermost frame that lies in a component's package. What the API server does for
a component's request counts for the API server. Requests are the difference of `apiserver_request_total`.

`--unsampled` leaves the components out and tells the progress instead: for each tenth of the pods seconds, processor
time of `haru up` and its memory (children included). What takes longer than `--seconds` is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path

from benchmarks.cluster import compile_package, kind
from benchmarks.processes import cpu_seconds, high_water_mib, resident_mib
from benchmarks.sampled_up import OTHER_THREADS
from benchmarks.tables import Line, markdown, plain, write_section
from haru.client.api import ApiClient

POD, JOB = kind("", "pods"), kind("batch", "jobs")
TEMPLATE = kind("resource.k8s.io", "resourceclaimtemplates")
SETTLE_SECONDS = 5.0
LIMIT_SECONDS = 1200.0
PORTIONS = 10
_PACKAGE = re.compile(r"/haru/(\w+)(?:/|\.py:)").search

COMPONENTS = {
    "apiserver": "API server",
    "storage": "store",
    "scheduler": "scheduler",
    "engine": "scheduler",
    "workload": "scheduler",
    "controllers": "controllers",
    "gangs": "scheduler",
    "node": "simulated nodes",
    "simulated_nodes": "simulated nodes",
    "dashboard": "pages, accounting, explain",
    "accounting": "pages, accounting, explain",
    "cluster_view": "pages, accounting, explain",
    "explain": "pages, accounting, explain",
    "explain_server": "pages, accounting, explain",
    "serving": "HTTP, TLS",
    "http2": "HTTP, TLS",
}
"""The component of a package; what is in none of them is `shared`, and counts for who called it."""
CLIENTS = "clients in the process (reading watches and answers)"
LOOP = "event loop"
THREADS = "other threads (the store's writer, renewal of leases)"
_NAMED = re.compile(r'apiserver_request_total\{code="(\d+)",resource="([^"]*)",verb="(\w+)"\} (\d+)').fullmatch
Requests = Counter[tuple[str, str, str]]


def component_of(stack: Sequence[str]) -> str:
    """The component for which a stack, from the innermost frame outward, counts."""
    if stack[0] == OTHER_THREADS:
        return THREADS
    is_client = False
    for frame in stack:
        found = _PACKAGE(frame)
        if found is None:
            continue
        component = COMPONENTS.get(found[1])
        if component is not None:
            return component
        is_client |= found[1] == "client"
    return CLIENTS if is_client else LOOP


def by_component(rows: Iterable[Sequence[str | float]]) -> Counter[str]:
    """Seconds by component, of rows of seconds and a stack."""
    seconds: Counter[str] = Counter()
    for first, *stack in rows:
        seconds[component_of([str(frame) for frame in stack])] += first  # type: ignore[assignment]
    return seconds


def requests_of(exposition: str) -> Requests:
    """Finished requests by resource, verb and status."""
    found = (match.groups() for line in exposition.splitlines() if (match := _NAMED(line)))
    return Counter({(resource, verb, code): int(count) for code, resource, verb, count in found})


class Cluster:
    """A `haru up` that can be sampled."""

    def __init__(self, nodes: int, directory: Path, flags: Sequence[str]) -> None:
        compile_package()
        began = time.monotonic()
        self.stacks = directory / "stacks.json"
        data = directory / "data"
        command = [sys.executable, "-m", "benchmarks.sampled_up", str(self.stacks), "up", "--listen", "127.0.0.1:0"]
        command += ["--processes", "one", "--profile", f"dgx-h100:{nodes}", "--data-dir", str(data), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError("haru up did not become ready")
        self.ready_seconds = time.monotonic() - began
        self.client = ApiClient.from_kubeconfig(data / "kubeconfig", user_agent="haru-benchmark")

    def signal(self) -> None:
        """Begin to sample, or end."""
        self.process.send_signal(signal.SIGUSR1)

    def state(self) -> tuple[str, str, str]:
        """Processor time so far, memory now and at most, of the process and its children."""
        pid = self.process.pid
        return f"{cpu_seconds(pid):,.1f}", f"{resident_mib(pid):,.0f}", f"{high_water_mib(pid):,.0f}"

    def rows(self) -> list[list[str | float]]:
        """The samples, once they are written."""
        until = time.monotonic() + 60
        while not self.stacks.exists():
            if time.monotonic() > until:
                raise RuntimeError("haru up wrote no samples")
            time.sleep(0.05)
        rows: list[list[str | float]] = json.loads(self.stacks.read_text())
        return rows

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


async def run_jobs(
    client: ApiClient,
    gangs: int,
    size: int,
    tell: Callable[[int], None] = lambda running: None,
    limit: float = LIMIT_SECONDS,
) -> float:
    """Create Jobs and wait until all of their pods run, telling how many do; the seconds that it took."""
    device = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    spec = {"spec": {"devices": {"requests": [device]}}}
    await client.create(TEMPLATE, {"metadata": {"name": "one", "namespace": "default"}, "spec": spec})
    revision = (await client.list(POD, "default"))["metadata"]["resourceVersion"]
    began = time.monotonic()
    watched = asyncio.create_task(_wait_running(client, revision, gangs * size, tell))
    for number in range(gangs):
        await client.create(JOB, _job(f"job-{number}", size))
    await asyncio.wait_for(watched, limit)
    return time.monotonic() - began


def _job(name: str, size: int) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "work:1",
        "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
    }
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    pod = {"restartPolicy": "Never", "resourceClaims": claims, "containers": [container]}
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": {"spec": pod}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def _wait_running(client: ApiClient, revision: str, count: int, tell: Callable[[int], None]) -> None:
    running: set[str] = set()
    while len(running) < count:
        async with aclosing(client.watch(POD, "default", revision)) as events:
            async for _, pod in events:
                revision = pod["metadata"]["resourceVersion"]
                uid = pod["metadata"].get("uid", "")
                if (pod.get("status") or {}).get("phase") == "Running" and uid not in running:
                    running.add(uid)
                    tell(len(running))
                    if len(running) == count:
                        return


async def progress(cluster: Cluster, gangs: int, size: int, limit: float) -> bool:
    """Print what each portion of the pods took; whether all ran in time."""
    count, began = gangs * size, time.monotonic()
    portion = max(1, count // PORTIONS)
    print(f"ready after {cluster.ready_seconds:.1f} s", *cluster.state())
    await asyncio.sleep(SETTLE_SECONDS)

    def tell(running: int) -> None:
        if running % portion == 0:
            print(f"{running:,}", f"{time.monotonic() - began:,.1f}", *cluster.state(), flush=True)

    async with cluster.client:
        began = time.monotonic()
        tell(0)
        try:
            await run_jobs(cluster.client, gangs, size, tell, limit)
        except TimeoutError:
            print("stopped unfinished", *cluster.state())
            return False
    return True


async def measure(cluster: Cluster, gangs: int, size: int) -> tuple[float, float, Requests]:
    """Seconds until all run, processor time of the process, and requests."""
    client = cluster.client
    async with client:
        await asyncio.sleep(SETTLE_SECONDS)
        before = requests_of((await client.raw("GET", "/metrics"))[2].decode())
        used = cpu_seconds(cluster.process.pid)
        cluster.signal()
        seconds = await run_jobs(client, gangs, size)
        cluster.signal()
        used = cpu_seconds(cluster.process.pid) - used
        after = requests_of((await client.raw("GET", "/metrics"))[2].decode())
    return seconds, used, after - before


def component_lines(seconds: Counter[str], pods: int) -> list[Line]:
    """A table of microseconds of a pod, the largest first."""
    total = sum(seconds.values())
    lines = [(name, f"{used / pods * 1e6:,.0f}", f"{used / total:.0%}") for name, used in seconds.most_common()]
    return [*lines, ("together", f"{total / pods * 1e6:,.0f}", "100%")]


def request_lines(requests: Requests, pods: int) -> list[Line]:
    """A table of requests of a pod, the most frequent first; below one for a hundred pods they are the cluster's."""
    return [
        (resource, verb, code, f"{count / pods:.2f}")
        for (resource, verb, code), count in requests.most_common()
        if count * 100 >= pods
    ]


def function_lines(rows: Iterable[Sequence[str | float]], pods: int, shown: int) -> list[Line]:
    """The functions in which most time passed, and those during whose calls it did."""
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for used, *stack in rows:
        assert isinstance(used, float)
        names = [re.sub(r"^.*/(?=haru/|site-packages/|lib/)", "", str(frame)) for frame in stack]
        own[names[0]] += used  # type: ignore[assignment]
        for name in set(names):
            within[name] += used  # type: ignore[assignment]
    tables = (("itself", own), ("with what it calls", within))
    return [
        (how, name, f"{used / pods * 1e6:,.0f}") for how, table in tables for name, used in table.most_common(shown)
    ]


def main() -> int:
    """Measure and print."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--gangs", type=int, default=10)
    parser.add_argument("--size", type=int, default=80)
    parser.add_argument("--functions", type=int, default=0, metavar="COUNT", help="also print so many functions")
    parser.add_argument("--document", type=Path, help="write the tables into this document")
    parser.add_argument("--unsampled", action="store_true", help="tell progress and memory instead of components")
    parser.add_argument("--seconds", type=float, default=LIMIT_SECONDS, help="stop what takes longer")
    options, flags = parser.parse_known_args()
    pods = options.gangs * options.size
    with tempfile.TemporaryDirectory(prefix="haru-bench-") as directory:
        cluster = Cluster(options.nodes, Path(directory), flags)
        try:
            if options.unsampled:
                print("running  s  processor s  MiB  at most")
                return int(not asyncio.run(progress(cluster, options.gangs, options.size, options.seconds)))
            seconds, used, requests = asyncio.run(measure(cluster, options.gangs, options.size))
            rows = cluster.rows()
        finally:
            cluster.stop()
    heads, request_heads = ("component", "µs/pod", "share"), ("resource", "verb", "status", "requests/pod")
    components, asked = component_lines(by_component(rows), pods), request_lines(requests, pods)
    print(f"{pods} pods on {options.nodes} nodes run after {seconds:.1f} s; {used / pods * 1e3:.2f} ms a pod")
    print(plain(heads, components))
    print(plain(request_heads, asked, frozenset((0, 1, 2))))
    if options.functions:
        print(plain(("time", "function", "µs/pod"), function_lines(rows, pods, options.functions), frozenset((0, 1))))
    if options.document is not None:
        text = f"{markdown(heads, components)}\n\n{markdown(request_heads, asked, frozenset((0, 1, 2)))}"
        write_section(options.document, "pod life", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
