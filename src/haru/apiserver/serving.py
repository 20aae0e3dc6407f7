"""The API server behind TLS: uvicorn run inside this process, with an end that clients notice.

Stopping first ends the watches (their clients reconnect elsewhere or wait), then lets the requests in flight finish,
then closes the socket. uvicorn, uvloop and httptools are imported when a server is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.acceptor import Acceptor
from haru.apiserver.request.protocol import protocol_class
from haru.event_loop import for_clients
from haru.http2 import MAX_STREAMS
from haru.http2.alpn import offer_protocols
from haru.serving import abort_connections, listening_socket, local_socket, server_class, settings

if TYPE_CHECKING:
    from haru.apiserver.server import ApiServer

GRACE_SECONDS = 5
LINGER_SECONDS = 0.3
KEEP_ALIVE_SECONDS = 90
BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a server; without both authorities no client certificates are asked for."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """The authority of client certificates."""
    front_proxy_ca: Path | None = None
    """The authority of front proxies' certificates."""


class HttpServer:
    """Serves one API server on one address until it is stopped.

    Port 0 takes a free one; `port` tells which, once started. `http2_streams` is how many requests a connection of
    HTTP/2 may have at once; with 0, and without TLS, there is only HTTP/1.1.
    """

    def __init__(
        self,
        app: ApiServer,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: TlsFiles | None = None,
        *,
        http2_streams: int = MAX_STREAMS,
    ) -> None:
        self._app = app
        self._host = host
        self._wanted_port = port
        self.port = 0
        """The port that is served; 0 before the first start."""
        self._tls = tls
        self._http2_streams = http2_streams if tls is not None else 0
        self._server: Any = None
        self._socket: socket.socket | None = None
        self._local: Acceptor | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where clients find the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return 0 if self._server is None else len(self._server.server_state.connections)

    @property
    def requests(self) -> int:
        """How many requests have come over connections since the start."""
        return 0 if self._server is None else self._server.server_state.total_requests

    async def start(self) -> None:
        """Listen and serve; OSError when the address is taken."""
        self._socket = listening_socket(self._host, self._wanted_port, "--port")
        self.port = int(self._socket.getsockname()[1])
        self._server = make_server(self._app, self._tls, self._http2_streams)
        with for_clients():
            self._task = asyncio.create_task(self._server.serve([self._socket]), name="haru apiserver: http")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise RuntimeError(f"the server on {self.url} ended before it had started")
            await asyncio.sleep(0.001)
        await self._app.serve_on((self._socket.getsockname()[0], self.port))

    async def serve_locally(self, path: str) -> None:
        """Serve on a Unix socket too, without TLS: in a directory that only this user may enter. Call after `start`."""
        config, state = self._server.config, self._server.server_state
        connection = partial(protocol_class(0), config=config, server_state=state, app_state={})
        # The parts of one command come first: nothing is reserved from them.
        self._local = Acceptor(local_socket(path), connection, backlog=BACKLOG, reserved=0)

    async def stop(self) -> None:
        """End watches, finish what is in flight, close."""
        if self._server is None or self._task is None:
            return
        if self._local is not None:
            self._local.close()
        if self._app.peers is not None:
            await self._app.peers.stop()
        self._app.streams.stop()
        self._server.end()
        while not self._task.done():
            await asyncio.wait([self._task], timeout=LINGER_SECONDS)
            _drop_idle(self._server)
        with contextlib.suppress(OSError):
            assert self._socket is not None
            self._socket.close()
        self._server = None


def _drop_idle(server: Any) -> None:
    """Cut connections on which nothing is in flight: an idle client does not answer the farewell of TLS."""
    if not server.server_state.tasks:
        abort_connections(server)


def make_server(app: Any, tls: TlsFiles | None, http2_streams: int) -> Any:
    """Return a uvicorn server for an ASGI application, with TLS if `tls` is given."""
    given = [path for path in (tls.client_ca, tls.front_proxy_ca) if path] if tls is not None else []
    client_ca, others = (given[0], given[1:]) if given else (None, [])
    config = settings(
        app,
        http=protocol_class(http2_streams),
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=str(tls.certificate) if tls is not None else None,
        ssl_keyfile=str(tls.key) if tls is not None else None,
        ssl_ca_certs=str(client_ca) if client_ca else None,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if client_ca else ssl.CERT_NONE,
    )
    config.load()
    if config.ssl is not None:
        for path in others:
            config.ssl.load_verify_locations(cafile=path)
        offer_protocols(config.ssl, http2=http2_streams > 0)
    return server_class()(config)
