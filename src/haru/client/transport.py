"""What carries a request to an API server: the same method, path, headers and bytes, in process or over a socket.

A `Request` is built apart from being sent. A `Transport` sends it and gives back a whole `Response`, or a `Stream` of
chunks for a watch or a log. Failures of the way there are `ConnectionError`, `TimeoutError` or another `OSError`;
an answer with an error status is no failure here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote, urlencode


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request: `path` is not yet percent-encoded, `query` keeps its order."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encoded_path(self) -> str:
        """The path as it stands on the wire."""
        return quote(self.path, safe="/:@!$&'()*+,;=-._~")

    def query_string(self) -> str:
        """The encoded query without its question mark."""
        return urlencode(self.query, quote_via=quote)

    def target(self) -> str:
        """Path and query as they stand on the request line."""
        query = self.query_string()
        return f"{self.encoded_path()}?{query}" if query else self.encoded_path()


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """The head of an answer and its body, chunk by chunk."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]

    async def read(self) -> bytes:
        """What is left of the body."""
        return b"".join([chunk async for chunk in self.chunks])


class Transport(Protocol):
    """A way to one API server."""

    async def send(self, request: Request, timeout: float) -> Response:
        """Send and read the whole answer within `timeout` seconds."""

    def stream(self, request: Request, timeout: float) -> AbstractAsyncContextManager[Stream]:
        """Send and read the body as it comes; `timeout` bounds only the wait for the head."""

    async def close(self) -> None:
        """Give back what is held open."""
