"""An HTTP proxy on loopback, between the schedulers and the API server, that delays, refuses and falls silent."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from typing import Final

import aiohttp
from aiohttp import web

from haru.event_loop import cancelled

_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "te", "trailers", "transfer-encoding", "upgrade", "host", "content-length"}
)
_EXPIRED_SECONDS: Final = 1.0


class FaultProxy:
    """Passes requests on to `server`; faults are switched by its attributes."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, rng: random.Random) -> None:
        self._server = server
        self._tls = tls
        self._rng = rng
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self._expired_until = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self._cut = asyncio.Event()
        self.latency = 0.0
        """Seconds that each request takes longer."""
        self.refused = 0.0
        """The share of requests that are answered 429."""
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Close everything."""
        self._open.set()
        self._cut.set()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def partition(self, on: bool) -> None:
        """Let nothing through; connections stay open. Afterwards those from before are closed."""
        if on:
            self._open.clear()
        else:
            self._open.set()
            self._end_streams()

    def expire(self) -> None:
        """End all watches, and answer 410 to those that are resumed within a second."""
        self._expired_until = asyncio.get_running_loop().time() + _EXPIRED_SECONDS
        self._end_streams()

    def _end_streams(self) -> None:
        cut, self._cut = self._cut, asyncio.Event()
        cut.set()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._open.wait()
        if self.latency:
            await asyncio.sleep(self.latency)
        if self._rng.random() < self.refused:
            return _status(
                429, "TooManyRequests", "the server has asked for the client to slow down", {"Retry-After": "1"}
            )
        watching = "watch=true" in request.query_string or "watch=1" in request.query_string
        if watching and asyncio.get_running_loop().time() < self._expired_until:
            return _status(410, "Expired", "too old resource version")
        try:
            return await self._pass_on(request, watching)
        except (aiohttp.ClientError, OSError):
            # The connection to the server broke: so does the one to the client.
            if request.transport is not None:
                request.transport.close()
            raise asyncio.CancelledError from None

    async def _pass_on(self, request: web.BaseRequest, watching: bool) -> web.StreamResponse:
        assert self._session is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        cut, body = self._cut, await request.read()
        async with self._session.request(
            request.method,
            f"{self._server}{request.raw_path}",
            headers=headers,
            data=body or None,
            allow_redirects=False,
        ) as upstream:
            kept = {name: value for name, value in upstream.headers.items() if name.lower() not in _HOP_BY_HOP}
            if not watching:
                data = await upstream.read()
                await self._open.wait()
                return web.Response(status=upstream.status, headers=kept, body=data)
            response = web.StreamResponse(status=upstream.status, headers=kept)
            await response.prepare(request)
            await self._stream(upstream, response, cut)
            return response

    async def _stream(self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, cut: asyncio.Event) -> None:
        ending = asyncio.create_task(cut.wait())
        try:
            while not cut.is_set():
                reading = asyncio.create_task(upstream.content.readany())
                await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    await cancelled(reading)
                    return
                chunk = reading.result()
                if not chunk:
                    return
                await self._open.wait()
                await response.write(chunk)
        finally:
            ending.cancel()


def _status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.Response(status=code, headers=headers, body=json.dumps(status).encode(), content_type="application/json")
