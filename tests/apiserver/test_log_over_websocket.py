"""Logs as WebSockets, on a real port, with the client of aiohttp."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from api_caller import ADMIN
from kubectl_runner import Kubectl
from test_api_serving import trust

PODS = "/api/v1/namespaces/default/pods"
AS_ADMIN = {"Authorization": f"Bearer {ADMIN}"}


@pytest.fixture
async def session(served: Kubectl) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=trust(served))
    async with aiohttp.ClientSession(served.server.url, connector=connector, headers=AS_ADMIN) as opened:
        yield opened


async def printing_pod(session: aiohttp.ClientSession) -> None:
    """A simulated pod that has printed a line and runs on."""
    async with session.post("/api/v1/nodes", json={"metadata": {"name": "n"}}) as answer:
        assert answer.status in (201, 409), await answer.text()
    container = {"name": "c", "image": "i", "command": ["sh", "-c", "echo alive; sleep 10000"]}
    pod: Any = {"metadata": {"name": "p"}, "spec": {"containers": [container], "nodeName": "n"}}
    async with session.post(PODS, json=pod) as answer:
        assert answer.status == 201, await answer.text()
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    state = {"name": "c", "ready": True, "restartCount": 0, "image": "i", "imageID": "i", "state": running}
    status = {"status": {"phase": "Running", "containerStatuses": [state]}}
    async with session.patch(
        f"{PODS}/p/status", json=status, headers={"Content-Type": "application/merge-patch+json"}
    ) as answer:
        assert answer.status == 200, await answer.text()


@pytest.mark.parametrize("query", ["", "?follow=true"])
async def test_log_comes_in_binary_messages(session: aiohttp.ClientSession, query: str) -> None:
    await printing_pod(session)
    async with session.ws_connect(f"{PODS}/p/log{query}", protocols=["binary.k8s.io"]) as socket, asyncio.timeout(60):
        assert socket.protocol == "binary.k8s.io"
        assert await socket.receive_bytes() == b"alive\n"


async def test_log_comes_in_base64_to_who_speaks_text(session: aiohttp.ClientSession) -> None:
    await printing_pod(session)
    protocols = ["unknown.k8s.io", "base64.binary.k8s.io"]
    async with session.ws_connect(f"{PODS}/p/log", protocols=protocols) as socket, asyncio.timeout(60):
        assert base64.b64decode(await socket.receive_str()) == b"alive\n"
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_log_of_unknown_container_is_refused_before_the_handshake(session: aiohttp.ClientSession) -> None:
    await printing_pod(session)
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await session.ws_connect(f"{PODS}/p/log?container=none")
    assert error.value.status == 400
