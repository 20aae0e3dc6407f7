"""Responses that are written at once, without ASGI messages: framing, order, and closed connections."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from left_over import left_to_a_collection

from haru import serving
from haru.apiserver.encoding.response_writer import send_whole
from haru.apiserver.request.http import Request, Response
from haru.serving import ANSWER, connection_class, listening_socket, server_class, settings

BODIES = {"/small": b"a" * 10, "/empty": b"", "/large": b"b" * 100_000}
REQUEST = b"%b %b HTTP/1.1\r\nhost: h\r\n\r\n"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server that answers by paths, the slow one last."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/large":
            await asyncio.sleep(0.02)
        BODIES["/client"] = scope["client"][0].encode()
        headers = [(b"x-injected", b"a\r\nset-cookie: b")] if scope["path"] == "/injected" else []
        request = Request(scope, receive, send)
        await send_whole(request, Response(201, BODIES.get(scope["path"], b""), "text/plain", headers))

    listener = listening_socket("127.0.0.1", 0, "--port")
    server = server_class()(settings(app, http=connection_class()))
    serving = asyncio.create_task(server.serve([listener]))
    yield listener.getsockname()[1]
    server.end()
    await serving


async def said(port: int, requests: bytes) -> bytes:
    """All that comes until the server closes; the last request asks for that."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(requests)
    async with asyncio.timeout(30):
        found = await reader.read(-1)
    writer.close()
    return found


def answers(found: bytes, methods: Sequence[bytes]) -> list[tuple[bytes, dict[bytes, bytes], bytes]]:
    """Status line, headers and body of each answer, as their lengths say."""
    parts = []
    for method in methods:
        head, _, found = found.partition(b"\r\n\r\n")
        line, *lines = head.split(b"\r\n")
        headers = dict(each.split(b": ", 1) for each in lines)
        size = 0 if method == b"HEAD" else int(headers[b"content-length"])
        parts.append((line, headers, found[:size]))
        found = found[size:]
    assert found == b""
    return parts


async def test_pipelined_responses_keep_request_order(port: int) -> None:
    asked = [(b"GET", b"/large"), (b"GET", b"/small"), (b"HEAD", b"/large"), (b"GET", b"/empty"), (b"POST", b"/small")]
    requests = b"".join(REQUEST % each for each in asked)
    found = await said(port, requests + b"GET /small HTTP/1.0\r\n\r\n")
    parts = answers(found, [*(method for method, _ in asked), b"GET"])
    assert {line for line, _, _ in parts} == {b"HTTP/1.1 201 Created"}
    assert [body for _, _, body in parts] == [
        BODIES["/large"], BODIES["/small"], b"", BODIES["/empty"], BODIES["/small"], BODIES["/small"]
    ]  # fmt: skip
    assert parts[2][1][b"content-length"] == b"100000"
    assert all(headers[b"content-type"] == b"text/plain" and b"date" in headers for _, headers, _ in parts)
    assert [headers.get(b"connection") for _, headers, _ in parts] == [None] * 5 + [b"close"]


async def test_answered_requests_of_a_connection_that_stays_need_no_garbage_collection(port: int) -> None:
    def kept() -> int:
        return sum(type(each).__name__ == "RequestResponseCycle" for each in gc.get_objects())

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    gc.collect()
    gc.disable()
    try:
        before = kept()
        for method, path in ((b"GET", b"/small"), (b"HEAD", b"/large")) * 10:
            writer.write(REQUEST % (method, path))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(10 if method == b"GET" else 0)
            assert head.startswith(b"HTTP/1.1 201 ")
        assert kept() - before <= 2
    finally:
        gc.enable()
        writer.close()


async def test_connection_that_is_closed_needs_no_garbage_collection(port: int) -> None:
    async def visit(path: bytes, answered: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST % (b"GET", path))
        if answered:
            await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    await visit(b"/small", True)
    with left_to_a_collection() as garbage:
        for path, answered in ((b"/small", True), (b"/small", True), (b"/large", False)):
            await visit(path, answered)
        await asyncio.sleep(0.1)
    assert [kind for kind in garbage if kind.startswith(("haru.", "uvicorn."))] == []


async def test_connection_close_is_honoured(port: int) -> None:
    found = await said(port, b"GET /small HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
    ((_, headers, body),) = answers(found, [b"GET"])
    assert (headers[b"connection"], body) == (b"close", BODIES["/small"])


async def test_forwarded_header_does_not_change_client_address(port: int) -> None:
    head = b"GET /client HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 9.9.9.9\r\nconnection: close\r\n\r\n"
    found = await said(port, head)
    assert answers(found, [b"GET"])[0][2] == b"127.0.0.1"


async def test_header_with_line_break_gives_500(port: int) -> None:
    found = await said(port, b"GET /injected HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 500 ") and b"set-cookie" not in found


@pytest.mark.parametrize("why", ["response_started", "disconnected", "write_paused"])
async def test_fallback_sends_asgi_messages(why: str) -> None:
    """Who has gone, or has yet to read, is seen to by `send`."""
    cycle = SimpleNamespace(response_started=False, disconnected=False, flow=SimpleNamespace(write_paused=False))
    setattr(cycle.flow if why == "write_paused" else cycle, why, True)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    scope = {
        "method": "GET",
        "path": "/",
        "headers": [],
        "extensions": {ANSWER: partial(serving._answer, lambda: cycle)},
    }
    await send_whole(Request(scope, receive, send), Response(200, b"abc"))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[1]["body"] == b"abc"
