"""Watches as WebSockets, on a real port, with the client of aiohttp."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from api_caller import ADMIN
from kubectl_runner import Kubectl
from test_api_serving import trust

from waiting import until

MAPS = "/api/v1/namespaces/default/configmaps"
Obj = dict[str, Any]


@pytest.fixture
async def session(served: Kubectl) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=trust(served))
    async with aiohttp.ClientSession(served.server.url, connector=connector) as opened:
        yield opened


def bearer(token: str = ADMIN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def create(session: aiohttp.ClientSession, name: str) -> None:
    async with session.post(MAPS, json={"metadata": {"name": name}, "data": {"a": "1\n2"}}, headers=bearer()) as answer:
        assert answer.status == 201, await answer.text()


async def next_event(socket: aiohttp.ClientWebSocketResponse) -> Obj:
    async with asyncio.timeout(60):
        event: Obj = json.loads(await socket.receive_str())
    return event


async def test_each_event_is_a_text_message(session: aiohttp.ClientSession) -> None:
    await create(session, "first")
    async with session.ws_connect(
        f"{MAPS}?watch=true&fieldSelector=metadata.name!=kube-root-ca.crt", headers=bearer()
    ) as socket:
        assert socket.protocol is None
        first = await next_event(socket)
        await create(session, "second")
        second = await next_event(socket)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in (first, second)] == [
        ("ADDED", "first"),
        ("ADDED", "second"),
    ]


async def test_events_in_protobuf_are_binary_messages_without_length(session: aiohttp.ClientSession) -> None:
    await create(session, "first")
    headers = {**bearer(), "Accept": "application/vnd.kubernetes.protobuf"}
    async with session.ws_connect(f"{MAPS}?watch=true", headers=headers) as socket, asyncio.timeout(60):
        message = await socket.receive_bytes()
    # WatchEvent.type is its first field.
    assert message.startswith(b"\x0a\x05ADDED")


async def test_pings_are_answered_and_messages_of_the_client_ignored(session: aiohttp.ClientSession) -> None:
    async with session.ws_connect(f"{MAPS}?watch=true&resourceVersion=1", headers=bearer(), autoping=False) as socket:
        await socket.send_str("anything")
        await socket.ping(b"there?")
        async with asyncio.timeout(60):
            while (answer := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                pass
    assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"there?")


async def test_watch_ends_with_a_close_when_its_time_is_over(session: aiohttp.ClientSession) -> None:
    path = f"{MAPS}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name=none"
    async with session.ws_connect(path, headers=bearer()) as socket, asyncio.timeout(60):
        last = await socket.receive()
    assert (last.type, last.data) == (aiohttp.WSMsgType.CLOSE, 1000)


async def test_watch_is_given_up_when_the_client_leaves(served: Kubectl, session: aiohttp.ClientSession) -> None:
    async with session.ws_connect(f"{MAPS}?watch=true", headers=bearer()):
        streams = served.app.streams
        assert len(streams.watches) == 1
    await until(lambda: not streams.watches, "the watch is given up")


async def test_token_of_a_page_is_a_subprotocol(session: aiohttp.ClientSession) -> None:
    token = "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(ADMIN.encode()).decode().rstrip("=")
    async with session.ws_connect(f"{MAPS}?watch=true&resourceVersion=1", protocols=(token, "base64.binary")) as socket:
        assert socket.protocol == "base64.binary"


@pytest.mark.parametrize(
    "protocols",
    [
        ("base64url.bearer.authorization.k8s.io.d3Jvbmc", "x"),
        ("base64url.bearer.authorization.k8s.io.d3Jvbmc",),
        ("base64url.bearer.authorization.k8s.io.?", "x"),
    ],
    ids=["unknown token", "no other subprotocol", "malformed"],
)
async def test_wrong_token_of_a_page_is_refused(session: aiohttp.ClientSession, protocols: tuple[str, ...]) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await session.ws_connect(f"{MAPS}?watch=true", protocols=protocols)
    assert refused.value.status == 401


async def test_handshake_of_an_unknown_version_is_refused(session: aiohttp.ClientSession) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "7", **bearer()}
    async with session.get(f"{MAPS}?watch=true", headers=headers) as answer:
        assert answer.status == 400
        assert (await answer.json())["reason"] == "BadRequest"
