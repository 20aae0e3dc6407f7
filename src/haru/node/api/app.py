"""The kubelet API as an ASGI application: authentication, authorization, handlers.

A path that is not clean is sent to its clean form before anything else, so that the authorizer and the handlers look at
the same text. What is switched off is told only to who may ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from haru.node.api.access import Access
from haru.node.api.attributes import PROXY, is_below, subresources_of, verb_of
from haru.node.api.metrics import Counters
from haru.node.api.websockets import is_translated
from haru.secure_serving.authorization import Forbidden
from haru.secure_serving.http import (
    Answer,
    HttpError,
    Receive,
    Request,
    Send,
    cleaned,
    date_header,
    redirect,
    send_answer,
    text_answer,
)
from haru.secure_serving.identity import Authenticator, Unauthenticated
from haru.secure_serving.protocol import CERTIFICATE
from haru.secure_serving.reviews import ReviewFailed
from haru.serving import ABORT
from haru.upgrade_proxy import HIJACK

Handler = Callable[[Request], Awaitable[Answer]]
_log = logging.getLogger("haru.node")
_DEBUGGING = ("/run", "/exec", "/attach", "/portForward", "/containerLogs", "/runningpods", "/debug/pprof", "/logs")
SEND_SECONDS = 60.0


class KubeletApp:
    """Serves the routes of one node. `routes` are by first part of the path: the methods that it takes, and who
    answers."""

    def __init__(
        self,
        authenticator: Authenticator,
        access: Access,
        routes: MutableMapping[str, tuple[frozenset[str], Handler]],
        counters: Counters,
        *,
        debugging: bool = True,
    ) -> None:
        self._authenticator, self._access = authenticator, access
        self._routes, self._counters, self._debugging = routes, counters, debugging
        self._streams: set[asyncio.Task[Any]] = set()
        self.stopping = False

    def stop_streams(self) -> None:
        """End followers and ways into containers."""
        self.stopping = True
        for task in self._streams:
            task.cancel()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            return
        labels, began = self._counters.begin(scope["method"], scope["path"]), time.monotonic()
        try:
            answer = await self._answer(Request(scope, receive))
            if answer.upgraded is not None:
                await self._upgraded(scope, answer)
            elif answer.pieces is not None:
                await self._stream(scope, receive, send, answer)
            else:
                await send_answer(answer, send, scope["method"])
        finally:
            self._counters.end(labels, time.monotonic() - began)

    async def _answer(self, request: Request) -> Answer:
        clean = cleaned(request.path)
        if clean != request.path:
            return redirect(clean, request.scope.get("query_string", b""))
        try:
            refusal = await self._refusal(request)
            return refusal if refusal is not None else await self._serve(request)
        except HttpError as error:
            return text_answer(f"{error}\n", error.status)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return text_answer("Internal Server Error\n", 500)

    async def _refusal(self, request: Request) -> Answer | None:
        """The answer for who may not ask; None for who may."""
        shown = (request.scope.get("extensions") or {}).get(CERTIFICATE)
        try:
            user = await self._authenticator.user(shown, request.header(b"authorization"))
        except Unauthenticated as error:
            _log.info("%s %s: unable to authenticate the request: %s", request.method, request.path, error)
            return text_answer("Unauthorized", 401)
        except ReviewFailed as error:
            _log.warning("%s %s: unable to authenticate the request: %s", request.method, request.path, error)
            return text_answer("Unauthorized", 401)
        try:
            await self._access.require(user, request.method, request.path)
        except Forbidden as error:
            _log.info("%s %s: %s", request.method, request.path, error)
            return text_answer(str(error), 403)
        except ReviewFailed as error:
            _log.warning("%s %s: %s", request.method, request.path, error)
            subresource = subresources_of(request.path)[0] or PROXY
            told = f"user={user.name}, verb={verb_of(request.method)}, resource=nodes, subresource={subresource}"
            return text_answer(f"Authorization error ({told})", 500)
        return None

    async def _serve(self, request: Request) -> Answer:
        if not self._debugging and any(is_below(request.path, prefix) for prefix in _DEBUGGING):
            return text_answer("Debug endpoints are disabled.\n", 405)
        found = self._routes.get(request.parts[0])
        if found is None:
            return text_answer("404 page not found\n", 404)
        methods, handler = found
        if request.method not in methods:
            answer = text_answer("405: Method Not Allowed", 405)
            answer.headers.append((b"allow", ", ".join(sorted(methods)).encode()))
            return answer
        return await handler(request)

    async def _upgraded(self, scope: MutableMapping[str, Any], answer: Answer) -> None:
        assert answer.upgraded is not None
        if is_translated(scope["headers"]):
            self._counters.web_socket(scope["path"])
        work = asyncio.create_task(_run(answer.upgraded(scope["extensions"][HIJACK])))
        await self._as_stream(work)

    async def _stream(self, scope: MutableMapping[str, Any], receive: Receive, send: Send, answer: Answer) -> None:
        headers = [(b"content-type", answer.content_type.encode()), date_header(), *answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        # Flushes the head: who follows waits for it before there is anything to be read.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        gone = asyncio.create_task(_gone(receive))
        work = asyncio.create_task(_pieces(answer, send))
        gone.add_done_callback(lambda _: work.cancel())
        try:
            complete = await self._as_stream(work)
        finally:
            gone.cancel()
        if complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            scope["extensions"][ABORT]()

    async def _as_stream(self, work: asyncio.Task[None]) -> bool:
        """Whether a stream came to its end."""
        self._streams.add(work)
        if self.stopping:
            work.cancel()
        try:
            await asyncio.wait([work])
        finally:
            self._streams.discard(work)
            work.cancel()
        if work.cancelled():
            return False
        error = work.exception()
        if error is not None:
            _log.warning("a stream broke off: %s", error or type(error).__name__)
        return error is None


async def _run(work: Awaitable[None]) -> None:
    await work


async def _pieces(answer: Answer, send: Send) -> None:
    assert answer.pieces is not None
    async with contextlib.aclosing(answer.pieces) as pieces:
        async for piece in pieces:
            async with asyncio.timeout(SEND_SECONDS):
                await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
