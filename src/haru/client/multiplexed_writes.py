"""Send writes over one HTTP/2 connection to a server that speaks it; others, and what does not fit, go another way."""

from __future__ import annotations

import asyncio
import ssl

from haru.client.deadlines import Deadlines
from haru.client.exchange import Exchange
from haru.client.http2_connection import Http2Connection, NotTakenError
from haru.client.http_connections import CONNECT_SECONDS, HttpConnections
from haru.client.transport import Request, Response
from haru.event_loop import cancelled


class MultiplexedWrites:
    """Keeps the connection, and opens another one once it has ended."""

    def __init__(self, server: HttpConnections, tls: ssl.SSLContext, deadlines: Deadlines) -> None:
        self._server = server
        self._tls = tls
        self._deadlines = deadlines
        self._connection: Http2Connection | None = None
        self._opening: asyncio.Task[Http2Connection | None] | None = None
        self._is_refused = False
        """The server does not speak HTTP/2."""

    async def send(self, request: Request, timeout: float) -> Response | None:
        """Send and read the whole answer within `timeout` seconds; None for a request that has to go another way."""
        loop = asyncio.get_running_loop()
        began, connection = loop.time(), self._connection
        if connection is None or not connection.is_usable(began):
            connection = await self._opened(loop)
        if connection is None or not connection.has_room(len(request.body)):
            return None
        exchange = Exchange(request, whole=True, loop=loop)
        number = connection.start(exchange, self._server.prefix + request.target())
        self._deadlines.add(exchange, began + timeout)
        try:
            body = await exchange.body()
        except NotTakenError:
            return None
        finally:
            self._deadlines.drop(exchange)
            if not exchange.done:
                connection.give_up(number, late_since=began if isinstance(exchange.error, TimeoutError) else None)
            exchange.error = None  # raised by now, it knows the frames that know the exchange
        return Response(exchange.status, exchange.headers, body)

    async def _opened(self, loop: asyncio.AbstractEventLoop) -> Http2Connection | None:
        """Return a new connection, one for all who wait for it; None if there is none to be had. Raises OSError."""
        if self._is_refused:
            return None
        if self._opening is None:
            self._opening = loop.create_task(self._open(loop), name="HTTP/2 connection")
            self._opening.add_done_callback(_retrieved)
        return await asyncio.shield(self._opening)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Http2Connection | None:
        server = self._server
        try:
            opened = await server.connect(lambda: Http2Connection(server.authority, loop), self._tls, CONNECT_SECONDS)
        finally:
            self._opening = None
        if not opened.is_chosen:
            self._is_refused = True
            opened.close()
            return None
        self._connection = opened
        return opened

    def use(self, tls: ssl.SSLContext) -> None:
        """Open a connection with other TLS settings, and send nothing more on the one that there is."""
        self._tls = tls
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.retire()

    async def close(self) -> None:
        """Close the connection."""
        if self._opening is not None:
            await cancelled(self._opening)
        if self._connection is not None:
            self._connection.close()


def _retrieved(opening: asyncio.Task[Http2Connection | None]) -> None:
    """Nobody may be left who waits for it."""
    if not opening.cancelled():
        opening.exception()
