"""The dashboard as an ASGI application: access, pages by path, and the stream of changes.

Threads render pages from immutable snapshots; the event loop, on which `haru up` has its API server, stays free.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from haru.cluster_view import ClusterView, ClusterWatch
from haru.dashboard.access import Access
from haru.dashboard.explanations import ExplanationCache
from haru.dashboard.pages.frame import Heading, message_page, page
from haru.dashboard.pages.map_page import map_content
from haru.dashboard.pages.queue_page import queue_content
from haru.dashboard.pages.usage_page import no_usage, usage_content
from haru.dashboard.pages.workload_page import workload_content
from haru.dashboard.views.device_map import KnownPlaces, device_map
from haru.dashboard.views.queue import KnownPods, waiting_work
from haru.dashboard.views.usage import PERIODS, USUAL, Measured, allocation
from haru.dashboard.views.workloads import Filter, Workload
from haru.markup import Child, Html, joined

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_STATIC = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_HTML = "text/html; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
SECURITY: Headers = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
_NO_ENTRY = (
    "This page needs the address that haru printed when it started, with its one-time code. If that was used already, "
    "run haru dashboard: it prints another one."
)
_NO_HISTORY = (
    "No history of usage is read here. haru up keeps one unless --no-usage-history says otherwise; haru dashboard "
    "reads the one that --history names."
)
_PAUSE_SECONDS = 1.0
_HEARTBEAT_SECONDS = 15.0


class Asked(NamedTuple):
    """What a page is asked for: the filter, the query, and the parts of the path after the first."""

    chosen: Filter
    query: Mapping[str, str]
    parts: tuple[str, ...]


class Page(NamedTuple):
    """A page: its title, which may name parts of the path, and what makes its content (None: nothing is there)."""

    title: str
    make: Callable[[ClusterView, Asked], Awaitable[Child]]


class Dashboard:
    """Serves one cluster to one browser, which `access` recognizes."""

    def __init__(self, watch: ClusterWatch, access: Access, measured: Measured | None = None) -> None:
        self._watch = watch
        self._access = access
        self._measured = measured
        self._explanations = ExplanationCache(watch.changes.add)
        self._renderer = ThreadPoolExecutor(1, "dashboard pages")
        # What is known of the last snapshot; only the renderer's one thread may use it.
        self._places, self._pods = KnownPlaces(), KnownPods()
        self._stopping = asyncio.Event()
        self.pages: Mapping[tuple[str, int], Page] = {
            ("/", 0): Page("Map", self._map),
            ("/queue", 0): Page("Queue", self._queue),
            ("/allocation", 0): Page("Allocation", self._allocation),
            ("/workload", 3): Page("{0}/{1}/{2}", self._workload),
        }
        """By the first part of the path, and how many follow."""

    async def stop(self) -> None:
        """End the streams and the watches."""
        self._stopping.set()
        await self._watch.stop()
        self._explanations.stop()
        self._renderer.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))
        method, path = scope["method"], scope["path"]
        reply = _Reply(send, method == "HEAD")
        if not self._access.knows_host(headers.get(b"host", b"").decode("latin-1")):
            await reply.text(403, "Forbidden: the Host header must name this server by its loopback address.\n")
        elif method not in ("GET", "HEAD"):
            await reply.text(405, "Method Not Allowed: the dashboard only reads.\n", [(b"allow", b"GET, HEAD")])
        elif "code" in query and path == "/" and method == "GET" and (cookie := self._access.enter(query["code"])):
            await reply.text(303, "", [(b"location", b"/"), (b"set-cookie", cookie.encode())])
        elif not self._access.knows(headers.get(b"cookie", b"").decode("latin-1")):
            await reply.html(403, message_page("Not allowed", _NO_ENTRY))
        elif path == "/changes" and method == "GET":
            await self._changes(receive, reply)
        elif path.startswith("/static/"):
            await _static(path.removeprefix("/static/"), reply)
        else:
            await self._page(path, query, reply)

    # -- pages --------------------------------------------------------------------------------------------------------

    async def _page(self, path: str, query: Mapping[str, str], reply: _Reply) -> None:
        chosen = Filter.of(query)
        first, *rest = path.removeprefix("/").split("/")
        page_of = self.pages.get((f"/{first}", len(rest)))
        if page_of is None or (rest and not rest[-1]):
            await reply.html(404, message_page("Not found", "There is no such page."))
            return
        title = page_of.title.format(*rest)
        try:
            async with self._watch.viewing():
                view = self._watch.view()
                content = await page_of.make(view, Asked(chosen, query, tuple(rest)))
        except OSError as error:
            await reply.html(503, message_page("The API server cannot be reached", str(error)))
            return
        status = 200 if content is not None else 404
        content = content or Html("<p>It does not exist, or not any more.</p>")
        notes = [f"Not allowed to read {', '.join(view.refused)}: the page is without them."] if view.refused else []
        await reply.html(status, page(Heading(title, path, chosen, view.version, notes), content))

    async def _map(self, view: ClusterView, asked: Asked) -> Child:
        chosen = asked.chosen
        return await self._render(
            lambda: joined(map_content(device_map(view.snapshot, view.layouts, chosen, self._places), chosen))
        )

    async def _queue(self, view: ClusterView, asked: Asked) -> Child:
        chosen = asked.chosen
        found = await self._render(lambda: waiting_work(view.snapshot, chosen, self._pods))
        shown = await self._explanations.of(view.snapshot, found)
        return await self._render(lambda: joined(queue_content(found, shown, chosen)))

    async def _workload(self, view: ClusterView, asked: Asked) -> Child:
        namespace, kind, name = asked.parts
        work = Workload(namespace, f"{kind}/{name}")
        found = await self._explanations.story(view, work)
        return workload_content(found) if found is not None else None

    async def _allocation(self, view: ClusterView, asked: Asked) -> Child:
        measured, chosen, since_when = self._measured, asked.chosen, asked.query.get("since", "")
        period = since_when if since_when in PERIODS else USUAL
        if measured is None:
            return no_usage(_NO_HISTORY, period, chosen)
        until = int(time.time() * 1000)
        since = until - PERIODS[period]
        try:
            return await self._render(
                lambda: joined(usage_content(allocation(measured(since, until), since, until, chosen), period, chosen))
            )
        except (OSError, ValueError) as error:
            return no_usage(str(error), period, chosen)

    async def _render(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._renderer, work)

    # -- live ---------------------------------------------------------------------------------------------------------

    async def _changes(self, receive: Receive, reply: _Reply) -> None:
        """Send each new version as a server-sent event, at most one a second."""
        await reply.start(200, "text/event-stream")
        gone = asyncio.ensure_future(_disconnected(receive))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            async with self._watch.viewing():
                version = -1
                while not (gone.done() or stopping.done()):
                    newer = asyncio.ensure_future(self._watch.changes.newer_than(version))
                    await asyncio.wait(
                        {gone, stopping, newer}, timeout=_HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
                    if newer.done():
                        version = newer.result()
                    newer.cancel()
                    await reply.more(f"data: {version}\n\n".encode())
                    await asyncio.wait({gone, stopping}, timeout=_PAUSE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # the browser reconnects
        finally:
            for task in (gone, stopping):
                task.cancel()
            with suppress(OSError):
                await reply.more(b"", last=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _static(name: str, reply: _Reply) -> None:
    files = {file.name: file for file in _STATIC.iterdir()}
    if name not in files:
        await reply.text(404, "Not Found\n")
        return
    await reply.send(200, _TYPES[files[name].suffix], files[name].read_bytes())


class _Reply:
    """A response with the headers that all have."""

    def __init__(self, send: Send, head_only: bool) -> None:
        self._send = send
        self._head_only = head_only

    async def start(self, status: int, kind: str, headers: Headers | None = None) -> None:
        """Send status and headers."""
        every = [(b"content-type", kind.encode()), *SECURITY, *(headers or [])]
        await self._send({"type": "http.response.start", "status": status, "headers": every})

    async def more(self, body: bytes, last: bool = False) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})

    async def send(self, status: int, kind: str, body: bytes, headers: Headers | None = None) -> None:
        """Send a whole response."""
        length = (b"content-length", str(len(body)).encode())
        await self.start(status, kind, [length, *(headers or [])])
        await self.more(b"" if self._head_only else body, last=True)

    async def text(self, status: int, text: str, headers: Headers | None = None) -> None:
        """Send text."""
        await self.send(status, _TEXT, text.encode(), headers)

    async def html(self, status: int, whole: Html) -> None:
        """Send a page."""
        await self.send(status, _HTML, whole.encode())
