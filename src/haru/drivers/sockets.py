"""gRPC on Unix sockets, for messages of protobuf: services that are served, channels to those of others."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from haru.errors import InputError
from haru.plugin_channel import OPTIONS, SOCKET_BYTES, calling
from haru.proto import decode

if TYPE_CHECKING:
    import grpc.aio


class SocketError(InputError):
    """A socket cannot be served on; the text names it and the remedy."""


def too_long(path: str | Path) -> str:
    """What is wrong with a path that no socket can have, or nothing."""
    fits = len(os.fsencode(path)) <= SOCKET_BYTES
    return "" if fits else f"longer than {SOCKET_BYTES} bytes, which no socket's path is: name a shorter one"


def channel(path: str | Path) -> grpc.aio.Channel:
    """A channel to a socket; it connects when it is first used."""
    import grpc.aio

    return grpc.aio.insecure_channel(f"unix:{path}", options=OPTIONS)


def call(through: grpc.aio.Channel, path: str, answer: type[Message], *, stream: bool = False) -> Any:
    """A call of one message, answered with one (that raises `MessageError`) or with a stream of them.

    The first raises UsageError where the channel is closed meanwhile.
    """
    if stream:
        return through.unary_stream(path, request_serializer=_encode, response_deserializer=answer.FromString)
    # gRPC itself would log what a deserializer raises and answer None.
    ask: Any = through.unary_unary(path, request_serializer=_encode)

    async def decoded(request: Message, timeout: float | None = None) -> Message:
        with calling():
            return decode(answer, await ask(request, timeout=timeout))

    return decoded


def unary(handler: Any, request: type[Message]) -> Any:
    """A method that answers a message with a message."""
    import grpc

    return grpc.unary_unary_rpc_method_handler(handler, request.FromString, _encode)


def streaming(handler: Any, request: type[Message]) -> Any:
    """A method that answers a message with a stream of messages."""
    import grpc

    return grpc.unary_stream_rpc_method_handler(handler, request.FromString, _encode)


def _encode(message: Message) -> bytes:
    return message.SerializeToString()


async def serve(path: Path, services: Mapping[str, Mapping[str, Any]], mode: int = 0o600) -> grpc.aio.Server:
    """Serve services (name on the wire -> method -> handler) on a socket, in place of an older one there.

    Raises `SocketError`.
    """
    import grpc
    import grpc.aio

    _make_place(path)
    server = grpc.aio.server()
    try:
        await _start(server, path, services, mode)
    except BaseException:
        await server.stop(None)  # one that is only dropped is loud when the process ends
        raise
    return server


async def _start(server: grpc.aio.Server, path: Path, services: Mapping[str, Mapping[str, Any]], mode: int) -> None:
    import grpc

    for name, methods in services.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, dict(methods)),))
    before = os.umask(0o777 & ~mode)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise SocketError(f"{path}: can not be listened on: {error}") from None
    finally:
        os.umask(before)
    await server.start()


def remove(path: Path) -> None:
    """Remove a socket; a missing one is no error."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _make_place(path: Path) -> None:
    if told := too_long(path):
        raise SocketError(f"{path}: {told}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
            raise SocketError(f"{path}: there is something else that is no socket: name another path")
        remove(path)
    except OSError as error:
        raise SocketError(f"{path.parent}: {error.strerror}: name a directory that can be written") from None
