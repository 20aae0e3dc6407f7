"""Serve the dashboard on a loopback address: plain HTTP that no other machine can reach."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from haru.client.api import ApiClient
from haru.dashboard.access import Access, check_loopback
from haru.serving import connection_class, listening_socket, server_class, settings

if TYPE_CHECKING:
    from haru.dashboard.app import Dashboard
    from haru.dashboard.views.prices import Prices
    from haru.dashboard.views.usage_history import UsageHistory

_LINGER_SECONDS = 0.3


class Visited(NamedTuple):
    """What a browser knows of a server: its port, and the session."""

    port: int
    session: str


NOT_VISITED = Visited(0, "")


class DashboardServer:
    """Serves the dashboard of one cluster until it is stopped; port 0 takes a free one.

    `history` is that of usage; without one the pages say that there is none. `prices` are of cards. `before` is what
    the browser knows of a server that this one follows: it finds the same, unless others have taken that port.

    The pages are imported at the first request, for a short start of `haru up`.
    """

    def __init__(
        self,
        client: ApiClient,
        host: str,
        port: int,
        history: UsageHistory | None = None,
        prices: Prices | None = None,
        before: Visited = NOT_VISITED,
    ) -> None:
        check_loopback(host, port, "--dashboard")
        self._host = "127.0.0.1" if host == "localhost" else host
        self._wanted_port = port
        self._before = before
        self._client = client
        self._history = history
        self._prices = prices
        self.url = ""
        """The address with the one-time code; once started."""
        self.visited = NOT_VISITED
        """What a browser knows of it; once started."""
        self._access: Access | None = None
        self._app: Dashboard | None = None
        self._server: Any = None
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen and serve; OSError when the address is taken."""
        self._socket = self._listen()
        port = self._socket.getsockname()[1]
        self._access = Access(port, session=self._before.session)
        self.visited = Visited(port, self._access.session)
        config = settings(self._answer, http=connection_class(), timeout_graceful_shutdown=2)
        self._server = server_class()(config)
        self._task = asyncio.create_task(self._server.serve([self._socket]), name="haru dashboard: http")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise RuntimeError("the dashboard's server ended before it had started")
            await asyncio.sleep(0.001)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{port}/?code={self._access.code}"

    def _listen(self) -> socket.socket:
        flag = "port for the dashboard"
        with suppress(OSError):
            if self._before.port:
                return listening_socket(self._host, self._before.port, flag)
        return listening_socket(self._host, self._wanted_port, flag)

    async def stop(self) -> None:
        """End streams and watches, finish the requests in flight, close."""
        if self._task is None or self._socket is None:
            return
        if self._app is not None:
            await self._app.stop()
        self._server.end()
        while not self._task.done():
            await asyncio.wait([self._task], timeout=_LINGER_SECONDS)
        self._socket.close()
        self._task = None

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            from haru.cluster_view import ClusterWatch
            from haru.dashboard.app import Dashboard
            from haru.dashboard.whatif import slices_of

            assert self._access is not None
            watch, slices = ClusterWatch(self._client), slices_of(self._client)
            self._app = Dashboard(watch, self._access, self._history, self._prices, slices)
        await self._app(scope, receive, send)
