"""The dashboard as a Starlette application: access, pages by path, static files, and the stream of changes.

A thread renders pages from immutable snapshots; the event loop, on which `haru up` has its API server, stays free.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from haru.cluster_view import ClusterWatch
from haru.dashboard.access import Access
from haru.dashboard.asked import Answer, Asked, Page, Services
from haru.dashboard.changes import events
from haru.dashboard.explanations import ExplanationCache
from haru.dashboard.gate import Gate, SecureHeaders
from haru.dashboard.pages import PAGES
from haru.dashboard.rendering import HERE, render
from haru.dashboard.views.prices import Prices
from haru.dashboard.views.usage import Measured

_SHARED_SECONDS = 1.0


class _Made(NamedTuple):
    """A page that was made for one request and answers all like it, for as long as the cluster does not change."""

    version: int
    at: float
    response: asyncio.Future[tuple[int, str]]


class Dashboard:
    """Serves one cluster to those whom `access` recognizes."""

    def __init__(
        self,
        watch: ClusterWatch,
        access: Access,
        measured: Measured | None = None,
        prices: Prices | None = None,
        pages: tuple[Page, ...] = PAGES,
    ) -> None:
        self._watch = watch
        self._pages = pages
        self.services = Services(ExplanationCache(watch.changes.add), measured, prices)
        self._stopping = asyncio.Event()
        self._made: dict[str, _Made] = {}
        self._app = Starlette(
            routes=[
                *(Route(page.path, self._endpoint(page)) for page in pages),
                Route("/changes", self._changes),
                Mount("/static", StaticFiles(directory=HERE / "static")),
            ],
            middleware=[Middleware(SecureHeaders), Middleware(Gate, access=access, message=_message)],
            exception_handlers={404: _not_found},
        )

    async def stop(self) -> None:
        """End the streams and the watches."""
        self._stopping.set()
        await self._watch.stop()
        self.services.explanations.stop()
        self.services.renderer.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)

    def _endpoint(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            status, text = await self._page(page, request)
            return HTMLResponse(text, status)

        return answer

    async def _page(self, page: Page, request: Request) -> tuple[int, str]:
        try:
            async with self._watch.viewing():
                return await self._shared(page, request)
        except OSError as error:
            return 503, _message("The API server cannot be reached", str(error))

    async def _shared(self, page: Page, request: Request) -> tuple[int, str]:
        """Make a page once for all who look at the same one at the same time."""
        address, version, now = str(request.url), self._watch.changes.version, time.monotonic()
        known = self._made.get(address)
        if known is None or known.version != version or now - known.at > _SHARED_SECONDS:
            self._made = {key: each for key, each in self._made.items() if now - each.at <= _SHARED_SECONDS}
            made = asyncio.ensure_future(self._rendered(page, request))
            known = self._made[address] = _Made(version, now, made)
        return await asyncio.shield(known.response)

    async def _rendered(self, page: Page, request: Request) -> tuple[int, str]:
        view = self._watch.view()
        asked = Asked(view, request.url.path, dict(request.query_params), request.path_params, self.services)
        answer = await page.make(asked)
        if answer is None:
            return 404, _message("Not found", "It does not exist, or not any more.")
        values = {**self._frame(page, asked, answer), **answer.values}
        return 200, await self.services.compute(lambda: render(page.template, values))

    def _frame(self, page: Page, asked: Asked, answer: Answer) -> Mapping[str, object]:
        refused = asked.view.refused
        return {
            "title": answer.title,
            "asked": asked,
            "chosen": asked.chosen,
            "version": asked.view.version,
            "nav": [(each.path, each.nav, each is page, each.key) for each in self._pages if each.nav],
            "searches": any(each.path == "/search" for each in self._pages),
            "notes": [f"Not allowed to read {', '.join(refused)}: the page is without them."] if refused else [],
        }

    async def _changes(self, request: Request) -> Response:
        return StreamingResponse(events(self._watch, self._stopping), headers={"content-type": "text/event-stream"})


def _message(title: str, text: str) -> str:
    return render("message.html", {"title": title, "text": text})


async def _not_found(request: Request, error: Exception) -> Response:
    return HTMLResponse(_message("Not found", "There is no such page."), 404)
