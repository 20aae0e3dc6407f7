"""Take connections as Go's servers do: while no descriptor is free clients wait, and the log says so.

libuv would accept each of them and close it at once, and asyncio logs it once for each place in the queue. Connections
leave some descriptors to the process, which has files to open too.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from haru.open_files import limit

_log = logging.getLogger(__name__)
RESERVED: Final = 32
"""So many descriptors connections leave to the process, but at most an eighth of its limit."""
_MOST_AT_ONCE: Final = 64
"""So many connections are taken before others have their turn."""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 1.0
_LOG_SECONDS: Final = 60.0
_NO_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts connections until it is closed; made within the running loop. It owns the socket.

    With TLS a client has `handshake_seconds` to agree. `reserved` descriptors stay free.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext | None = None,
        *,
        backlog: int,
        handshake_seconds: float | None = None,
        reserved: int = RESERVED,
    ) -> None:
        self._listener, self._protocol = listener, protocol
        self._tls: dict[str, Any] = {}
        if context is not None:
            self._tls = {"ssl": context, "ssl_handshake_timeout": handshake_seconds}
        most = limit()
        self._most = most - min(reserved, most // 8)
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._pause = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._logged = float("-inf")
        listener.setblocking(False)
        listener.listen(backlog)
        self._listen()

    def close(self) -> None:
        """Accept no more; connections that are there go on."""
        if self._timer is not None:
            self._timer.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    async def wait_closed(self) -> None:
        """Return at once: who serves the connections waits for them."""

    def _listen(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                self._check_descriptors()
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_RESOURCES:
                    raise
                self._wait(error)
                return
            self._pause = 0.0
            task = self._loop.create_task(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _check_descriptors(self) -> None:
        """Raise OSError when only the reserved ones are left: the system hands out the lowest free one."""
        descriptor = os.dup(self._listener.fileno())
        os.close(descriptor)
        if descriptor >= self._most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _wait(self, error: OSError) -> None:
        """Leave clients in the queue of the kernel for a while."""
        self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(self._pause, self._listen)
        if (now := time.monotonic()) >= self._logged + _LOG_SECONDS:
            self._logged = now
            text = "accept on %s: %s (limit %d): new connections wait until others are closed"
            _log.warning(text, _text(self._listener.getsockname()), (error.strerror or "").lower(), limit())

    async def _open(self, connection: socket.socket) -> None:
        # A client that goes, or does not agree on TLS, is its own affair.
        with suppress(OSError):
            await self._loop.connect_accepted_socket(self._protocol, connection, **self._tls)


def _text(address: Any) -> str:
    """Write the address of a socket: host and port, or a path."""
    return ":".join(map(str, address[:2])) if type(address) is tuple else str(address)
