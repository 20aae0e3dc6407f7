"""No request may cost without bound: size, depth, and time, of heads as of bodies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from api_caller import MAPS, Caller, Clock, make_config

from haru import serving
from haru.apiserver import server
from haru.apiserver.config import FlowControl, UserInfo
from haru.apiserver.request.http import BODY_LIMIT
from haru.apiserver.serving import HttpServer
from haru.event_loop import SharedTimeout
from haru.storage import SqliteStore

Obj = dict[str, Any]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture
async def port(api: Caller) -> AsyncIterator[int]:
    """A plain listener of the server."""
    listener = HttpServer(api.app)
    await listener.start()
    yield listener.port
    await listener.stop()


async def answer_to(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """What comes back for bytes that are sent in parts, until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        async with asyncio.timeout(30):
            return await reader.read()
    except (ConnectionResetError, BrokenPipeError):
        return b""
    finally:
        writer.close()


HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


async def test_large_request_head_is_accepted_in_any_pieces(port: int) -> None:
    large = b"X-Large: " + b"y" * 500_000 + b"\r\n"
    assert (await answer_to(port, HEAD + large + b"\r\n")).startswith(b"HTTP/1.1 200")
    assert (await answer_to(port, HEAD[:10], HEAD[10:], b"\r\n", pause=0.01)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("method", [b"FOO", b"get", b"X-Y"])
async def test_method_that_http_does_not_know_is_not_allowed(port: int, method: bytes) -> None:
    head = b"%b /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n" % method
    known = head.replace(method, b"GET", 1)
    answer = await answer_to(port, head + b"\r\n", known + b"Connection: close\r\n\r\n", pause=0.05)
    assert answer.startswith(b"HTTP/1.1 405") and b"MethodNotAllowed" in answer
    assert answer.count(b"HTTP/1.1 200") == 1  # the connection goes on


@pytest.mark.parametrize("kind", ["one header", "many headers", "the path"])
async def test_endless_request_head_is_refused(port: int, kind: str) -> None:
    parts = {
        "one header": [HEAD, b"X: ", *[b"y" * 100_000] * 30],
        "many headers": [HEAD, *[b"X-Y: z\r\n" * 10_000] * 40],
        "the path": [b"GET /", *[b"y" * 100_000] * 30],
    }[kind]
    answer = await answer_to(port, *parts)
    # The rest of what was sent may reset the connection before the answer is read.
    assert answer == b"" or answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))


async def test_missing_request_head_times_out(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.1)
    assert await answer_to(port) == b""
    assert await answer_to(port, HEAD) == b""


async def test_missing_second_request_times_out(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(30):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(2) == b"ok"
        monkeypatch.setattr(serving, "HEAD_SECONDS", 0.05)
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        assert await reader.read() == b""
    writer.close()


async def test_missing_request_body_times_out(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.app._limits, "wait_for", SharedTimeout(0.05).wait_for)
    sent: list[Obj] = []

    async def receive() -> Obj:
        await asyncio.sleep(60)
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = api._scope("POST", MAPS, {"content-type": "application/json"})
    await asyncio.wait_for(api.app(scope, receive, send), 30)
    assert sent[0]["status"] == 504
    assert json.loads(sent[1]["body"])["reason"] == "Timeout"


@pytest.mark.parametrize("chunks", [1, 4])
async def test_body_is_refused_at_its_limit(api: Caller, chunks: int) -> None:
    """Also one that does not say how long it is: no more is read than has to be."""
    read = 0
    sent: list[Obj] = []

    async def receive() -> Obj:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b" " * (BODY_LIMIT // chunks + 1), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    await api.app(api._scope("POST", MAPS, {"content-type": "application/json"}), receive, send)
    assert sent[0]["status"] == 413 and read <= chunks + 1


def _laughs(count: int) -> bytes:
    """Lists that each hold the one before twice: small to send, large when unfolded."""
    lines = [b"k0: &k0 [x]"]
    lines += [b"k%d: &k%d [*k%d, *k%d]" % (number, number, number - 1, number - 1) for number in range(1, count)]
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("type", "body"),
    [
        ("application/json", b'{"a":' * 5000 + b"1" + b"}" * 5000),
        ("application/yaml", b"{a: " * 5000 + b"1" + b"}" * 5000),
        ("application/yaml", _laughs(40)),
        ("application/json", b"[" * 100_000),
    ],
    ids=["json", "yaml", "aliases", "cut short"],
)
async def test_body_depth_and_alias_growth_are_limited(api: Caller, type: str, body: bytes) -> None:
    started = time.process_time()
    answer = await api("POST", MAPS, body, type=type)
    assert answer.status == 400, answer.body[:300]
    assert time.process_time() - started < 20


async def test_requests_in_flight_are_limited(tmp_path: Path) -> None:
    """Writers that wait for their bodies take their places; those that are too many are told to come back."""
    store = SqliteStore(":memory:")
    await store.start()
    clock = Clock()
    app = server.ApiServer(make_config(store, clock, flow_control=FlowControl(max_writes_in_flight=2)))
    await app.start()
    api, hold = Caller(app, clock), asyncio.Event()

    async def receive() -> Obj:
        await hold.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    async def post() -> None:
        await app(api._scope("POST", MAPS, {"content-type": "application/json"}), receive, send)

    waiting = [asyncio.create_task(post()) for _ in range(2)]
    for _ in range(3):
        await asyncio.sleep(0)
    answer = await api("POST", MAPS, {"metadata": {"name": "a"}})
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert (await api("GET", MAPS)).status == 200
    # Heartbeats of nodes have places of their own, what else nodes write has none.
    lease = {"metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {"holderIdentity": "n1"}}
    app.admit("node", UserInfo("system:node:n1", ("system:nodes",)))
    node, renewed = api.as_("node"), {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    assert (await node("POST", LEASES, lease)).status == 201
    assert (await node("PATCH", f"{LEASES}/n1", renewed, type="application/merge-patch+json")).status == 200
    assert (await api("PATCH", f"{LEASES}/n1", renewed, type="application/merge-patch+json")).status == 429
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    assert (await node("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)).status == 429
    hold.set()
    await asyncio.gather(*waiting)
    assert (await api("POST", MAPS, {"metadata": {"name": "a"}})).status == 201
    await app.stop()
    await store.stop()
