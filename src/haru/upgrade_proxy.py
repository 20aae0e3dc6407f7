"""Taking over a connection: bytes go to and fro between a client and another server after the request's head.

What is spoken after `101 Switching Protocols` (WebSocket, SPDY) is not looked at: it is between client and runtime. The
HTTP server (uvicorn) gives a connection away; the other one is opened here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

HIJACK = "haru.hijack"
"""The ASGI extension by which an application takes a connection over: a function without arguments, to `Ends`."""
HEAD_BYTES = 64 * 1024
BODY_BYTES = 64 * 1024
_PIECE = 64 * 1024
_LATE_SECONDS = 5.0
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Ends:
    """A connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def close(self) -> None:
        """Close it, after what was written; cut it where the other side does not take that."""
        self.writer.close()
        try:
            async with asyncio.timeout(_LATE_SECONDS):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            self.writer.transport.abort()


class TunnelError(OSError):
    """The other server could not be reached, or does not speak HTTP; the message says which."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The other server's answer. With status 101 `ends` is the connection; with another `body` is what it said."""

    status: int
    head: bytes
    headers: dict[str, str]
    ends: Ends
    body: bytes = b""


def take_over(connection: Any) -> Ends:
    """Take a connection away from uvicorn's `HttpToolsProtocol` that is answering a request on it."""
    loop = asyncio.get_running_loop()
    transport = connection.transport
    connection.connections.discard(connection)
    # Nothing is to be answered any more by HTTP.
    connection.cycle.disconnected = True
    reader = asyncio.StreamReader(limit=_PIECE, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    return Ends(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def wants_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request asks for another protocol."""
    found = [(name.lower(), value.lower()) for name, value in headers]
    tokens = {part.strip() for name, value in found if name == b"connection" for part in value.split(b",")}
    return b"upgrade" in tokens and any(name == b"upgrade" and value for name, value in found)


async def open_tunnel(
    host: str,
    port: int,
    method: str,
    target: str,
    headers: Headers,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    seconds: float = 30.0,
) -> Opened:
    """Ask another server for another protocol. Raises `TunnelError`."""
    name = (server_name or host) if tls is not None else None
    where = f"{host}:{port}"
    ends: Ends | None = None
    try:
        async with asyncio.timeout(seconds):
            ends = Ends(*await asyncio.open_connection(host, port, ssl=tls, limit=HEAD_BYTES, server_hostname=name))
            ends.writer.write(_head(method, target, headers))
            await ends.writer.drain()
            head = await ends.reader.readuntil(b"\r\n\r\n")
            status, answered = _parsed(head)
            if status == 101:
                opened, ends = Opened(status, head, answered, ends), None
                return opened
            return Opened(status, head, answered, ends, await _body(ends.reader, answered))
    except TimeoutError:
        raise TunnelError(f"{where}: no answer within {seconds:g} s") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise TunnelError(f"{where}: it did not answer as HTTP: {error}") from error
    except OSError as error:
        raise TunnelError(f"{where}: {error}") from error
    finally:
        if ends is not None:
            ends.writer.close()


def _head(method: str, target: str, headers: Headers) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line of the request has a line break in it")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"{first[:80]!r}")
    pairs = (line.partition(":") for line in lines if line)
    return int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """What an answer says, as far as it is short."""
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


async def splice(one: Ends, other: Ends) -> None:
    """Pass everything on in both directions until one side ends or the task is cancelled; then both are closed."""
    tasks = [asyncio.create_task(_copy(one, other)), asyncio.create_task(_copy(other, one))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(one.close(), other.close())


async def _copy(source: Ends, sink: Ends) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.reader.read(_PIECE):
            sink.writer.write(piece)
            await sink.writer.drain()
