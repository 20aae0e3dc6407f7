"""Taking a request to a pod and its answer back, bounded in time and size.

What the client is known by ends here: its token, its certificate, headers that name users, cookies. Certificates of
pods are not checked, as in 1.36: nobody signs them.
Source: the upgrade-aware proxy of k8s.io/apimachinery, as behaviour.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from haru.apiserver.peers.proxy import AnswerStream
from haru.apiserver.proxy.kubelets.connections import ANSWER_DROPPED, HEAD_SECONDS, Tunnel, passed_headers
from haru.apiserver.proxy.links import Links, Page
from haru.apiserver.proxy.targets import ProxyRequest, ProxyTarget, TargetResolver
from haru.apiserver.request.http import Request, Response
from haru.apiserver.streams import OpenStreams
from haru.apiserver.upstream_session import unreached
from haru.event_loop import imported
from haru.kube.errors import StatusError, bad_request_error
from haru.upgrade_proxy import HIJACK, UpgradeError, UpgradeRequest, Upstream, open_upgrade, wants_upgrade

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 10.0
_CORS = frozenset(f"access-control-allow-{name}" for name in ("credentials", "headers", "methods", "origin"))
_OURS = ("x-forwarded-uri", "x-forwarded-host", "x-forwarded-proto")


class Proxy:
    """The way to pods, for one server."""

    def __init__(self, targets: TargetResolver, streams: OpenStreams) -> None:
        self._targets, self._streams = targets, streams
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def connect(self, request: Request, wanted: ProxyRequest) -> Response:
        """The pod's answer, or a connection to it. Raises StatusError."""
        place = await self._targets.resolve(wanted)
        query = (request.scope.get("query_string") or b"").decode("latin-1")
        target = quote(wanted.rest or "/", safe="/:@!$&'()*+,;=-._~") + (f"?{query}" if query else "")
        if wants_upgrade(request.scope["headers"]):
            return await self._tunnel(request, place, target)
        if not wanted.rest and request.method in ("GET", "HEAD"):
            # Relative links of the page that comes back are to lead below it.
            path = quote(request.path, safe="/:@!$&'()*+,;=-._~")
            location = f"{path}/" + (f"?{query}" if query else "")
            return Response(301, b"", "text/plain", [(b"location", location.encode("latin-1"))])
        prefix = request.path.removesuffix(wanted.rest)
        answer = await self._ask(request, place, target, prefix)
        return self._answer(request, place, prefix, answer)

    async def _ask(self, request: Request, place: ProxyTarget, target: str, prefix: str) -> aiohttp.ClientResponse:
        await imported("aiohttp")
        import aiohttp
        from yarl import URL

        body = await request.body()
        # A page that came compressed could not be rewritten.
        dropped = {*_OURS, "accept-encoding"} if "text/html" in request.header(b"accept") else set(_OURS)
        headers = [(name, value) for name, value in passed_headers(request, keeps_upgrade=False) if name not in dropped]
        headers.append(("x-forwarded-uri", quote(request.path, safe="/:@!$&'()*+,;=-._~")))
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=30, ssl=self._tls)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=False, trust_env=False, cookie_jar=jar
            )
        url = URL(f"{place.scheme}://{place.netloc}{target}", encoded=True)
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                return await self._session.request(
                    request.method,
                    url,
                    headers=headers,
                    data=body or None,
                    allow_redirects=False,
                    skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
                )
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            why = unreached(error, f"no answer from {place.netloc}")
            raise StatusError(503, "ServiceUnavailable", f"error trying to reach service: {why}") from error

    def _answer(self, request: Request, place: ProxyTarget, prefix: str, answer: aiohttp.ClientResponse) -> Response:
        links = Links(prefix, place.netloc, request.header(b"host"))
        kept: list[tuple[bytes, bytes]] = []
        page = _is_page(answer) and request.method != "HEAD"
        for name, value in ((name.lower(), value) for name, value in answer.headers.items()):
            if name in ANSWER_DROPPED or name in _CORS or (page and name == "content-length"):
                continue
            kept.append((name.encode("latin-1"), (links.url(value) if name == "location" else value).encode("latin-1")))
        content_type = answer.headers.get("Content-Type", "")
        source: Any = _Rewritten(answer, Page(links)) if page else answer
        return Response(answer.status, b"", content_type, kept, AnswerStream(self._streams, source).run, passed_on=True)

    async def _tunnel(self, request: Request, place: ProxyTarget, target: str) -> Response:
        if HIJACK not in (request.scope.get("extensions") or {}):
            raise bad_request_error("a connection in this process can not be upgraded: use the server's socket")
        headers: Sequence[tuple[str, str]] = [("host", place.netloc), *passed_headers(request, keeps_upgrade=True)]
        tls = self._tls if place.scheme == "https" else None
        try:
            upstream = Upstream(place.address, place.port, tls)
            opened = await open_upgrade(upstream, UpgradeRequest(request.method, target, headers), HEAD_SECONDS)
        except UpgradeError as error:
            raise StatusError(503, "ServiceUnavailable", f"error trying to reach service: {error}") from error
        if opened.status != 101:
            return Response(opened.status, opened.body, opened.headers.get("content-type", "text/plain"))
        return Response(101, tunnel=Tunnel(self._streams, opened).run)


class _Rewritten:
    """An answer whose page is rewritten on its way."""

    def __init__(self, answer: aiohttp.ClientResponse, page: Page) -> None:
        self._answer, self._page = answer, page
        self.content = self

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The pieces."""
        async for piece in self._answer.content.iter_any():
            if written := self._page.feed(piece):
                yield written
        if rest := self._page.end():
            yield rest

    def close(self) -> None:
        """Give the connection up."""
        self._answer.close()


def _is_page(answer: aiohttp.ClientResponse) -> bool:
    """Whether links in it are rewritten; not in one that is compressed, nor in a redirect."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    packed = answer.headers.get("Content-Encoding", "identity").lower() != "identity"
    return kind == "text/html" and not packed and "Location" not in answer.headers
