"""Proxy upgraded connections: after `101 Switching Protocols` bytes are copied between a client and another server.

The protocol of those bytes (WebSocket, SPDY) is between client and runtime. The HTTP server (uvicorn) gives its
connection away; the connection to the other server is opened here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.event_loop import abort, cancelled
from haru.kube.go_values import dial_problem

HIJACK = "haru.hijack"
"""ASGI extension: a function that takes the connection over and returns it as `ByteStream`."""
HEAD_BYTES = 64 * 1024
BODY_BYTES = 64 * 1024
_PIECE = 64 * 1024
_CLOSE_SECONDS = 5.0
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ByteStream:
    """A connection as asyncio's streams."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def close(self) -> None:
        """Close after what was written; cut a connection whose other side does not take that."""
        self.writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            abort(self.writer.transport)


@dataclass(frozen=True, slots=True)
class Upstream:
    """The server behind a proxy. `server_name`: the name in its certificate, if that is not `host`."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class UpgradeRequest:
    """A request for another protocol, with all its headers."""

    method: str
    target: str
    headers: Headers

    def encode(self) -> bytes:
        """Return it as HTTP/1.1 has it. ValueError for a line break in a line."""
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers)]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a line of the request has a line break in it")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class UpgradeError(OSError):
    """The other server could not be reached, or does not speak HTTP; the message says which."""


@dataclass(frozen=True, slots=True)
class UpgradeResponse:
    """The other server's response: with status 101 `stream` is the connection, otherwise there is a `body`."""

    status: int
    head: bytes
    headers: dict[str, str]
    stream: ByteStream
    body: bytes = b""


def take_over(connection: Any) -> ByteStream:
    """Take a connection away from uvicorn's `HttpToolsProtocol` that is answering a request on it."""
    loop = asyncio.get_running_loop()
    transport = connection.transport
    connection.connections.discard(connection)
    if connection.cycle is not None:  # the client is still there
        connection.cycle.disconnected = True  # nothing is to be answered any more by HTTP
    reader = asyncio.StreamReader(limit=_PIECE, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    return ByteStream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def wants_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether a request asks for another protocol."""
    found = [(name.lower(), value.lower()) for name, value in headers]
    tokens = {part.strip() for name, value in found if name == b"connection" for part in value.split(b",")}
    return b"upgrade" in tokens and any(name == b"upgrade" and value for name, value in found)


def wants_websocket(scope: Mapping[str, Any]) -> bool:
    """Whether a request asks for a WebSocket, on a connection that can become one."""
    headers = scope["headers"]
    asked = any(name == b"upgrade" and value.lower() == b"websocket" for name, value in headers)
    return asked and wants_upgrade(headers) and HIJACK in (scope.get("extensions") or {})


async def open_upgrade(upstream: Upstream, request: UpgradeRequest, seconds: float = 30.0) -> UpgradeResponse:
    """Ask another server for another protocol. Raises `UpgradeError`."""
    where = f"{upstream.host}:{upstream.port}"
    stream: ByteStream | None = None
    try:
        async with asyncio.timeout(seconds):
            stream = await _connect(upstream)
            stream.writer.write(request.encode())
            await stream.writer.drain()
            head = await stream.reader.readuntil(b"\r\n\r\n")
            status, headers = _parsed(head)
            if status == 101:
                opened, stream = UpgradeResponse(status, head, headers, stream), None
                return opened
            return UpgradeResponse(status, head, headers, stream, await _body(stream.reader, headers))
    except TimeoutError:
        raise UpgradeError(f"{where}: no answer within {seconds:g} s") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise UpgradeError(f"{where}: it did not answer as HTTP: {error}") from error
    except ssl.SSLError as error:
        raise UpgradeError(f"{where}: {error}") from error
    except OSError as error:
        raise UpgradeError(dial_problem(upstream.host, upstream.port, error)) from error
    finally:
        if stream is not None:
            stream.writer.close()


async def _connect(upstream: Upstream) -> ByteStream:
    host, tls = upstream.host, upstream.tls
    name = (upstream.server_name or host) if tls is not None else None
    pair = await asyncio.open_connection(host, upstream.port, ssl=tls, limit=HEAD_BYTES, server_hostname=name)
    return ByteStream(*pair)


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"{first[:80]!r}")
    pairs = (line.partition(":") for line in lines if line)
    return int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """Read the body of a response, up to `BODY_BYTES`."""
    length = headers.get("content-length", "")
    if length.isdigit():
        with contextlib.suppress(asyncio.IncompleteReadError):
            return await reader.readexactly(min(int(length), BODY_BYTES))
        return b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    return await reader.read(BODY_BYTES)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    found = b""
    while len(found) < BODY_BYTES and (size := int((await reader.readline()).partition(b";")[0], 16)):
        found += await reader.readexactly(min(size, BODY_BYTES))
        await reader.readline()
    return found


async def splice(one: ByteStream, other: ByteStream) -> None:
    """Copy bytes in both directions until one side ends or the task is cancelled; then close both."""
    tasks = [asyncio.create_task(_copy(one, other)), asyncio.create_task(_copy(other, one))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancelled(*tasks)
        await asyncio.gather(one.close(), other.close())


async def _copy(source: ByteStream, sink: ByteStream) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.reader.read(_PIECE):
            sink.writer.write(piece)
            await sink.writer.drain()
