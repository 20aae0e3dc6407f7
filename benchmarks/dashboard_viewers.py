"""What open pages of the dashboard cost its server: processor time with 2 and with 200 viewers, over TLS, signed in.

    python -m benchmarks.dashboard_viewers [--nodes 1000] [--seconds 20] [--viewers 2 200] [--page /map]

The server is a process of its own over a cluster in memory, in which pods come and go five times a second; the viewers
are in this process and read what they are sent. What is measured begins when all are connected and have the page.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.decision_objects import Obj, cluster_of, fill, member
from benchmarks.tables import plain
from haru.cluster_view import ChangeCounter, ClusterView
from haru.dashboard.app import Dashboard
from haru.dashboard.signin.app import SignIn
from haru.dashboard.signin.hosts import KnownHosts
from haru.dashboard.signin.sessions import Sessions
from haru.dashboard.signin.visibility import VisibilityReviews
from haru.engine import SchedulerCache
from haru.explain.cards import Layouts
from haru.kube.kinds import Kind
from haru.secure_serving.authorization import ReviewedAccess
from haru.secure_serving.component_certificates import ComponentCertificates
from haru.secure_serving.identity import Authenticator
from haru.secure_serving.listener import Listener
from haru.secure_serving.options import ServingOptions

NODES, SECONDS = 1000, 20.0
WARM_SECONDS = 5.0
CHANGE_SECONDS = 0.2
PAGES = ("/map", "/queue", "/")


class _Reviewer:
    """Knows every token, and allows everything."""

    async def review(self, kind: Kind, spec: Obj) -> Obj:
        if kind.kind == "TokenReview":
            return {"authenticated": True, "user": {"username": spec["token"]}}
        return {"allowed": True}


class _Watch:
    """A cluster in memory in the place of a watch."""

    def __init__(self, cache: SchedulerCache) -> None:
        self.cache, self.changes, self._layouts = cache, ChangeCounter(), Layouts()
        self.looked = 0
        """How often a page was made."""

    @asynccontextmanager
    async def viewing(self) -> AsyncIterator[None]:
        yield

    def view(self) -> ClusterView:
        self.looked += 1
        return ClusterView(self.cache.snapshot(), self.changes.version, (), self._layouts, ())

    async def stop(self) -> None:
        """It has nothing to end."""


async def serve(nodes: int) -> None:
    """Serve until stdin ends; answer each line of it with the processor time so far."""
    cache = cluster_of(nodes, max(1, nodes // 16))
    fill(cache, 0.7)
    watch, reviewer = _Watch(cache), _Reviewer()

    async def no_namespaces() -> Sequence[str]:
        return ()

    dashboard = Dashboard(watch)  # type: ignore[arg-type]
    app = SignIn(
        dashboard,
        Authenticator(reviewer),
        VisibilityReviews(ReviewedAccess(reviewer, 60, 60)),
        no_namespaces,
        Sessions(3600),
        KnownHosts(()),
        {},
    )
    certificates = ComponentCertificates(ServingOptions(address="127.0.0.1"), "benchmark")
    certificates.prepare()
    listener = Listener(app, "127.0.0.1", 0, certificates, look_seconds=3600)
    await listener.start()
    gc.freeze()
    print(listener.port, flush=True)
    changing = asyncio.create_task(_change(watch))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(json.dumps({"processor": time.process_time(), "made": watch.looked}), flush=True)
    changing.cancel()
    await dashboard.stop()
    await listener.stop()


async def _change(watch: _Watch) -> None:
    """One pod with a card comes or goes five times a second."""
    number = 0
    while True:
        await asyncio.sleep(CHANGE_SECONDS)
        objects = member(f"new-{number // 2}", "", 1, node=f"node-{number // 2 % 7:05}", card="gpu-0")
        for obj in objects:
            (watch.cache.remove if number % 2 else watch.cache.apply)(obj)
        number += 1
        watch.changes.add()


async def _view(port: int, page: str, ready: asyncio.Semaphore, counted: list[int]) -> None:
    """Follow a page; count the bytes after the first message."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=64 * 2**20)
    head = f"GET /changes?of={page} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer viewer\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"\n\n")
    ready.release()
    while data := await reader.read(2**20):
        counted[0] += len(data)


async def measure(page: str, viewers: int, nodes: int, seconds: float) -> dict[str, float]:
    """Return the processor time of a server with so many viewers, in seconds for each second, and bytes for each."""
    command = [sys.executable, "-m", "benchmarks.dashboard_viewers", "--serve", "--nodes", str(nodes)]
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert server.stdin is not None and server.stdout is not None
    try:
        port, ready, counted = int(await server.stdout.readline()), asyncio.Semaphore(0), [0]
        tasks = []
        for _ in range(viewers):
            # One after the other, as people come: a handshake has ten seconds, and the machine may be busy.
            tasks.append(asyncio.create_task(_view(port, page, ready, counted)))
            waiting = asyncio.create_task(ready.acquire())
            await asyncio.wait({waiting, tasks[-1]}, return_when=asyncio.FIRST_COMPLETED)
            if tasks[-1].done():
                tasks[-1].result()
                raise RuntimeError("a viewer was sent away")
        await asyncio.sleep(WARM_SECONDS)

        async def asked() -> Any:
            assert server.stdin is not None and server.stdout is not None
            server.stdin.write(b"\n")
            return json.loads(await server.stdout.readline())

        counted[0], before = 0, await asked()
        began = time.monotonic()
        await asyncio.sleep(seconds)
        after, took = await asked(), time.monotonic() - began
        for task in tasks:
            task.cancel()
        used, made = after["processor"] - before["processor"], after["made"] - before["made"]
        return {"used": used / took, "bytes": counted[0] / viewers / took, "each": 1000 * used / max(made, 1)}
    finally:
        server.stdin.close()
        await server.wait()


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--viewers", type=int, nargs="+", default=[2, 200])
    parser.add_argument("--page", nargs="+", default=list(PAGES))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.nodes))
        return 0
    lines = []
    for page in options.page:
        found = [asyncio.run(measure(page, n, options.nodes, options.seconds)) for n in options.viewers]
        for viewers, each in zip(options.viewers, found, strict=True):
            ratio = each["used"] / found[0]["used"]
            shown = (f"{each['used']:.1%}", f"{ratio:.2f}", f"{each['each']:.1f}", f"{each['bytes'] / 1024:.2f}")
            lines.append((page, f"{viewers}", *shown))
    print(plain(("page", "viewers", "of one core", "times the first", "ms for each update", "KiB/s each"), lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
