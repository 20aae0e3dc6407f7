"""Requests and responses between the ASGI server and the handlers.

The body is read only where a handler wants one; a response is bytes, or a stream that writes itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode

import orjson

from haru.apiserver.auth.user import ANONYMOUS, UserInfo
from haru.kube.errors import PageNotFound, StatusError, bad_request_error, too_large_error
from haru.kube.meta import Obj

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_LIMIT = 3 * 1024 * 1024
JSON = "application/json"
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
"""Keeps browsers from taking an answer for anything but what it says of itself."""

TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_INTEGER = re.compile(r"[-+]?[0-9]+").fullmatch
_DIGITS = 20
_AUDIT_ID_BYTES = 64
_IDS_AT_ONCE = 64
_PRINTABLE = re.compile(rb"[!-~]+").fullmatch


class ClientGone(Exception):
    """The client has closed the connection while its request was read."""


class Request:
    """One HTTP request."""

    __slots__ = (
        "_audit_id",
        "_query",
        "_receive",
        "_send",
        "annotations",
        "headers",
        "is_turned_away",
        "method",
        "path",
        "read",
        "scope",
        "trail",
        "user",
        "warnings",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.user: UserInfo = ANONYMOUS
        self.warnings: list[str] = []
        self.is_turned_away = False
        """Whether it failed before anybody took it up: for the right to it, or to speak for another."""
        self.annotations: dict[str, str] = {}
        """What admission notes for the audit log."""
        self._audit_id = ""
        self.trail: AuditTrail | None = None
        """Writes the audit events of the request; None: the policy records none."""
        self.read = b""
        """The body, once it was read."""
        self._receive = receive
        self._send = send
        self._query: Mapping[str, list[str]] | None = None

    @property
    def audit_id(self) -> str:
        """The id by which the audit log and the answer name the request."""
        if not self._audit_id:
            self._audit_id = _audit_id(self.headers.get(b"audit-id"))
        return self._audit_id

    @property
    def receive(self) -> Receive:
        """The ASGI channel, for streams that watch for `http.disconnect`."""
        return self._receive

    @property
    def query(self) -> Mapping[str, list[str]]:
        """The query parameters."""
        if self._query is None:
            raw = self.scope.get("query_string") or b""
            self._query = parse_qs(raw.decode("latin-1"), keep_blank_values=True) if raw else {}
        return self._query

    def set_query(self, parameters: Iterable[tuple[str, str]]) -> None:
        """Go on with other query parameters than the client's."""
        self.scope["query_string"] = urlencode(list(parameters)).encode("latin-1")
        self._query = None

    def param(self, name: str) -> str:
        """The first value of a query parameter; empty when it is absent."""
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """A boolean parameter: `0` and `false` are false, any other value is true, also an empty one."""
        values = self.query.get(name)
        return values is not None and values[0] != "0" and values[0].lower() != "false"

    def number(self, name: str) -> int:
        """An integer parameter, 0 when absent."""
        values = self.query.get(name)
        if values is None:
            return 0
        value = values[0]
        if not _INTEGER(value):
            raise bad_request_error(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        if len(value) > _DIGITS or not -(1 << 63) <= int(value) < 1 << 63:
            raise bad_request_error(f'strconv.ParseInt: parsing "{value[:80]}": value out of range')
        return int(value)

    def header(self, name: bytes) -> str:
        """A header's value; `name` in lower case."""
        return self.headers.get(name, b"").decode("latin-1")

    def judged(self, allowed: bool, reason: str) -> None:
        """Note what the authorizer said: for the answer, and for the audit log."""
        self.is_turned_away = not allowed
        if self.trail is not None:
            self.annotations["authorization.k8s.io/decision"] = "allow" if allowed else "forbid"
            self.annotations["authorization.k8s.io/reason"] = reason

    async def body(self) -> bytes:
        """The whole body, at most 3 MiB."""
        declared = self.headers.get(b"content-length")
        if declared and declared.isdigit() and int(declared) > BODY_LIMIT:
            raise body_too_large()
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body = bytes(message.get("body") or b"")
            if len(body) > BODY_LIMIT:
                raise body_too_large()
            self.read = body
            return body
        chunks = []
        size = 0
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body") or b""
            size += len(chunk)
            if size > BODY_LIMIT:
                raise body_too_large()
            chunks.append(chunk)
            if not message.get("more_body"):
                self.read = b"".join(chunks)
                return self.read
            message = await self._receive()

    async def send(self, message: Message) -> None:
        """The ASGI channel to the client."""
        await self._send(message)


class RandomIds:
    """UUIDv4s. Randomness is fetched for many at once: a system call for each would be dear."""

    def __init__(self) -> None:
        self._ready: list[str] = []

    def take(self) -> str:
        """One that nobody had yet; any thread may ask."""
        try:
            return self._ready.pop()
        except IndexError:
            random = os.urandom(16 * _IDS_AT_ONCE)
            self._ready.extend([uuid4_of(random[begin : begin + 16]) for begin in range(16, len(random), 16)])
            return uuid4_of(random[:16])


def uuid4_of(random: bytes) -> str:
    """The UUIDv4 that 16 random bytes make; `uuid.UUID` takes four times as long."""
    text = random.hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{'89ab'[random[8] >> 4 & 3]}{text[17:20]}-{text[20:]}"


_ids = RandomIds()


def _audit_id(given: bytes | None) -> str:
    """The id that the client gives the request, or a random one."""
    if given and len(given) <= _AUDIT_ID_BYTES and _PRINTABLE(given):
        return given.decode("ascii")
    return _ids.take()


def body_too_large() -> StatusError:
    """413 for a body over the limit."""
    return too_large_error(f"limit is {BODY_LIMIT}")


class AuditTrail(Protocol):
    """Write the audit events of one request; `haru.apiserver.audit` implements it."""

    panicked: bool
    """The server failed with an unexpected error; the last event has the stage Panic."""

    def impersonated(self, user: UserInfo, constraint: str) -> None:
        """Note the user that the caller impersonates, and the verb that allows it for some requests alone."""

    async def received(self) -> bool:
        """Write the stage RequestReceived; False: the server must refuse the request (mode `blocking-strict`)."""

    async def started(self, request: Request, response: Response) -> None:
        """Write the stage ResponseStarted of a stream."""

    async def complete(self, request: Request, response: Response) -> None:
        """Write the stage ResponseComplete, or Panic."""


class MadePieces:
    """Pieces of a body that are made anew at each pass over them: nobody keeps them, and nobody knows their length."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Iterator[bytes]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[bytes]:
        return self._make()


@dataclass(slots=True)
class Response:
    """A whole answer. `stream` takes over after the head has been sent, in place of `body`.

    A long body may be `pieces` that lie ready; then `body` is empty.
    """

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    stream: Callable[[Request], Awaitable[None]] | None = None
    tunnel: Callable[[Request], Awaitable[None]] | None = None
    """Takes the whole connection over, head and all (status 101)."""
    passed_on: bool = False
    """It is another server's answer: the headers are all there, the body as it was sent."""
    pieces: Sequence[bytes] | MadePieces = ()
    obj: Obj | None = None
    """Instead of a body: the object that is encoded in it, for a client in this process which takes that."""
    gzipped: Callable[[], Awaitable[Sequence[bytes]]] | None = None
    """The pieces compressed, where that costs less than to compress them now."""

    def whole(self) -> bytes:
        """The body in one."""
        if self.obj is not None:
            return orjson.dumps(self.obj)
        return b"".join(self.pieces) if self.pieces else self.body


def json_response(obj: Any, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> Response:
    """An answer of a JSON value."""
    return Response(status, orjson.dumps(obj), JSON, list(headers))


def text_response(text: str, status: int = 200) -> Response:
    """An answer of plain text."""
    return Response(status, text.encode(), "text/plain; charset=utf-8", [NO_SNIFFING])


def error_response(error: StatusError) -> Response:
    """The Status object of a failure."""
    if isinstance(error, PageNotFound):
        return text_response(f"{error.message}\n", error.code)
    response = json_response(error.to_status(), error.code)
    retry = error.details.get("retryAfterSeconds")
    if retry:
        response.headers.append((b"retry-after", str(retry).encode()))
    return response


def success_status(details: Obj) -> Obj:
    """The Status object that deletions and bindings answer with."""
    status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    return status
