"""The server that random requests are sent to: in this process, with one object of most kinds, often made anew."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from api_caller import ADMIN, Caller, Clock, make_config
from custom_objects import TRAININGS, define, training
from request_fuzzer import FuzzedRequest
from sample_objects import SAMPLES, path_of

from haru.apiserver.server import ApiServer
from haru.kube.kinds import by_kind
from haru.storage import SqliteStore
from protobuf_wire import fields

PATIENCE_SECONDS = 5
PROCESSOR_SECONDS = 10
Whole = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers, body."""


class Target:
    """A server with one object of most kinds, replaced after a number of requests."""

    def __init__(self, requests_a_server: int = 100) -> None:
        self.runner = asyncio.Runner()
        self.app: ApiServer
        self.store: SqliteStore | None = None
        self.requests_a_server = requests_a_server
        self.left = 0

    def renew(self) -> None:
        """Begin with a fresh server."""
        self.runner.run(self._fresh())

    async def _fresh(self) -> None:
        await self._end()
        self.store, clock = SqliteStore(":memory:"), Clock()
        await self.store.start()
        self.app = ApiServer(make_config(self.store, clock))
        await self.app.start()
        caller = Caller(self.app, clock)
        for obj in SAMPLES:
            kind = by_kind(obj["apiVersion"], obj["kind"])
            assert kind is not None
            if not kind.virtual:
                await caller.create(path_of(obj), obj)
        await define(caller)
        await caller.create(TRAININGS, training())
        self.left = self.requests_a_server

    async def _end(self) -> None:
        if self.store is not None:
            await self.app.stop()
            await self.store.stop()
            self.store = None

    def close(self) -> None:
        """Stop the server."""
        self.runner.run(self._end())
        self.runner.close()

    def send(self, request: FuzzedRequest) -> Whole:
        """The answer to one request; TimeoutError where none comes."""
        if not self.left:
            self.renew()
        self.left -= 1
        with bounded_processor_time(repr(request)[:2000]):
            return self.runner.run(asyncio.wait_for(self._send(request), PATIENCE_SECONDS))

    async def _send(self, request: FuzzedRequest) -> Whole:
        sent: list[Any] = []
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.sleep(0)
                return {"type": "http.disconnect"}
            asked = True
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [("authorization", f"Bearer {ADMIN}"), *request.headers]
        scope = {
            "type": "http",
            "method": request.method,
            "path": request.path,
            "query_string": request.query.encode("latin-1", "replace"),
            "headers": [(key.encode(), value.encode("latin-1")) for key, value in headers],
        }
        await self.app(scope, receive, send)
        return sent[0]["status"], sent[0]["headers"], b"".join(m.get("body", b"") for m in sent[1:])


@contextmanager
def bounded_processor_time(what: str) -> Iterator[None]:
    """AssertionError where what is done here takes too much of the processor: a loop without end never yields."""

    def over(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"more than {PROCESSOR_SECONDS} s of processor time: {what}")

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


_FAILURE_OF_1_36 = re.compile(
    b"Internal error occurred: .*(cannot be handled as a|strict decoding error: |a patch may not make)"
    b"|failed to create typed patch object ",
    re.DOTALL,
)
"""What is 500 in 1.36, too: a JSON patch of a mutating policy that leaves no object of its kind; apply of what is not
declared so, which has no reason either."""


def check_answer(request: FuzzedRequest, answer: Whole) -> None:
    """No failure of the server's own, headers that are headers, every refusal a whole Status, and all can be read."""
    status, headers, body = answer
    assert status < 500 or status == 504 or _FAILURE_OF_1_36.search(body), (request, body)
    assert not any(b"\n" in value or b"\r" in value for _, value in headers), request
    if request.method == "HEAD":
        return
    named = dict(headers)
    is_protobuf = named.get(b"content-type") == b"application/vnd.kubernetes.protobuf"
    if named.get(b"content-type", b"").startswith(b"text/plain") and status == 404:
        assert body == b"404 page not found\n", request  # a path of no API, as in 1.36
        return
    if status >= 400:
        told = failure_in(named[b"content-type"], body)
        assert (told["kind"], told["status"], told["code"]) == ("Status", "Failure", status), request
        assert told["message"], request
        assert told.get("reason") or _FAILURE_OF_1_36.search(body), request
        return
    streams = "watch" in request.query or "/watch" in request.path
    if body and not streams and named[b"content-type"] == b"application/json" and b"content-encoding" not in named:
        json.loads(body)
    if is_protobuf:
        assert enveloped(body)[1], request


def failure_in(content_type: bytes, body: bytes) -> dict[str, Any]:
    """What a refusal tells, in the form that it says it has."""
    if content_type == b"application/vnd.kubernetes.protobuf":
        return status_in_protobuf(body)
    told: dict[str, Any] = yaml.safe_load(body) if content_type == b"application/yaml" else json.loads(body)
    return told


def enveloped(body: bytes) -> tuple[bytes, bytes]:
    """The kind, and what is in an envelope of protobuf."""
    assert body.startswith(b"k8s\0")
    outer = dict(fields(body[4:]))
    assert isinstance(outer[1], bytes) and isinstance(outer[2], bytes)
    kind = dict(fields(outer[1]))[2]
    list(fields(outer[2]))
    assert isinstance(kind, bytes)
    return kind, outer[2]


def status_in_protobuf(body: bytes) -> dict[str, Any]:
    """What a Status tells."""
    kind, inside = enveloped(body)
    told = dict(fields(inside))
    names = {2: "status", 3: "message", 4: "reason"}
    # What is empty is not written, such as the reason of the one refusal that has none.
    texts = {
        name: value.decode() for number, name in names.items() if isinstance(value := told.get(number, b""), bytes)
    }
    return {"kind": kind.decode(), "code": told[6], **texts}


def resident_mebibytes(process: int | str = "self") -> float:
    """The memory that a process has in use, by the kernel's own count."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
