"""Taking a request to an extension API server and its answer back.

The client's own credentials end here, and so do headers by which it would speak for somebody: who asks is told by this
server, with its certificate. A redirect is not passed on: it would lead the client to where it was not allowed to go.
What is no watch has to end within the time of a request.
Source: kube-aggregator's proxy handler, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from haru.apiserver.aggregation.client import ExtensionClient
from haru.apiserver.aggregation.remote import is_available
from haru.apiserver.peers.proxy import AnswerStream, identity_headers
from haru.apiserver.peers.routes import target_of
from haru.apiserver.proxy.kubelets.connections import ANSWER_DROPPED, Tunnel, passed_headers
from haru.apiserver.request.http import Request, Response, text_response
from haru.apiserver.streams import OpenStreams
from haru.apiserver.upstream_session import unreached
from haru.event_loop import imported
from haru.kube.errors import StatusError, bad_request_error
from haru.kube.meta import Obj
from haru.upgrade_proxy import HIJACK, UpgradeError, wants_upgrade

if TYPE_CHECKING:
    import aiohttp

HEAD_SECONDS = 60.0
ANSWER_SECONDS = 60.0
REDIRECT = "the backend attempted to redirect this request, which is not permitted"
Headers = list[tuple[str, str]]
_LOG = logging.getLogger("haru.apiserver")


class ExtensionProxy:
    """The proxy of one server to extension API servers."""

    def __init__(self, streams: OpenStreams, link: ExtensionClient) -> None:
        self._streams, self._client = streams, link

    async def pass_on(self, request: Request, service: Obj, *, endless: bool, target: str = "") -> Response:
        """The answer, or a connection; `target` (encoded) is by default what was asked for. Raises StatusError."""
        await imported("aiohttp")
        import aiohttp

        if not is_available(service):
            return unavailable()
        target = target or target_of(request.path, request.scope.get("query_string") or b"")
        upgrade = wants_upgrade(request.scope["headers"])
        try:
            headers = _headers(request, keeps_upgrade=upgrade)
        except ValueError as error:
            raise StatusError(500, "InternalError", f"Internal error occurred: {error}") from None
        if upgrade:
            return await self._tunnel(request, service, target, headers)
        body = await request.body()
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                answer = await self._client.request(service, request.method, target, headers, body)
        except (TimeoutError, StatusError, aiohttp.ClientError, OSError, ValueError) as error:
            return _unreached(request, service, error)
        if 300 <= answer.status < 400 and answer.headers.get("Location"):
            answer.close()
            return text_response(REDIRECT, 502)
        stream = AnswerStream(self._streams, answer).run if endless else _BoundedStream(self._streams, answer).run
        content_type = answer.headers.get("Content-Type", "")
        return Response(answer.status, b"", content_type, _answer_headers(answer), stream, passed_on=True)

    async def _tunnel(self, request: Request, service: Obj, target: str, headers: Headers) -> Response:
        if HIJACK not in (request.scope.get("extensions") or {}):
            raise bad_request_error("a connection in this process can not be upgraded: use the server's socket")
        try:
            opened = await self._client.tunnel(service, request.method, target, headers, HEAD_SECONDS)
        except (UpgradeError, StatusError, ValueError) as error:
            return _unreached(request, service, error)
        if opened.status != 101:
            if 300 <= opened.status < 400:
                return text_response(REDIRECT, 502)
            return Response(opened.status, opened.body, opened.headers.get("content-type", "text/plain"))
        return Response(101, tunnel=Tunnel(self._streams, opened).run)


class _BoundedStream(AnswerStream):
    """An answer that has to end."""

    async def run(self, request: Request) -> None:
        """Until the server ends it, or its time is up. Raises PeerGone, TimeoutError."""
        async with asyncio.timeout(ANSWER_SECONDS):
            await super().run(request)


def unavailable() -> Response:
    """503 for an extension API server that is not available."""
    return text_response("service unavailable", 503)


def _headers(request: Request, *, keeps_upgrade: bool) -> Headers:
    """The client's headers without hop-by-hop and identity headers, and the user's identity. Raises ValueError."""
    given = passed_headers(request, keeps_upgrade=keeps_upgrade)
    named = {part.strip().lower() for part in request.header(b"connection").split(",")} - {"upgrade"}
    dropped = named | {"connection", "x-forwarded-for"}
    kept = [(name, value) for name, value in given if name not in dropped]
    kept += [("connection", "Upgrade")] if keeps_upgrade else []
    client = (request.scope.get("client") or ("",))[0]
    via = ", ".join(part for part in (request.header(b"x-forwarded-for"), client) if part)
    own = [("audit-id", request.audit_id), *([("x-forwarded-for", via)] if via else [])]
    return [*kept, *own, *identity_headers(request.user)]


def _answer_headers(answer: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    told = [(name.lower(), value) for name, value in answer.headers.items()]
    named = {part.strip().lower() for name, value in told if name == "connection" for part in value.split(",")}
    dropped = ANSWER_DROPPED | named
    return [
        (name.encode("latin-1"), value.encode("utf-8", "surrogateescape"))
        for name, value in told
        if name not in dropped
    ]


def _unreached(request: Request, service: Obj, error: Exception) -> Response:
    why = unreached(error)
    _LOG.warning("%s %s: %s was not reached: %s", request.method, request.path, service["metadata"]["name"], why)
    if isinstance(error, StatusError):
        return unavailable()
    return text_response(f"error trying to reach service: {why}", 503)
