"""Requests and answers of small HTTPS servers over ASGI."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, quote

import orjson

from haru.kube.errors import StatusError
from haru.upgrade_proxy import ByteStream

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
METRICS = "text/plain; version=0.0.4; charset=utf-8"
TEXT = "text/plain; charset=utf-8"


class HttpError(Exception):
    """An answer that is an error: its status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class Request:
    """One request; `path` is decoded and clean."""

    scope: MutableMapping[str, Any]
    receive: Receive
    query: dict[str, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.query = parse_qs(self.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)

    @property
    def method(self) -> str:
        """The method as it was sent."""
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """The path, decoded."""
        return str(self.scope["path"])

    @property
    def parts(self) -> list[str]:
        """The path's parts, without a slash at its end."""
        return self.path.strip("/").split("/")

    def header(self, name: bytes) -> str | None:
        """A header's value; `name` in lower case."""
        return next((value.decode("latin-1") for key, value in self.scope["headers"] if key == name), None)

    def param(self, name: str) -> str:
        """The first value of a query parameter; empty when it is absent."""
        return (self.query.get(name) or [""])[0]

    def flag(self, name: str) -> bool:
        """A boolean parameter. 400 for what is none."""
        value = self.param(name)
        if value in ("1", "t", "T", "true", "TRUE", "True"):
            return True
        if value in ("", "0", "f", "F", "false", "FALSE", "False"):
            return False
        raise HttpError(400, f'{name}: Invalid value: "{value}": write true or false')

    def whole(self, name: str) -> int | None:
        """A whole number, or None where it is absent. 400 for what is none."""
        value = self.param(name)
        if not value:
            return None
        try:
            number = int(value) if len(value) <= 20 else None
        except ValueError:
            number = None
        if number is None:
            raise HttpError(400, f'{name}: Invalid value: "{value[:40]}": write a whole number')
        return number


@dataclass(slots=True)
class Answer:
    """A whole answer, one that comes in `pieces`, or a connection that was taken over by `upgraded`."""

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    pieces: AsyncGenerator[bytes, None] | None = None
    upgraded: Callable[[Callable[[], ByteStream]], Awaitable[None]] | None = None


def text_answer(text: str, status: int = 200, content_type: str = TEXT) -> Answer:
    """Plain text."""
    return Answer(status, text.encode(), content_type, [(b"x-content-type-options", b"nosniff")])


def json_answer(obj: Any) -> Answer:
    """A JSON value."""
    return Answer(200, orjson.dumps(obj), "application/json")


def status_answer(error: StatusError | HttpError) -> Answer:
    """Return the answer of an API server to a request that fails: a Status."""
    if isinstance(error, HttpError):
        error = StatusError(error.status, "BadRequest", str(error))
    headers = []
    if (seconds := error.details.get("retryAfterSeconds")) is not None:
        headers.append((b"retry-after", str(seconds).encode()))
    return Answer(error.code, orjson.dumps(error.to_status()), "application/json", headers)


def redirect(path: str, query: bytes) -> Answer:
    """To the clean form of a path."""
    where = quote(path, safe="/:@!$&'()*+,;=-._~").encode("ascii") + (b"?" + query if query else b"")
    return Answer(301, b"", TEXT, [(b"location", where)])


def date_header() -> tuple[bytes, bytes]:
    """The time of an answer."""
    return b"date", formatdate(usegmt=True).encode("ascii")


async def send_answer(answer: Answer, send: Send, method: str) -> None:
    """Send what is no stream."""
    headers = [(b"content-type", answer.content_type.encode("latin-1")), date_header(), *answer.headers]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body})


def cleaned(path: str) -> str:
    """The path without `.`, `..` and doubled slashes, from the root on; a slash at its end stays.

    Only a path that is its own clean form is authorized and answered: both look at the same text.
    """
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    ends = "/" if kept and path.endswith(("/", "/.", "/..")) else ""
    return "/" + "/".join(kept) + ends
