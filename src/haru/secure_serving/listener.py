"""An ASGI application behind TLS: uvicorn in this process, certificates read again when they change.

A change of certificates puts a new listener in place of the old one on the same socket; connections that are there go
on. Source: dynamic serving certificate and client CA of the kubelet and of kube-scheduler, as behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from haru.acceptor import Acceptor
from haru.event_loop import for_clients
from haru.secure_serving.protocol import protocol_class
from haru.serving import abort_connections, listening_socket, settings
from haru.tls import no_passphrase

if TYPE_CHECKING:
    import uvicorn

GRACE_SECONDS = 5
KEEP_ALIVE_SECONDS = 90
BACKLOG = 1024
HANDSHAKE_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM: a certificate, its key, and the authority of client certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def marks(self) -> list[object]:
        """What changes when a file does."""
        found: list[object] = []
        for file in filter(None, (self.certificate, self.key, self.client_ca)):
            try:
                stat = file.stat()
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
            except OSError:
                found.append(None)
        return found

    def context(self) -> ssl.SSLContext:
        """The context of a server. Raises ValueError for files that can not be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, no_passphrase)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(
                f"{self.certificate} and {self.key}: no certificate with its key can be read: {error}"
            ) from error
        if self.client_ca is not None:
            trust_clients_of(context, self.client_ca)
        return context


class Certificates(Protocol):
    """What a listener serves with."""

    def marks(self) -> object:
        """A value that changes when the certificates do."""

    def context(self) -> ssl.SSLContext:
        """The context of a server. Raises ValueError."""


def trust_clients_of(context: ssl.SSLContext, authorities: Path) -> None:
    """Accept client certificates of the authorities in a file. Raises ValueError for what is none."""
    try:
        context.load_verify_locations(cafile=str(authorities))
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"{authorities}: holds no certificate in PEM: {error}") from error
    context.verify_mode = ssl.CERT_OPTIONAL


class Listener:
    """Serves an ASGI application on one address, with TLS where certificates are given; `look_seconds` between looks
    whether they changed."""

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        tls: Certificates | None = None,
        *,
        look_seconds: float = 0.0,
    ) -> None:
        self._app, self._host, self._wanted, self._tls, self._look_seconds = app, host, port, tls, look_seconds
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._listening: Acceptor | None = None
        self._watch: asyncio.Task[None] | None = None
        self.port = 0
        """The port that is served, once started."""

    async def start(self) -> None:
        """Listen. Raises OSError, ssl.SSLError, ValueError for certificates that can not be used."""
        context, marks = self._context(), self._marks()
        self._socket = listening_socket(self._host, self._wanted, "port")
        self.port = int(self._socket.getsockname()[1])
        self._server = _uvicorn(self._app)
        self._listening = self._listen(context)
        if self._tls is not None:
            self._watch = asyncio.create_task(self._look(marks), name="certificates")

    async def stop(self) -> None:
        """Let what is in flight end within its grace, and close."""
        if self._watch is not None:
            self._watch.cancel()
        if self._listening is not None:
            self._listening.close()
        server = self._server
        if server is not None:
            for connection in list(server.server_state.connections):
                connection.shutdown()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    while server.server_state.tasks:
                        await asyncio.wait(list(server.server_state.tasks))
            for task in list(server.server_state.tasks):
                task.cancel()
            abort_connections(server)
        if self._socket is not None:
            self._socket.close()

    def _listen(self, context: ssl.SSLContext | None) -> Acceptor:
        assert self._server is not None and self._socket is not None
        config, state = self._server.config, self._server.server_state
        connection = partial(protocol_class(), config=config, server_state=state, app_state={})
        # It closes its socket when it ends: each has its own of the one that is kept.
        with for_clients():
            return Acceptor(
                self._socket.dup(), connection, context, backlog=BACKLOG, handshake_seconds=HANDSHAKE_SECONDS
            )

    async def _look(self, marks: object) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            now = self._marks()
            if now == marks:
                continue
            try:
                context = self._context()
            except (OSError, ValueError) as error:
                # Half written, or wrong: what was read before goes on.
                _log.warning("the certificates were not read again: %s", error)
                continue
            marks, old = now, self._listening
            self._listening = self._listen(context)
            if old is not None:
                old.close()
            _log.info("the certificates on port %d were read again", self.port)

    def _marks(self) -> object:
        return self._tls.marks() if self._tls is not None else None

    def _context(self) -> ssl.SSLContext | None:
        return self._tls.context() if self._tls is not None else None


def _uvicorn(app: Callable[..., Any]) -> uvicorn.Server:
    import uvicorn

    config = settings(app, http=protocol_class(), timeout_keep_alive=KEEP_ALIVE_SECONDS)
    config.load()
    return uvicorn.Server(config)
