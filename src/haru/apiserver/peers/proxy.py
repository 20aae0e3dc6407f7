"""Taking a request to a peer and its answer back, the user told in headers and nothing of the client's believed.

What the client said of itself (its token, headers that name users, the mark of a request that was forwarded) is left
here; headers that are for one connection only, by their nature or because `Connection` names them, are dropped before
ours are set, so none of ours can be talked away. The answer is passed on as it is. An answer that never came is 503;
only where the peer can not have begun the work is the client told to come again.
Source: the mixed version proxy (KEP 4020), as behaviour; hop-by-hop headers of RFC 9110.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from haru.apiserver.auth.user import UserInfo
from haru.apiserver.peers.client import PeerClient
from haru.apiserver.peers.counts import PeerMetrics
from haru.apiserver.peers.endpoints import Address, PeerEndpoints, Unresolved
from haru.apiserver.peers.options import HOP
from haru.apiserver.peers.routes import ResourceRequest, target_of
from haru.apiserver.request.http import Request, Response, text_response
from haru.apiserver.streams import OpenStreams
from haru.event_loop import cancelled, imported
from haru.kube.errors import StatusError
from haru.storage import StoreError

if TYPE_CHECKING:
    import aiohttp

Headers = list[tuple[str, str]]

HEAD_SECONDS = 60.0
SEND_SECONDS = 60.0
RETRY_SECONDS = 1
UNRESOLVED = "Error getting ip and port info of the remote server while proxying"
_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_OURS = frozenset(
    (*_HOP_BY_HOP, "authorization", "host", "content-length", "expect", "audit-id", "x-forwarded-for", HOP)
)
_SPOKEN = ("x-remote-", "impersonate-")
_ANSWER = frozenset((*_HOP_BY_HOP, "date"))
_TOKEN = "!#$&'*+-.^_`|~"
"""What may stand in a header's name beside letters and digits."""
_LOG = logging.getLogger("haru.apiserver")


class PeerGone(OSError):
    """The peer broke off in the middle of its answer."""


def forwarded_headers(request: Request) -> Headers:
    """The headers for the peer: the client's without those of identity, and the user's identity."""
    given = [(name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in request.scope["headers"]]
    dropped = _OURS | _named_by_connection(given)
    kept = [(name, value) for name, value in given if name not in dropped and not name.startswith(_SPOKEN)]
    client = (request.scope.get("client") or ("",))[0]
    via = ", ".join([*(value for name, value in given if name == "x-forwarded-for"), *([client] if client else [])])
    own = [(HOP, "true"), ("audit-id", request.audit_id), *([("x-forwarded-for", via)] if via else [])]
    return [*kept, *own, *identity_headers(request.user)]


def identity_headers(user: UserInfo) -> Headers:
    """A user as the headers of a front proxy tell of it. Raises ValueError for what no header can hold."""
    told: Headers = [("X-Remote-User", user.name)]
    if user.uid:
        told.append(("X-Remote-Uid", user.uid))
    told += [("X-Remote-Group", group) for group in user.groups]
    for key, values in user.extra.items():
        told += [(f"X-Remote-Extra-{quote(key, safe=_TOKEN)}", value) for value in values]
    for name, value in told:
        if any(ord(character) < 32 or ord(character) == 127 for character in value) or value != value.strip():
            raise ValueError(f"{name} can not be told to another server: {value!r}")
    return told


def _named_by_connection(headers: Iterable[tuple[str, str]]) -> set[str]:
    values = [value for name, value in headers if name == "connection"]
    return {each.strip().lower() for value in values for each in value.split(",")}


class PeerProxy:
    """The forwarding of one server."""

    def __init__(self, streams: OpenStreams, places: PeerEndpoints, asker: PeerClient, counts: PeerMetrics) -> None:
        self._streams, self._endpoints, self._client, self._counts = streams, places, asker, counts

    async def forward(self, request: Request, asked: ResourceRequest, peers: Sequence[str], watches: bool) -> Response:
        """The answer of one of the peers; 503 when none can be asked."""
        await imported("aiohttp")
        import aiohttp

        address = await self._place(asked, peers)
        try:
            headers = forwarded_headers(request)
        except ValueError as error:
            self._counts.proxy_error("proxy_transport", asked.gvr)
            raise StatusError(500, "InternalError", f"Internal error occurred: {error}") from None
        target = target_of(request.path, request.scope.get("query_string") or b"")
        sent = self._client.request(request.method, address, target, headers, await request.body())
        answer: aiohttp.ClientResponse | None = None
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                answer = await sent
                assert answer is not None
                body = b"" if watches and answer.status == 200 else await answer.read()
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            if answer is not None:
                answer.close()
            self._counts.proxy_error("proxy_transport", asked.gvr)
            return self._failed(request, asked, error)
        self._counts.rerouted(answer.status, asked.gvr)
        told = list(answer.headers.items())
        dropped = _ANSWER | _named_by_connection((name.lower(), value) for name, value in told)
        passed = [(n.lower().encode("latin-1"), v.encode("utf-8", "surrogateescape")) for n, v in told]
        kept = [(name, value) for name, value in passed if name.decode("latin-1") not in dropped]
        response = Response(answer.status, body, answer.headers.get("Content-Type", ""), kept, passed_on=True)
        if watches and answer.status == 200:
            response.stream = AnswerStream(self._streams, answer).run
        return response

    async def _place(self, asked: ResourceRequest, peers: Sequence[str]) -> Address:
        """Where one of the peers is, whichever; 503 when no place is known."""
        found: list[Address] = []
        for peer in peers:
            try:
                found.append(await self._endpoints.resolve(peer))
            except (Unresolved, StoreError) as error:
                self._counts.proxy_error("endpoint_resolution", asked.gvr)
                _LOG.info("%s", error)
        if not found:
            details = {"retryAfterSeconds": RETRY_SECONDS}
            raise StatusError(503, "ServiceUnavailable", UNRESOLVED, details)
        return Random().choice(found)

    def _failed(self, request: Request, asked: ResourceRequest, error: Exception) -> Response:
        import aiohttp

        _LOG.warning("%s %s could not be taken to a peer: %s", request.method, request.path, error or type(error))
        why = "it did not answer in time" if isinstance(error, TimeoutError) else "it can not be reached"
        resource = ".".join(part for part in (asked.gvr[2], asked.gvr[1], asked.gvr[0]) if part)
        response = text_response(f"error proxying the request for {resource} to another API server: {why}\n", 503)
        # A write that may have been made must not be made again by a client that only reads headers.
        if request.method in ("GET", "HEAD") or isinstance(error, aiohttp.ClientConnectorError | ssl.SSLError):
            response.headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
        return response


class AnswerStream:
    """Another server's answer that has no end of its own: passed on piece by piece."""

    def __init__(self, streams: OpenStreams, answer: Any) -> None:
        self._streams, self._answer = streams, answer
        self._ended = asyncio.Event()

    def close(self) -> None:
        """End the stream."""
        self._ended.set()

    async def run(self, request: Request) -> None:
        """Until the peer ends it, the client goes, or the server stops. Raises PeerGone, TimeoutError."""
        self._streams.add(self)
        tasks = [asyncio.create_task(work) for work in (self._pass_on(request), _gone(request), self._ended.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0] in done:
                tasks[0].result()
        finally:
            await cancelled(*tasks)
            self._answer.close()
            self._streams.discard(self)

    async def _pass_on(self, request: Request) -> None:
        await imported("aiohttp")
        import aiohttp

        pieces = self._answer.content.iter_any()
        while True:
            try:
                piece = await anext(pieces, None)
            except (aiohttp.ClientError, OSError) as error:
                raise PeerGone(str(error)) from error
            if piece is None:
                return
            async with asyncio.timeout(SEND_SECONDS):
                await request.send({"type": "http.response.body", "body": piece, "more_body": True})


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
