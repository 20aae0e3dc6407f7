"""What carries a request to an API server: the same method, path, headers and bytes, in process or over a socket.

A `Request` is built apart from being sent. A `Transport` sends it and gives back a whole `Response`, or a `Stream` of
chunks for a watch or a log. Failures of the way there are `ConnectionError`, `TimeoutError` or another `OSError`;
an answer with an error status is no failure here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

import orjson

from haru.client.credentials import bearer
from haru.kube.errors import StatusError
from haru.kube.meta import Obj

T = TypeVar("T")
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]*").fullmatch
WatchEvent = tuple[str, Obj]
"""A type and an object."""
HeaderValue = str | tuple[str, ...]
"""What a header says, or each line of one that stands in several."""


def header_lines(headers: Mapping[str, HeaderValue]) -> Iterator[tuple[str, str]]:
    """Name and value of each line. Raises ValueError for a value that is several lines."""
    for name, value in headers.items():
        for text in (value,) if isinstance(value, str) else value:
            if "\n" in text or "\r" in text:
                raise ValueError(f"the header {name} has several lines")
            yield name, text


class RequestHead(dict[str, HeaderValue]):
    """Headers that many requests have alike; nobody changes them, so what is made of them is made once."""

    __slots__ = ("_authorized", "fields", "text")

    def __init__(self, headers: Mapping[str, HeaderValue]) -> None:
        super().__init__(headers)
        self.text = ""
        """The headers as HTTP/1.1 sends them, once they were."""
        self.fields = b""
        """The same for HTTP/2."""
        self._authorized: tuple[str, RequestHead] | None = None

    def authorized(self, token: str) -> RequestHead:
        """The same headers with a bearer token."""
        known = self._authorized
        if known is None or known[0] != token:
            known = self._authorized = token, RequestHead({**self, "authorization": bearer(token)})
        return known[1]


# Not frozen: a pod takes a scheduler eight of them, and a frozen one takes thrice as long to make.
@dataclass(slots=True)
class Request:
    """One HTTP request: `path` is not yet percent-encoded, `query` keeps its order. Nobody changes it."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    body: bytes = b""
    shared: bool = False
    """Its answer's objects may be shared with others in the process, who must not see them change."""
    encoded_here: bool = False
    """The body was encoded from an object."""

    def encoded_path(self) -> str:
        """The path as it stands on the wire."""
        return self.path if _PLAIN(self.path) else quote(self.path, safe="/:@!$&'()*+,;=-._~")

    def query_string(self) -> str:
        """The encoded query without its question mark."""
        return urlencode(self.query, quote_via=quote)

    def target(self) -> str:
        """Path and query as they stand on the request line."""
        query = self.query_string() if self.query else ""
        return f"{self.encoded_path()}?{query}" if query else self.encoded_path()


@dataclass(slots=True)
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


class _Deadline:
    """`asyncio.timeout_at` for many waits one after the other, with one timer for all of them."""

    def __init__(self, at: float) -> None:
        self._waiting: asyncio.Task[Any] | None = None
        self._late = False
        self._timer = asyncio.get_running_loop().call_at(at, self._expire)

    def _expire(self) -> None:
        self._late = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def wait_for(self, work: Awaitable[T]) -> T:
        """Await some work; cancel it and raise TimeoutError when the time has come."""
        task = asyncio.current_task()
        assert task is not None
        cancelling, self._waiting = task.cancelling(), task
        try:
            return await work
        except asyncio.CancelledError:
            if self._late and task.uncancel() <= cancelling:
                raise TimeoutError from None
            raise  # somebody else wants the task to end
        finally:
            self._waiting = None

    def close(self) -> None:
        """Let go of the timer."""
        self._timer.cancel()

    def passed(self) -> bool:
        """Tell whether the time has come."""
        return self._late


async def before(deadline: float, parts: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield what comes; `TimeoutError` when the next does not come before `deadline` (of the loop's clock)."""
    # A timer for each part would cost a watch as much as decoding its events.
    limit = _Deadline(deadline)
    try:
        while (part := await limit.wait_for(anext(parts, None))) is not None:
            yield part
            if limit.passed():
                raise TimeoutError
    finally:
        limit.close()


class LineSplitter:
    """Put lines together that come in chunks of any size."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> Sequence[bytes]:
        """Return the lines that a chunk completes, but for empty ones."""
        first, *more = chunk.split(b"\n")
        if not more:
            self._pending.append(first)
            return ()
        if self._pending:
            first = b"".join([*self._pending, first])
            self._pending.clear()
        rest = more.pop()
        if rest:
            self._pending.append(rest)
        return [line for line in (first, *more) if line]
