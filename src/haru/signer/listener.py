"""Listen on a signer's socket, and decide who may connect: callers can sign as any ServiceAccount.

A socket with a path is guarded by its mode. A name in Linux' abstract namespace has no mode: there the kernel is asked
who has connected, and what comes from somebody else is closed. gRPC does not tell, so that such a connection is
accepted here and passed on to a socket in a directory of our own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.errors import InputError

if TYPE_CHECKING:
    import grpc.aio

_LOG = logging.getLogger("haru.signer")
_PIECE = 64 * 1024


class ListenerError(InputError):
    """The socket cannot be made; the text names it and the remedy."""


class SignerListener:
    """Serves gRPC on a path or on `@NAME`; `mode` is that of the path, `uids` may come in by the name."""

    def __init__(self, endpoint: str, mode: int = 0o600, uids: Sequence[int] = ()) -> None:
        self._endpoint = endpoint
        self._mode = mode
        self._uids = frozenset(uids or (os.getuid(),))
        self._server: grpc.aio.Server | None = None
        self._front: asyncio.Server | None = None
        self._inner: Path | None = None
        self._passing: set[asyncio.Task[Any]] = set()

    async def open(self, handlers: Any) -> None:
        """Serve. Raises `ListenerError`."""
        import grpc.aio

        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((handlers,))
        path = Path(self._endpoint)
        if self._endpoint.startswith("@"):
            self._inner = Path(tempfile.mkdtemp(prefix="haru-signer-"))
            path = self._inner / "grpc"
        else:
            _check_place(path)
        with _mask(0o177 if self._inner else 0o777 & ~self._mode):
            try:
                self._server.add_insecure_port(f"unix:{path}")
            except RuntimeError:
                raise ListenerError(f"--socket: {path}: can not be listened on: is its directory there?") from None
        await self._server.start()
        if self._inner is not None:
            await self._open_front()

    async def _open_front(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind("\0" + self._endpoint[1:])
        except OSError as error:
            listener.close()
            raise ListenerError(f"--socket: {self._endpoint}: {error.strerror}: take another name") from None
        self._front = await asyncio.start_unix_server(self._enter, sock=listener)

    async def close(self) -> None:
        """Let nobody in any more, and finish what has begun."""
        if self._front is not None:
            self._front.close()
        if self._server is not None:
            await self._server.stop(1.0)
        for task in self._passing:
            task.cancel()
        if self._inner is not None:
            shutil.rmtree(self._inner, ignore_errors=True)
        elif self._server is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._endpoint)  # noqa: PTH108

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        if uid not in self._uids:
            _LOG.warning("refused a connection to %s of the user %d", self._endpoint, uid)
            writer.close()
            return
        assert self._inner is not None
        with contextlib.suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_unix_connection(str(self._inner / "grpc"))
            tasks = {
                asyncio.create_task(_pass(reader, inner_writer)),
                asyncio.create_task(_pass(inner_reader, writer)),
            }
            self._passing |= tasks
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._passing -= tasks
            for each in (writer, inner_writer):
                each.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()


def peer_uid(connection: Any) -> int:
    """Who is at the other end of a Unix socket, as the kernel knows it."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(uid)


def _check_place(path: Path) -> None:
    """Nothing but an old socket may be in the way, and nobody else may put one there."""
    try:
        if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
            raise ListenerError(f"--socket: {path}: there is something else: name another path")
        mode = path.absolute().parent.stat().st_mode
    except OSError as error:
        raise ListenerError(f"--socket: {path.parent}: {error.strerror}") from None
    if mode & 0o002 and not mode & stat.S_ISVTX:
        raise ListenerError(f"--socket: {path.parent}: everybody may write there: name a directory of your own")


@contextlib.contextmanager
def _mask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
