"""How fast the API server of `haru up` answers, beside a server on the same stack that does nothing.

    python -m benchmarks.api_speed [NAME…] [--document docs/performance-api.md]

The load comes from a process of its own (`benchmarks/http_load.py`), so with two cores the server has one. Bars:

    get        a small object: at least half the request rate of a bare handler
    list       5,000 pods: at most 25 ms
    watch      200 watchers x 1,000 events a second and 1,000 x 200, nobody falls behind
    create     at least 2,000 durable creates a second with 32 clients; the store's share
    start      with 100,000 objects in at most 3 s; memory
    http2      GET, LIST and watches over HTTP/2 and HTTP/1.1 by turns: what the one costs more than the other
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import uvloop

from benchmarks.calibrate import calibrate
from benchmarks.cluster import _cpu_seconds, compile_package
from benchmarks.results import CALIBRATION_SECONDS
from benchmarks.tables import markdown, plain, write_section
from haru.client.kubeconfig import load_kubeconfig

Obj = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
ALONE = ("--profile", "cpu:0", "--controllers", "", "--no-scheduler", "--no-dashboard", "--no-usage-history")
CLIENTS = 32
"""Who write at the same time: with a disk that takes 5 ms for a commit 16 of them can not make 1,000 a second."""
MAP = json.dumps({"metadata": {"name": "object-{n}", "labels": {"app": "benchmark"}}, "data": {"text": "x" * 500}})
POD = json.dumps(
    {
        "metadata": {"name": "pod-{n}", "labels": {"app": "web", "team": "a"}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/web:1",
                    "env": [{"name": f"NAME_{number}", "value": "value"} for number in range(6)],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                }
            ],
        },
    }
)


class Server:
    """A `haru up` with nothing but its API server, on a data directory that outlives it."""

    def __init__(self, data: Path, module: str = "haru") -> None:
        self.data = data
        compile_package()
        began = time.perf_counter()
        command = [sys.executable, "-m", module, "up", "--listen", "127.0.0.1:0", "--data-dir", str(data), *ALONE]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("haru up did not become ready")
        self.ready_seconds = time.perf_counter() - began
        config = load_kubeconfig(data / "kubeconfig")
        split = urlsplit(config.server)
        assert config.ca_pem is not None
        self.target: Obj = {
            "host": split.hostname,
            "port": split.port,
            "ca": config.ca_pem.decode(),
            "token": config.token,
        }

    def rate(self, method: str, path: str, requests: int, connections: int, body: str = "", first: int = 0) -> Obj:
        """Requests as fast as they go; what the load generator says, and the processor time of the server."""
        return rate(self.target, self.process.pid, method, path, requests, connections, body, first)

    def resident_mib(self) -> float:
        """Resident memory."""
        rows = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS:")) / 1024

    def stop(self) -> None:
        """Ends it and waits."""
        self.process.terminate()
        self.process.wait(60)


def rate(
    target: Obj, process: int, method: str, path: str, requests: int, connections: int, body: str = "", first: int = 0
) -> Obj:
    """Requests to any server as fast as they go."""
    job = {
        **target, "job": "rate", "method": method, "path": path, "requests": requests, "connections": connections,
        "body": body, "first": first,
    }  # fmt: skip
    return _loaded(job, process)


def _loaded(job: Obj, process: int) -> Obj:
    """What a client in a process of its own tells of a job, and the processor time of the server meanwhile."""
    before = _cpu_seconds(process)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.http_load"], input=json.dumps(job) + "\n", capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    answer: Obj = json.loads(done.stdout)
    return answer | {"server": _cpu_seconds(process) - before}


@contextlib.contextmanager
def alone(module: str = "haru") -> Iterator[Server]:
    """A server with nothing in it, as a module runs it."""
    with tempfile.TemporaryDirectory(prefix="haru-bench-") as directory:
        server = Server(Path(directory) / "data", module)
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def bare(server: Server, body: bytes) -> Iterator[tuple[Obj, int]]:
    """The same stack, with the same certificate and answer, that does nothing."""
    file = server.data.parent / "body"
    file.write_bytes(body)
    pki = server.data / "pki"
    command = [sys.executable, "-m", "benchmarks.bare_server", str(pki / "server.crt"), str(pki / "server.key")]
    process = subprocess.Popen([*command, str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield {**server.target, "port": int(process.stdout.readline())}, process.pid
    finally:
        process.kill()
        process.wait()


class Figure(NamedTuple):
    """One row: what was measured, and what of the bar."""

    name: str
    figure: str
    bar: str
    met: bool | None


def get(server: Server) -> Iterator[Figure]:
    """GET of a small object, by turns with the bare handler."""
    server.rate("POST", MAPS, 1, 1, MAP)
    path, count = f"{MAPS}/object-0", 3_000
    size = server.rate("GET", path, 1, 1)["bytes"]
    found: dict[str, list[Obj]] = {"haru": [], "bare": []}
    with bare(server, b"x" * size) as (target, process):
        for _ in range(5):
            found["haru"].append(server.rate("GET", path, count, 8))
            found["bare"].append(rate(target, process, "GET", path, count, 8))
    per_second = {name: count / median(one["seconds"] for one in runs) for name, runs in found.items()}
    used = {name: median(one["server"] for one in runs) / count * 1e6 for name, runs in found.items()}
    share = median(b["seconds"] / h["seconds"] for h, b in zip(found["haru"], found["bare"], strict=True))
    told = f"{per_second['haru']:,.0f}/s, a bare handler {per_second['bare']:,.0f}/s: {share:.0%}"
    yield Figure("GET of a small object, 8 connections", told, "at least 50 %", share >= 0.5)
    told = f"{used['haru']:.0f} µs, a bare handler {used['bare']:.0f} µs"
    yield Figure("the same, processor time of the server a request", told, "", None)


def lists(server: Server) -> Iterator[Figure]:
    """LIST of 5,000 pods, by turns with the bare handler; after a change; compressed; and the first time."""
    server.rate("POST", PODS, 5_000, 32, POD)
    process, scales = server.process.pid, [CALIBRATION_SECONDS / calibrate(1)]
    first = large(server.target, process, 1)
    size = first["bytes"]
    found: dict[str, list[Obj]] = {"haru": [], "bare": [], "changed": [], "gzip": []}
    with bare(server, b"x" * size) as (target, bare_process):
        for turn in range(5):
            found["haru"].append(large(server.target, process, 5))
            found["bare"].append(large(target, bare_process, 5))
            found["gzip"].append(large(server.target, process, 5, "gzip"))
            server.rate("POST", PODS, 1, 1, POD, 100_000 + turn)
            found["changed"].append(large(server.target, process, 1))
            scales.append(CALIBRATION_SECONDS / calibrate(1))
    scale = median(scales)

    def told(runs: Sequence[Obj]) -> str:
        # On a new connection the kernel begins with little.
        milliseconds = median(one for run in runs for one in run["seconds"][1:] or run["seconds"]) * 1e3
        return f"{milliseconds:.1f} ms ({milliseconds * scale:.1f} scaled)"

    scaled = median(one for run in found["haru"] for one in run["seconds"][1:]) * 1e3 * scale
    line = f"{told(found['haru'])}, {size / 1e6:.1f} MB; a bare handler {told(found['bare'])}"
    yield Figure("LIST of 5,000 pods", line, "at most 25 ms", scaled <= 25)
    used = {name: sum(run["server"] for run in runs) / 25 * 1e3 for name, runs in found.items()}
    line = f"{used['haru']:.1f} ms, a bare handler {used['bare']:.1f} ms, with gzip {used['gzip']:.1f} ms"
    yield Figure("the same, processor time of the server", line, "", None)
    yield Figure("the same with gzip, as Go's clients ask for it", told(found["gzip"]), "", None)
    yield Figure("the same on a new connection after one pod more", told(found["changed"]), "", None)
    yield Figure("the same, the first time", told([first]), "", None)


def large(target: Obj, process: int, requests: int, encoding: str = "identity") -> Obj:
    """LISTs of pods one after the other by a client that only reads; the processor time of the server, too."""
    job = {**target, "job": "large", "path": PODS, "requests": requests, "encoding": encoding}
    return _loaded(job, process)


def watch(server: Server) -> Iterator[Figure]:
    """Watchers of everything, while objects are made for five seconds, at a steady rate that this machine is up to."""
    for number, (watchers, per_second) in enumerate(((200, 1_000), (1_000, 200))):
        scale = min(1.0, CALIBRATION_SECONDS / calibrate(3))
        pace = CALIBRATION_SECONDS / calibrate(3, time.process_time)
        rate = per_second * scale
        events, first = round(5 * rate), 1_000_000 * (number + 1)
        before = _cpu_seconds(server.process.pid)
        uvloop.run(_steady(server, events, rate, first))
        apart = _cpu_seconds(server.process.pid) - before
        lag, used, seconds = _watched(server, watchers, events, rate, first + 500_000)
        made = events / seconds
        told = (
            f"{made:,.0f} events/s made of {rate:,.0f} ({made / scale:,.0f} scaled), "
            f"the last watcher had all {lag:.2f} s after the last one"
        )
        met = lag * scale < 1 and made > 0.95 * rate
        yield Figure(f"{watchers:,} watchers, {per_second:,} events/s", told, "nobody falls behind", met)
        delivery = (used - apart) / events / watchers * 1e6
        told = (
            f"{used / events * 1e6:,.0f} µs an event, {apart / events * 1e6:,.0f} µs without watchers: "
            f"{delivery:.1f} µs a delivery ({delivery * pace:.1f} scaled)"
        )
        yield Figure("the same, processor time of the server", told, "", None)


def _watched(
    server: Server, watchers: int, events: int, rate: float, first: int, **way: int
) -> tuple[float, float, float]:
    """Objects made while they are watched: the last watcher's lag, the server's processor time, the time it took."""
    path = f"{MAPS}?watch=true&resourceVersion={_revision(server)}"
    job = {**server.target, **way, "job": "watch", "path": path, "watchers": watchers, "events": events}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.http_load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    before, began = _cpu_seconds(server.process.pid), time.time()
    uvloop.run(_steady(server, events, rate, first))
    written = time.time()
    answer = json.loads(process.stdout.readline())
    process.wait()
    return answer["last"] - written, _cpu_seconds(server.process.pid) - before, written - began


def _revision(server: Server) -> str:
    from haru.client.api import ApiClient

    async def ask() -> str:
        async with ApiClient.from_kubeconfig(server.data / "kubeconfig", user_agent="haru-benchmark") as client:
            from benchmarks.cluster import kind

            found = await client.list(kind("", "configmaps"), "default", limit=1)
            return str(found["metadata"]["resourceVersion"])

    return asyncio.run(ask())


async def _steady(server: Server, events: int, per_second: float, first: int) -> None:
    """Objects made at a rate, by as many clients as make them in `create`; each waits for its next moment."""
    from benchmarks.http_load import _answer, _context, _head

    target, begun = server.target, time.perf_counter()
    numbers = iter(range(events))

    async def work() -> None:
        reader, writer = await asyncio.open_connection(
            target["host"], target["port"], ssl=_context(target), limit=1 << 24
        )
        for number in numbers:
            await asyncio.sleep(max(0.0, begun + number / per_second - time.perf_counter()))
            writer.write(_head(target, "POST", MAPS, MAP.replace("{n}", str(first + number)).encode()))
            await _answer(reader)
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(work())


def create(server: Server) -> Iterator[Figure]:
    """Durable creates by 32 clients, and what the store alone takes for as many."""
    count = 10_000
    runs = [server.rate("POST", MAPS, count, CLIENTS, MAP, 2_000_000 + number * count) for number in range(3)]
    seconds = median(one["seconds"] for one in runs)
    used = median(one["server"] for one in runs)
    scale = CALIBRATION_SECONDS / calibrate()
    stored = asyncio.run(_store_alone(server.data.parent / "store.db", count))
    told = f"{count / seconds:,.0f}/s ({count / seconds / scale:,.0f} scaled); {used / count * 1e6:.0f} µs a create"
    yield Figure("create, 32 clients, durable", told, "at least 2,000/s", count / seconds / scale >= 2_000)
    told = f"{stored:.2f} s of {seconds:.2f} s for {count:,} creates: {stored / seconds:.0%}"
    yield Figure("the store's share, measured alone with 32 writers", told, "", None)


async def _store_alone(path: Path, count: int) -> float:
    from haru.storage import Put, SqliteStore

    store = SqliteStore(path)
    await store.start()
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await store.transact(Put(f"/registry/configmaps/default/object-{number}", MAP.encode(), 0))

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(work())
    seconds = time.perf_counter() - began
    await store.stop()
    return seconds


def start(server: Server) -> Iterator[Figure]:
    """A server that finds 100,000 objects."""
    server.rate("POST", MAPS, 100_000, 32, MAP, 10_000_000)
    held = server.resident_mib()
    server.stop()
    scale = CALIBRATION_SECONDS / calibrate()
    again = Server(server.data)
    seconds, resident = again.ready_seconds, again.resident_mib()
    server.process, server.target = again.process, again.target
    told = f"{seconds:.1f} s ({seconds * scale:.1f} scaled); {resident:,.0f} MiB, {held:,.0f} MiB after writing them"
    yield Figure("start with 100,000 objects more", told, "at most 3 s", seconds * scale <= 3)


WAYS: dict[str, Obj] = {
    "HTTP/1.1, 8 connections": {"connections": 8},
    "HTTP/2, 8 connections": {"connections": 8, "streams": 1},
    "HTTP/2, 8 streams of one connection": {"connections": 1, "streams": 8},
}


def http2(server: Server) -> Iterator[Figure]:
    """The same requests over one protocol and the other, by turns."""
    server.rate("POST", MAPS, 1, 1, MAP)
    server.rate("POST", PODS, 5_000, 32, POD)
    ask = {**server.target, "job": "rate", "method": "GET", "path": f"{MAPS}/object-0", "requests": 3_000, "body": ""}
    runs: dict[str, list[Obj]] = {name: [] for name in WAYS}
    for _ in range(7):
        for name, way in WAYS.items():
            runs[name].append(_loaded({**ask, **way}, server.process.pid))
    for name, found in runs.items():
        rate, used = median(3_000 / one["seconds"] for one in found), median(one["server"] for one in found) / 3_000
        yield Figure(f"GET of a small object: {name}", f"{rate:,.0f}/s, {used * 1e6:.0f} µs of the server", "", None)
    runs = {name: [] for name in ("HTTP/1.1", "HTTP/2")}
    for _ in range(5):
        for name in runs:
            job = {**server.target, "job": "large", "path": PODS, "requests": 10}
            way = {"streams": 1} if name == "HTTP/2" else {}
            runs[name].append(_loaded({**job, **way}, server.process.pid))
    for name, found in runs.items():
        used = median(one["server"] for one in found) / 10 * 1e3
        yield Figure(f"LIST of 5,000 pods: {name}", f"{used:.1f} ms of the server", "", None)
    yield from _http2_watches(server)


def _http2_watches(server: Server) -> Iterator[Figure]:
    # So many watchers that what they get costs more than what is made.
    rate = 200 * min(1.0, CALIBRATION_SECONDS / calibrate(3))
    events, watchers = round(3 * rate), 800
    found: dict[str, list[float]] = {"none": [], "HTTP/1.1": [], "HTTP/2": []}
    for turn in range(5):
        for number, name in enumerate(found):
            first = 20_000_000 + turn * 1_000_000 + number * 100_000
            if name == "none":
                before = _cpu_seconds(server.process.pid)
                uvloop.run(_steady(server, events, rate, first))
                found[name].append(_cpu_seconds(server.process.pid) - before)
            else:
                way = {"streams": 100} if name == "HTTP/2" else {}
                found[name].append(_watched(server, watchers, events, rate, first, **way)[1])
    for name, where in (("HTTP/1.1", "800 connections"), ("HTTP/2", "eight connections")):
        used = median(each - alone for each, alone in zip(found[name], found["none"], strict=True))
        told = f"{used / events * 1e6:,.0f} µs an event, {used / events / watchers * 1e6:.2f} µs a delivery"
        yield Figure(f"800 watchers, {rate:,.0f} events/s: {name}, {where}", told, "", None)


PARTS: dict[str, Callable[[Server], Iterator[Figure]]] = {
    "get": get, "list": lists, "watch": watch, "create": create, "start": start, "http2": http2
}  # fmt: skip
HEADS = ("what", "measured", "bar", "")


def table(found: Sequence[Figure], in_markdown: bool) -> str:
    """The figures of a part."""
    said = {True: "met", False: "missed", None: ""}
    rows = [[one.name, one.figure, one.bar, said[one.met]] for one in found]
    return (markdown if in_markdown else plain)(HEADS, rows, frozenset(range(len(HEADS))))


def main() -> int:
    """Prints the tables, each part measured on a server of its own; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *PARTS], help="only these parts")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write their tables into this document")
    options = parser.parse_args()
    is_missed = False
    for name in options.names or PARTS:
        found = []
        with alone() as server:
            for one in PARTS[name](server):
                print(f"{one.name}: {one.figure}", file=sys.stderr, flush=True)
                found.append(one)
        print(table(found, False))
        if options.document is not None:
            write_section(options.document, f"api {name}", table(found, True))
        is_missed |= any(one.met is False for one in found)
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
