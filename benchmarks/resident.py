"""Time and memory of `haru explain`: the resident answer, and the command that reads the cluster itself.

    python -m benchmarks.resident [--nodes 1000 --nodes 5000 --nodes 10000] [--document docs/performance-explain.md]

An API server that has all lists ready as bytes stands for the cluster: nodes of 8 cards that are all taken, one pod
with a claim for each card in 40 namespaces, and a gang that waits. `haru explain serve` is a process of its own, asked
over HTTPS with the front proxy's certificate for a user who may see one namespace: `first`, then `next`, the median of
five questions, before each of which a pod elsewhere has come; before those of `moved`, a card elsewhere has gone from
one pod to another. Memory is the peak of that process (VmHWM), processor
time what it took for one question. `haru explain` is a process of its own, too, from start to end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import aiohttp
import orjson

from benchmarks.decision_objects import Obj, gang, member, node_objects, taken_member
from benchmarks.device_objects import CLASSES
from benchmarks.results import Result
from benchmarks.tables import markdown, plain, write_section

NODES = (1_000, 5_000, 10_000)
CARDS, NAMESPACES, AGAIN = 8, 40, 5
TARGET_MS, FALLBACK_NODES, FALLBACK_PODS, FALLBACK_TARGET = 300.0, 1_000, 3_400, 3.0
TENANT = "team-00"
_LONGEST_SECONDS = 300
NOW = datetime.now(UTC)


def cluster(nodes: int, pods: int) -> Iterator[Obj]:
    """Every object; pods take one card each, from the first node on."""
    for item in CLASSES:
        yield {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **item}
    for number in range(NAMESPACES):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number:02}"}}
    for number in range(nodes):
        yield from node_objects(number, number * max(1, nodes // 100) // nodes, CARDS)
    for number in range(pods):
        node, card = f"node-{number % nodes:05}", number // nodes
        yield from _in(
            f"team-{number % NAMESPACES:02}", taken_member(f"used-{number}", node, [card], priority=number % 3)
        )
    yield from _in(TENANT, gang("training", 8, 8))


def _in(namespace: str, objects: Sequence[Obj]) -> Iterator[Obj]:
    for obj in objects:
        meta = {**obj["metadata"], "namespace": namespace, "resourceVersion": "1"}
        meta["creationTimestamp"] = "2026-11-01T00:00:00Z"
        meta["managedFields"] = _MANAGED
        yield {**obj, "metadata": meta}


def _fields(depth: int) -> Obj:
    return {f"f:field-{n}": _fields(depth - 1) if depth else {} for n in range(4)}


_MANAGED = [
    {"manager": m, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": _fields(1)}
    for m in ("kube-controller-manager", "haru")
]


class ListApi:
    """An API server with lists as bytes; a POST to /come adds a pod elsewhere, to /move gives a card to another pod."""

    def __init__(self, nodes: int, pods: int, front_proxy: str) -> None:
        found: dict[str, list[Obj]] = {}
        self._single: dict[str, bytes] = {}
        for obj in cluster(nodes, pods):
            found.setdefault(obj["kind"], []).append(obj)
            if obj["metadata"].get("namespace") == TENANT and "training" in obj["metadata"]["name"]:
                self._single[f"{obj['kind']}/{obj['metadata']['name']}"] = orjson.dumps(obj)
        self._lists = {
            kind: orjson.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": items})
            for kind, items in found.items()
        }
        self._nodes, self._moved = nodes, 1
        self._revision, self._watchers = 1, list[tuple[str, asyncio.Queue[bytes]]]()
        data = {
            "requestheader-client-ca-file": front_proxy,
            "requestheader-allowed-names": '["proxy"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }
        self._front = orjson.dumps({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}, "data": data})

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        path, query = scope["path"], dict(parse_qsl(scope["query_string"].decode()))
        kind = _KINDS.get(path.rstrip("/").split("/")[-1], "")
        if query.get("limit") == "1":
            # Somebody who asks whether a kind may be read.
            kind = "Other"
        if query.get("watch") == "true":
            await self._watch(kind, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, answer = self._answer(path, kind, body)
        await send({"type": "http.response.start", "status": status, "headers": _JSON})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, path: str, kind: str, body: bytes) -> tuple[int, bytes]:
        if path == "/come":
            return 200, self._come()
        if path == "/move":
            return 200, self._move()
        if path in ("/api", "/apis"):
            return 200, b'{"kind":"APIGroupDiscoveryList","items":[]}'
        if path == "/version":
            return 200, b'{"major":"1","minor":"36","gitVersion":"v1.36.0"}'
        if path.endswith("/subjectaccessreviews"):
            about = orjson.loads(body)["spec"]["resourceAttributes"]
            return 201, orjson.dumps({"status": {"allowed": about.get("namespace") == TENANT}})
        if path.endswith("/extension-apiserver-authentication"):
            return 200, self._front
        parts = path.strip("/").split("/")
        single = self._single.get(f"{_KINDS.get(parts[-2], '')}/{parts[-1]}")
        if single is not None:
            return 200, single
        empty = orjson.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": []})
        return (200, self._lists.get(kind, empty)) if kind else (404, b'{"kind":"Status","code":404}')

    def _come(self) -> bytes:
        [pod] = _in("team-01", member(f"come-{self._revision}", "", 0))
        self._tell("ADDED", pod)
        return b"{}"

    def _move(self) -> bytes:
        number, self._moved = self._moved, self._moved + NAMESPACES  # those of one namespace, which is not the tenant's
        node, card, priority = f"node-{number % self._nodes:05}", number // self._nodes, number % 3
        for change, name in (("DELETED", "used"), ("ADDED", "again")):
            for obj in _in("team-01", taken_member(f"{name}-{number}", node, [card], priority=priority)):
                self._tell(change, obj)
        return b"{}"

    def _tell(self, change: str, obj: Obj) -> None:
        self._revision += 1
        told = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._revision)}}
        event = orjson.dumps({"type": change, "object": told}) + b"\n"
        for kind, watcher in self._watchers:
            if kind == obj["kind"]:
                watcher.put_nowait(event)

    async def _watch(self, kind: str, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _JSON})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watchers.append((kind, queue))
        while True:
            await send({"type": "http.response.body", "body": await queue.get(), "more_body": True})


_JSON = [(b"content-type", b"application/json")]
_KINDS = {
    "nodes": "Node",
    "namespaces": "Namespace",
    "pods": "Pod",
    "deviceclasses": "DeviceClass",
    "resourceslices": "ResourceSlice",
    "resourceclaims": "ResourceClaim",
    "podgroups": "PodGroup",
    **dict.fromkeys(
        (
            "persistentvolumes",
            "persistentvolumeclaims",
            "jobs",
            "poddisruptionbudgets",
            "storageclasses",
            "csidrivers",
            "csistoragecapacities",
            "csinodes",
            "volumeattachments",
            "resourceclaimtemplates",
            "workloads",
            "devicetaintrules",
            "resourcequotas",
            "replicasets",
            "statefulsets",
            "events",
            "leases",
            "deployments",
            "daemonsets",
        ),
        "Other",
    ),
}


def serve_lists(nodes: int, pods: int, front_proxy: Path) -> None:
    """Serve until killed; the port is printed."""
    from haru.serving import listening_socket, server_class, settings

    app = ListApi(nodes, pods, front_proxy.read_text())
    listener = listening_socket("127.0.0.1", 0, "port")
    print(listener.getsockname()[1], flush=True)
    asyncio.run(server_class()(settings(app)).serve([listener]))


class Took(NamedTuple):
    """Milliseconds of one question: as a clock on the wall says, and of the processor in the server's process."""

    wall: float
    processor: float

    def __str__(self) -> str:
        return f"{self.wall:,.0f} ({self.processor:,.0f})"


@dataclass(frozen=True)
class Measured:
    """One size: seconds until the cache was there, questions, and peak memory in MiB."""

    nodes: int
    pods: int
    synced: float
    first: Took
    reason: Took
    helped: Took
    moved: Took
    unchanged: Took
    peak: float


@contextlib.asynccontextmanager
async def process(*arguments: str, **environment: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A process of Python and the first line that it prints."""
    made = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=subprocess.PIPE, env={**os.environ, **environment}
    )
    assert made.stdout is not None
    try:
        yield made, (await made.stdout.readline()).decode().strip()
    finally:
        made.kill()
        await made.wait()


def kubeconfig(directory: Path, port: str) -> Path:
    """A kubeconfig for the lists."""
    named = {"cluster": "c", "user": "u", "namespace": TENANT}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": named}],
        "current-context": "c",
    }
    file = directory / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


def keys(directory: Path) -> tuple[Path, ssl.SSLContext]:
    """The front proxy's authority, and a context that shows its certificate."""
    from haru.apiserver.auth import client_pair, new_authority

    authority = new_authority(NOW, "front-proxy")
    pair = client_pair(authority, "proxy", (), NOW)
    bundle, shown = directory / "front.crt", directory / "proxy.pem"
    bundle.write_bytes(authority.certificate)
    shown.write_bytes(pair.certificate + b"\n" + pair.key)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(shown)
    return bundle, context


async def measure(nodes: int) -> Measured:
    """The resident answer at one size."""
    pods = nodes * CARDS
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        bundle, tls = keys(directory)
        async with process("-m", "benchmarks.resident", "--serve", str(nodes), str(pods), str(bundle)) as (_, port):
            config = kubeconfig(directory, port)
            begun = time.perf_counter()
            command = ("-m", "haru", "explain", "serve", "--bind-address=127.0.0.1", "--secure-port=0")
            async with (
                process(*command, f"--kubeconfig={config}") as (served, line),
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
            ):
                url = f"https://127.0.0.1:{line.split()[-1]}"
                async with asyncio.timeout(_LONGEST_SECONDS):
                    while (await session.get(f"{url}/readyz")).status != 200:  # noqa: ASYNC110 (it is another process)
                        await asyncio.sleep(0.1)
                synced = time.perf_counter() - begun
                return await _asked(session, url, port, nodes, pods, synced, served.pid)


async def _asked(
    session: aiohttp.ClientSession, url: str, port: str, nodes: int, pods: int, synced: float, pid: int
) -> Measured:
    path = f"{url}/apis/explain.haru.dev/v1alpha1/namespaces/{TENANT}/podgroups/training/explanation"

    async def ask(query: str = "", *, change: str = "come") -> Took:
        if change:
            await session.post(f"http://127.0.0.1:{port}/{change}")
            await asyncio.sleep(0.2)
        since, before = time.perf_counter(), _processor(pid)
        status = 504
        while status == 504:
            # On a busy machine the first question may take longer than the server lets it; it goes on meanwhile.
            async with session.get(path + query, headers={"X-Remote-User": "jane"}) as answer:
                status, told = answer.status, await answer.json()
        took = Took((time.perf_counter() - since) * 1e3, _processor(pid) - before)
        assert status == 200 and told["requests"][0]["short"], told
        assert "team-01" not in json.dumps(told)
        return took

    async def median(query: str = "", *, change: str = "come") -> Took:
        found = [await ask(query, change=change) for _ in range(AGAIN)]
        return Took(statistics.median(t.wall for t in found), statistics.median(t.processor for t in found))

    first = await ask(change="")
    reason, helped = await median("?remedies=false"), await median()
    moved, unchanged = await median(change="move"), await median(change="")
    return Measured(nodes, pods, synced, first, reason, helped, moved, unchanged, _peak(pid))


def _processor(pid: int) -> float:
    """The processor time that a process has had, in ms: of all its threads."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += int((task / "schedstat").read_text().split()[0])
    return found / 1e6


def _peak(pid: int) -> float:
    """The largest memory that a process has had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


async def fallback(nodes: int = FALLBACK_NODES, pods: int = FALLBACK_PODS) -> tuple[float, float, float]:
    """The command that reads everything: wall and processor seconds, and peak MiB."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        bundle, _ = keys(directory)
        async with process("-m", "benchmarks.resident", "--serve", str(nodes), str(pods), str(bundle)) as (_, port):
            command = [sys.executable, "-m", "haru", "explain", "podgroup/training"]
            command.append(f"--kubeconfig={kubeconfig(directory, port)}")
            return await asyncio.to_thread(_run, command)


def _run(command: Sequence[str]) -> tuple[float, float, float]:
    begun = time.perf_counter()
    pid = os.posix_spawn(command[0], list(command), os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, command
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def run() -> Iterator[Result]:
    """For `make bench`: the smallest size, and the command."""
    one = asyncio.run(measure(NODES[0]))
    size = f"{one.nodes} nodes, {one.pods} pods"
    yield Result("resident answer, first", one.first.wall, "ms", size)
    yield Result("resident answer, next, with remedies", one.helped.wall, "ms", size)
    yield Result("resident answer, peak memory", one.peak, "MiB", size)
    wall, _, _ = asyncio.run(fallback())
    yield Result("haru explain that reads the cluster", wall, "s", f"{FALLBACK_NODES} nodes, {FALLBACK_PODS} pods")


HEADS = (
    "nodes", "pods", "synced: s", "first: ms", "next, reason: ms", "next, with remedies: ms", "moved: ms",
    "unchanged: ms", "peak memory: MiB",
)  # fmt: skip


def cells(one: Measured) -> list[str]:
    """A row of the table."""
    questions = (one.first, one.reason, one.helped, one.moved, one.unchanged)
    return [f"{one.nodes:,}", f"{one.pods:,}", f"{one.synced:.1f}", *map(str, questions), f"{one.peak:,.0f}"]


def main() -> int:
    """Prints the table; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, action="append", help="size of the cluster; may be repeated")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    parser.add_argument("--serve", nargs=3, metavar="X", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_lists(int(options.serve[0]), int(options.serve[1]), Path(options.serve[2]))
        return 0
    found = []
    for nodes in options.nodes or NODES:
        found.append(asyncio.run(measure(nodes)))
        print(cells(found[-1]), file=sys.stderr, flush=True)
    wall, processor, peak = asyncio.run(fallback())
    rows = [cells(one) for one in found]
    command = (
        f"`haru explain` that reads {FALLBACK_NODES:,} nodes and {FALLBACK_PODS:,} pods: {wall:.1f} s "
        f"({processor:.1f} s of processor time), {peak:.0f} MiB."
    )
    print(f"{plain(HEADS, rows)}\n\n{command}")
    if options.document:
        write_section(options.document, "resident", f"{markdown(HEADS, rows)}\n\n{command}")
    late = [one for one in found if one.nodes <= 5_000 and one.helped.wall > TARGET_MS]
    return int(bool(late) or wall > FALLBACK_TARGET)


if __name__ == "__main__":
    sys.exit(main())
