"""The in-process transport: calls an ASGI application as a server would.

No object is shared but where the caller says that it changes none (`Request.shared`): the object of an answer or of an
event is then the same for all of them, and none of them decodes it.

A whole answer is made in the caller's task: whoever leaves before it is there cancels the application where it waits.
A streamed answer goes through a bounded queue, so a reader that does not read holds the writer back as a full socket
does. Leaving the stream tells the application `http.disconnect`; one that does not end by itself is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

import orjson

from haru.client.transport import Request, Response, Stream, WatchEvent, header_lines
from haru.event_loop import SharedTimeout, cancelled
from haru.serving import ANSWER, ENCODED_HERE, EVENTS, OBJECT

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

_QUEUED_CHUNKS = 64
_GRACE_SECONDS = 1.0
_KEPT_TIMEOUTS = 16
_TURN_CALLS = 64


class _Sent:
    """What an application receives of a request: its body, and that the client has gone once it has."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._body_sent = False
        self._gone = asyncio.Event()

    async def _receive(self) -> Message:
        if not self._body_sent:
            self._body_sent = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}


class _Exchange(_Sent):
    """One request for a stream: the application runs as a task, its messages arrive in a queue."""

    def __init__(self, app: AsgiApp, request: Request) -> None:
        super().__init__(request)
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(_QUEUED_CHUNKS)
        self._task = asyncio.create_task(self._run(app), name=f"asgi {request.method} {request.path}")

    async def _run(self, app: AsgiApp) -> None:
        try:
            scope = _scope(self._request)
            if self._request.shared:
                scope["extensions"] = {EVENTS: self._take}
            await app(scope, self._receive, self._send)
        finally:
            if not self._gone.is_set():
                await self._messages.put(None)

    async def _take(self, events: Sequence[WatchEvent]) -> None:
        await self._send({"type": EVENTS, "events": events})

    async def _send(self, message: Message) -> None:
        if not self._gone.is_set():
            await self._messages.put(message)

    async def head(self) -> tuple[int, dict[str, str]]:
        message = await self._next()
        if message is None or message["type"] != "http.response.start":
            raise ConnectionResetError(f"{self._request.method} {self._request.path}: ended without an answer")
        return int(message["status"]), _decoded(message["headers"])

    async def chunks(self) -> AsyncIterator[bytes]:
        while (message := await self._next()) is not None:
            if message["type"] != "http.response.body":
                continue
            if body := message.get("body"):
                yield bytes(body)
            if not message.get("more_body"):
                return
        raise ConnectionResetError(f"{self._request.method} {self._request.path}: the answer ended early")

    async def events(self) -> AsyncIterator[Sequence[WatchEvent]]:
        """The events of a watch; decoded here where the application sends bytes."""
        rest = b""
        while (message := await self._next()) is not None:
            if message["type"] == EVENTS:
                yield message["events"]
                continue
            *lines, rest = (rest + bytes(message.get("body") or b"")).split(b"\n")
            if lines:
                decoded = [orjson.loads(line) for line in lines if line]
                yield [(event["type"], event["object"]) for event in decoded]
            if not message.get("more_body"):
                return
        raise ConnectionResetError(f"{self._request.method} {self._request.path}: the answer ended early")

    async def _next(self) -> Message | None:
        message = await self._messages.get()
        if message is None and self._task.done() and not self._task.cancelled():
            failure = self._task.exception()
            if failure is not None:
                raise ConnectionResetError(f"{self._request.method} {self._request.path}: {failure!r}") from failure
        return message

    async def close(self) -> None:
        self._gone.set()
        while not self._messages.empty():  # whoever waits to write must get through to see that nobody reads
            self._messages.get_nowait()
        if not self._task.done():
            await asyncio.wait([self._task], timeout=_GRACE_SECONDS)
        if not self._task.done():
            await cancelled(self._task)
        if not self._task.cancelled():
            self._task.exception()


class _Call(_Sent):
    """One request for a whole answer: the application runs in the caller's task, and its messages make the answer."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._status, self._headers = 0, {}  # type: int, dict[str, str]
        self._parts: list[bytes] = []
        self._answered: Response | None = None

    async def run(self, app: AsgiApp) -> Response:
        """Run the application to its end; its answer."""
        request = self._request
        scope = _scope(request)
        extensions: dict[str, Any] = {ANSWER: self._answer}
        if request.shared:
            extensions[OBJECT] = self._answer_object
        if request.encoded_here:
            extensions[ENCODED_HERE] = True
        scope["extensions"] = extensions
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:
            if self._answered is None:
                raise ConnectionResetError(f"{request.method} {request.path}: {error!r}") from error
        if self._answered is None:
            raise ConnectionResetError(f"{request.method} {request.path}: ended without an answer")
        return self._answered

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = int(message["status"]), _decoded(message["headers"])
            return
        self._parts.append(bytes(message.get("body") or b""))
        if not message.get("more_body"):
            self._answered = self._answered or Response(self._status, self._headers, b"".join(self._parts))

    def _answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        self._answered = Response(status, _decoded(headers), body)
        return True

    def _answer_object(self, status: int, headers: Iterable[tuple[bytes, bytes]], obj: dict[str, Any]) -> None:
        self._answered = Response(status, _decoded(headers), b"", obj)


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {bytes(name).decode("latin-1").lower(): bytes(value).decode("latin-1") for name, value in headers}


@lru_cache(maxsize=4096)
def _encoded(name: str, value: str) -> tuple[bytes, bytes]:
    return name.lower().encode("latin-1"), value.encode("latin-1")


def _scope(request: Request) -> dict[str, Any]:
    headers = [_encoded(name, value) for name, value in header_lines(request.headers)]
    headers.append((b"host", b"haru.local"))
    if request.body:
        headers.append((b"content-length", str(len(request.body)).encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "https",
        "path": request.path,
        "raw_path": request.encoded_path().encode("ascii"),
        "root_path": "",
        "query_string": request.query_string().encode("ascii"),
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": ("haru.local", 443),
    }


class AsgiTransport:
    """A `Transport` to an ASGI application in this process."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._timeouts: dict[float, SharedTimeout] = {}
        self._calls = 0

    async def send(self, request: Request, timeout: float) -> Response:
        """Send and read the whole answer within `timeout` seconds."""
        self._calls += 1
        if not self._calls % _TURN_CALLS:
            await asyncio.sleep(0)  # calls that are answered at once would never let others run
        return await self._within(timeout).wait_for(_Call(request).run(self._app))

    def _within(self, seconds: float) -> SharedTimeout:
        found = self._timeouts.get(seconds)
        if found is None:
            found = SharedTimeout(seconds)
            if len(self._timeouts) < _KEPT_TIMEOUTS:
                self._timeouts[seconds] = found
        return found

    @asynccontextmanager
    async def stream(self, request: Request, timeout: float) -> AsyncIterator[Stream]:
        """Send and read the body as it comes."""
        exchange = _Exchange(self._app, request)
        try:
            async with asyncio.timeout(timeout):
                status, headers = await exchange.head()
            is_shared = request.shared and status == 200
            yield Stream(status, headers, exchange.chunks(), exchange.events() if is_shared else None)
        finally:
            await exchange.close()

    async def close(self) -> None:
        """Nothing is held open between requests."""
