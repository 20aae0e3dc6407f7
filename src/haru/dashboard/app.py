"""The dashboard as a Starlette application: pages by path, static files, and live pages.

A thread renders pages from immutable snapshots; the event loop, on which `haru up` has its API server, stays free. A
page is made once for all who look at it at the same time and may see the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles

from haru.cluster_view import ClusterWatch
from haru.dashboard.access import Access
from haru.dashboard.asked import Answer, Asked, Page
from haru.dashboard.feeds import Feeds, TooManyViewers
from haru.dashboard.gate import Gate, SecureHeaders
from haru.dashboard.pages import PAGES
from haru.dashboard.redaction.objects import HIDDEN
from haru.dashboard.shared_views import SharedView, SharedViews
from haru.dashboard.signin.viewer import OWNER, VIEWER, Viewer
from haru.dashboard.template_engine import HERE, render
from haru.dashboard.views.looks import LOOKS
from haru.dashboard.views.prices import Prices
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.whatif import Slices, WhatIf

_SHARED_SECONDS = 1.0
_PERSON = "<!--person-->"
"""Where the frame of a page, which all share, says who has signed in."""
_GONE = "It does not exist, or not any more."
_NO_PAGE = "There is no such page."


class _Made(NamedTuple):
    """A page that was made for one request and answers all like it, for as long as the cluster does not change."""

    version: int
    at: float
    response: asyncio.Future[tuple[int, str]]


class _Place(NamedTuple):
    """What an address leads to: a page, the path, the query, and the parts of the path by name."""

    page: Page
    path: str
    query: Mapping[str, str]
    parts: Mapping[str, str]

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What two addresses of one place have in common."""
        return self.path, tuple(self.query.items())


class Dashboard:
    """Serves one cluster to the browser that `access` recognizes; without one to the viewer in each scope."""

    def __init__(
        self,
        watch: ClusterWatch,
        access: Access | None = None,
        history: UsageHistory | None = None,
        prices: Prices | None = None,
        slices: Slices | None = None,
        pages: tuple[Page, ...] = PAGES,
    ) -> None:
        """`slices` reads the published slices, for what-if."""
        self._watch = watch
        self._pages = pages
        self.views = SharedViews(watch.changes.add, history, prices, WhatIf(slices))
        watch.forgets.append(self.views.forget)
        LOOKS.keep_in(history.looks if history is not None else None)
        self._feeds = Feeds(watch)
        self._made: dict[object, _Made] = {}
        self._routes = [(page, Route(page.path, self._endpoint(page))) for page in pages]
        gate = [Middleware(Gate, access=access, message=message)] if access is not None else []
        self._app = Starlette(
            routes=[
                *(route for _, route in self._routes),
                Route("/changes", _Changes(self)),
                Mount("/static", StaticFiles(directory=HERE / "static")),
            ],
            middleware=[Middleware(SecureHeaders), *gate],
            exception_handlers={404: _not_found},
        )

    async def stop(self) -> None:
        """End the live pages and the watches."""
        self._feeds.stop()
        await self._watch.stop()
        self.views.stop()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)

    def _endpoint(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            viewer: Viewer = request.scope.get(VIEWER, OWNER)
            place = _Place(page, request.url.path, dict(request.query_params), request.path_params)
            try:
                async with self._watch.viewing():
                    shared = self.views.of(viewer.visibility)
                    make = self._rendered(shared, place, viewer) if page.personal else self._shared(shared, place)
                    status, text = await make
            except OSError as error:
                status, text = 503, message("The API server cannot be reached", str(error))
            return HTMLResponse(text.replace(_PERSON, _person(viewer), 1), status)

        return answer

    # -- pages --------------------------------------------------------------------------------------------------------

    async def _shared(self, shared: SharedView, place: _Place) -> tuple[int, str]:
        """Make a page once for all who look at the same one at the same time."""
        key, version, now = (shared.visibility, place.key), self._watch.changes.version, time.monotonic()
        known = self._made.get(key)
        if known is None or known.version != version or now - known.at > _SHARED_SECONDS:
            self._made = {each: made for each, made in self._made.items() if now - made.at <= _SHARED_SECONDS}
            known = self._made[key] = _Made(version, now, asyncio.ensure_future(self._rendered(shared, place)))
        try:
            return await asyncio.shield(known.response)
        finally:
            del known  # the traceback of a page that cannot be made would keep this, and this the error

    async def _rendered(self, shared: SharedView, place: _Place, viewer: Viewer | None = None) -> tuple[int, str]:
        if shared.cluster is not None and HIDDEN in place.parts.values():
            return 404, _nothing_there(_GONE)
        view = await shared.view(self._watch.view())
        asked = Asked(view, place.path, place.query, place.parts, shared.services, viewer)
        answer = await place.page.make(asked)
        if answer is None:
            return 404, _nothing_there(_GONE)
        values = {**self._frame(place.page, asked, answer), **answer.values}
        return 200, await asked.compute(lambda: render(place.page.template, values))

    def _frame(self, page: Page, asked: Asked, answer: Answer) -> Mapping[str, object]:
        refused = asked.view.refused
        return {
            "title": answer.title,
            "asked": asked,
            "chosen": asked.chosen,
            "version": asked.view.version,
            "live": not (page.personal or page.still),
            "nav": [(each.path, each.nav, each is page, each.key) for each in self._pages if each.nav],
            "searches": any(each.path == "/search" for each in self._pages),
            "notes": [f"Not allowed to read {', '.join(refused)}: the page is without them."] if refused else [],
        }

    # -- live ---------------------------------------------------------------------------------------------------------

    async def follow(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the changes of the page whose address is in the query: `/changes?of=ADDRESS`."""
        request = Request(scope, receive)
        place = self._place(request.query_params.get("of", ""))
        if place is None or request.method != "GET":
            await PlainTextResponse("Not Found\n", 404)(scope, receive, send)
            return
        viewer: Viewer = scope.get(VIEWER, OWNER)
        shared = self.views.of(viewer.visibility)
        key, make = (viewer.visibility, place.key), partial(self._shared, shared, place)
        try:
            await self._feeds.follow(key, make, scope, receive, send, viewer)
        except TooManyViewers:
            await PlainTextResponse("too many pages are open\n", 503)(scope, receive, send)

    def _place(self, address: str) -> _Place | None:
        """What an address leads to that a browser shows; None for no page, and for one that is not live."""
        split = urlsplit(address)
        scope = {"type": "http", "method": "GET", "path": split.path, "root_path": "", "headers": []}
        for page, route in self._routes:
            matched, found = route.matches(scope)
            if matched is Match.FULL and not (page.personal or page.still):
                query = dict(parse_qsl(split.query, keep_blank_values=True))
                return _Place(page, split.path, query, found["path_params"])
        return None


class _Changes:
    """The endpoint of live pages, as an ASGI application: it writes to the connection itself."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        await self._dashboard.follow(scope, receive, send)


def message(title: str, text: str, sign_out: str = "") -> str:
    """Render a page of a message; with `sign_out` it has the form that ends the session."""
    return render("message.html", {"title": title, "text": text, "sign_out": sign_out})


def _person(viewer: Viewer) -> str:
    """Who has signed in, and how to sign out."""
    if not viewer.name:
        return ""
    return render("person.html", {"name": viewer.name, "sign_out": viewer.sign_out})


async def _not_found(request: Request, error: Exception) -> Response:
    return HTMLResponse(_nothing_there(_NO_PAGE), 404)


def _nothing_there(text: str) -> str:
    """Render a page that leads on to the first one."""
    return render("not_found.html", {"title": "Not found", "text": text})
