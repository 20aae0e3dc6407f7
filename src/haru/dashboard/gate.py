"""What stands before every page: who gets in, what is answered at all, and the headers that all answers have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from haru.dashboard.access import Access

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_NO_ENTRY = (
    "This page needs the address that haru printed when it started, with its one-time code. If that was used already, "
    "run haru dashboard: it prints another one."
)


class SecureHeaders:
    """Adds the headers of all answers. Static files may be kept if they are asked about again, pages may not."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        """Answer one request."""
        caching = "no-cache" if scope["path"].startswith("/static/") else "no-store"

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update({**HEADERS, "cache-control": caching})
            await send(message)

        await self._app(scope, receive, with_headers)


class Gate:
    """Lets in the one browser that `access` recognizes, and only to read."""

    def __init__(self, app: App, access: Access, message: Callable[[str, str], str]) -> None:
        self._app = app
        self._access = access
        self._message = message

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        """Answer one request."""
        refusal = self._refusal(Request(scope))
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        method, path, query = request.method, request.url.path, request.query_params
        if not self._access.knows_host(request.headers.get("host", "")):
            why = "Forbidden: the Host header must name this server by its loopback address.\n"
            return PlainTextResponse(why, 403)
        if method not in ("GET", "HEAD"):
            why = "Method Not Allowed: the dashboard only reads.\n"
            return PlainTextResponse(why, 405, {"allow": "GET, HEAD"})
        entered = path == "/" and method == "GET" and "code" in query and self._access.enter(query["code"])
        if entered:
            return RedirectResponse("/", 303, {"set-cookie": entered})
        if not self._access.knows(request.headers.get("cookie", "")):
            return HTMLResponse(self._message("Not allowed", _NO_ENTRY), 403)
        return None
