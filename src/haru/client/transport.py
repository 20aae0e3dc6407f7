"""What carries a request to an API server: the same method, path, headers and bytes, in process or over a socket.

A `Request` is built apart from being sent. A `Transport` sends it and gives back a whole `Response`, or a `Stream` of
chunks for a watch or a log. Failures of the way there are `ConnectionError`, `TimeoutError` or another `OSError`;
an answer with an error status is no failure here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from urllib.parse import quote, urlencode

import orjson

from haru.kube.errors import StatusError
from haru.kube.meta import Obj

T = TypeVar("T")
WatchEvent = tuple[str, Obj]
"""A type and an object."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request: `path` is not yet percent-encoded, `query` keeps its order."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    shared: bool = False
    """Its answer's objects may be shared with others in the process, who must not see them change."""
    encoded_here: bool = False
    """The body was encoded from an object."""

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
    obj: Obj | None = None
    """Instead of a body: the object, which others in the process share."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The head of an answer and its body, chunk by chunk."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]
    events: AsyncIterator[Sequence[WatchEvent]] | None = None
    """Instead of chunks: the events of a watch, decoded."""

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


def retry_after(request: Request, response: Response) -> float | None:
    """How long the server asks us to wait, where the request may be sent again."""
    if response.status not in (429, 503) and not (request.method == "GET" and response.status >= 500):
        return None
    if request.path.endswith("/eviction"):  # a disruption budget refuses: that is the answer, not a busy server
        return None
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def failure(response: Response, request: Request) -> StatusError:
    """The error that an answer with an error status (or a body that cannot be read) stands for."""
    try:
        decoded = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        decoded = None
    if isinstance(decoded, dict) and decoded.get("kind") == "Status" and decoded.get("status") != "Success":
        return StatusError.from_status({**decoded, "code": decoded.get("code") or response.status})
    text = response.body[:1024].decode("utf-8", "replace").strip()
    message = f"{request.method} {request.path}: the server answered {response.status}: {text or 'nothing'}"
    return StatusError(response.status if response.status >= 300 else 500, "Unknown", message)


async def before(deadline: float, parts: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield what comes; `TimeoutError` when the next does not come before `deadline` (of the loop's clock)."""
    while True:
        async with asyncio.timeout_at(deadline):
            part = await anext(parts, None)
        if part is None:
            return
        yield part


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The lines of a body that comes in chunks of any size."""
    pending: list[bytes] = []
    async for chunk in chunks:
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            pending.append(line)
            whole = b"".join(pending)
            pending.clear()
            if whole:
                yield whole
        if rest:
            pending.append(rest)
