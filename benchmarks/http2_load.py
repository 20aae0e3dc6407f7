"""A client of HTTP/2 that costs little: for load on an HTTP server. Used by `benchmarks.http_load`.

Its windows are as large as they may be, so that it need not say anything of them; heads are compressed by `hpack`, so
that a request that was made before is a few bytes, as those of Go's clients are. What comes is counted, not kept.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

import hpack

from haru.http2 import frames
from haru.http2.frames import Setting

Job = dict[str, Any]
_OPENING = (
    frames.PREFACE
    + frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW, Setting.ENABLE_PUSH: 0})
    + frames.number_frame(frames.WINDOW_UPDATE, 0, frames.LARGEST_WINDOW - frames.WINDOW)
)


class ServerError(RuntimeError):
    """An answer that is none of 2xx, or no answer."""


class Opener:
    """Requests as bytes, each on a stream of its own."""

    def __init__(self, job: Job) -> None:
        self._job, self._encoder, self._number = job, hpack.Encoder(), -1

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The stream of a request and what to send for it."""
        self._number += 2
        job = self._job
        fields = [
            (":method", method),
            (":scheme", "https"),
            (":authority", f"{job['host']}:{job['port']}"),
            (":path", path),
            ("authorization", f"Bearer {job['token']}"),
            ("accept", "application/json"),
            ("accept-encoding", job.get("encoding", "identity")),
        ]
        if body:
            kind = "application/json" if method == "POST" else "application/merge-patch+json"
            fields += [("content-type", kind), ("content-length", str(len(body)))]
        flags = frames.END_HEADERS | (0 if body else frames.END_STREAM)
        data = frames.frame(frames.HEADERS, flags, self._number, self._encoder.encode(fields))
        return self._number, data + (frames.frame(frames.DATA, frames.END_STREAM, self._number, body) if body else b"")


class Answers:
    """What a server sends, cut into frames by what must be known of them: status, data and end of each stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, int, int, bytes]]:
        """Type, flags, stream and payload of what is whole."""
        data = self._rest + data
        found, at, end = [], 0, len(data)
        while end - at >= frames.FRAME_HEADER_BYTES:
            after = at + frames.FRAME_HEADER_BYTES + (data[at] << 16 | data[at + 1] << 8 | data[at + 2])
            if after > end:
                break
            number = int.from_bytes(data[at + 5 : at + 9], "big")
            found.append((data[at + 3], data[at + 4], number, data[at + frames.FRAME_HEADER_BYTES : after]))
            at = after
        self._rest = data[at:]
        return found


def check(kind: int, payload: bytes) -> None:
    """ServerError for a frame that ends a stream or all, and for a status that is not 200, 201 or 204."""
    if kind in (frames.GOAWAY, frames.RST_STREAM):
        raise ServerError(f"the server ends it: {payload!r}")
    if kind == frames.HEADERS and payload[0] not in (0x88, 0x89) and payload[:5] != b"\x08\x03201":
        raise ServerError(f"{payload!r}")


class Client(asyncio.Protocol):
    """A connection with requests on it."""

    def __init__(self, job: Job) -> None:
        self.opener = Opener(job)
        self._answers = Answers()
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._lengths: dict[int, int] = {}
        self._followers: dict[int, Callable[[bytes], None]] = {}

    @classmethod
    async def connect(cls, job: Job, context: ssl.SSLContext) -> Client:
        """A new one."""
        context.set_alpn_protocols(["h2"])
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(job), job["host"], job["port"], ssl=context)
        return client

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(_OPENING)

    async def ask(self, method: str, path: str, body: bytes = b"") -> int:
        """Ask, and wait for the answer; the length of its body."""
        number, data = self.opener.request(method, path, body)
        self._lengths[number] = 0
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return await future

    def follow(self, path: str, take: Callable[[bytes], None]) -> None:
        """Ask, and have everything that comes taken; the first time with nothing, when the answer begins."""
        number, data = self.opener.request("GET", path)
        self._followers[number] = take
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        for kind, flags, number, payload in self._answers.feed(data):
            check(kind, payload)
            if kind == frames.SETTINGS and not flags & frames.ACK:
                self.transport.write(frames.frame(frames.SETTINGS, frames.ACK, 0))
            if number in self._followers:
                self._followers[number](payload if kind == frames.DATA else b"")
            elif number:
                self._lengths[number] += len(payload) if kind == frames.DATA else 0
                if flags & frames.END_STREAM:
                    self._waiting.pop(number).set_result(self._lengths.pop(number))

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self._waiting.values():
            future.set_exception(ServerError("the connection is gone"))


def read_whole(connection: ssl.SSLSocket, answers: Answers) -> int:
    """Read one answer from a socket that waits; the length of its body."""
    length = 0
    while True:
        data = connection.recv(1 << 20)
        if not data:
            raise ServerError(f"cut off after {length} bytes")
        for kind, flags, number, payload in answers.feed(data):
            check(kind, payload)
            if kind == frames.DATA:
                length += len(payload)
            if number and flags & frames.END_STREAM:
                return length


def open_waiting(job: Job, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A socket that waits, on which requests can be made."""
    context.set_alpn_protocols(["h2"])
    connection = context.wrap_socket(socket.create_connection((job["host"], job["port"])))
    connection.sendall(_OPENING + frames.frame(frames.SETTINGS, frames.ACK, 0))
    return connection
