"""The real kubectl, and a WebSocket client, with what an extension API server serves."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from api_caller import ADMIN
from extension_server import NAME, WAGONS, ExtensionServer, Keys, api_service, endpoint_slice, service, wagon
from kubectl_runner import Kubectl, require_kubectl

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trains(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ExtensionServer]:
    server = ExtensionServer(tmp_path_factory.mktemp("trains"), Keys.made())
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubectl(tmp_path_factory: pytest.TempPathFactory, trains: ExtensionServer) -> AsyncIterator[Kubectl]:
    require_kubectl()
    directory: Path = tmp_path_factory.mktemp("aggregation")
    runner = Kubectl(directory, aggregation=trains.keys.options())
    await runner.start()
    made = [service(), endpoint_slice(trains.port), api_service(caBundle=trains.keys.bundle)]
    for obj in made:
        await runner.ok("apply", "-f", "-", input=json.dumps(obj))
    await runner.ok("wait", "--for=condition=Available", f"apiservice/{NAME}", "--timeout=60s")
    yield runner
    await runner.stop()


async def test_kubectl_lists_api_services(kubectl: Kubectl) -> None:
    rows = [line.split() for line in (await kubectl.ok("get", "apiservices")).splitlines()]
    assert rows[0] == ["NAME", "SERVICE", "AVAILABLE", "AGE"]
    found = {row[0]: row[1:3] for row in rows[1:]}
    assert found[NAME] == ["default/trains", "True"] and found["v1.apps"] == ["Local", "True"]
    assert "versionPriority" in await kubectl.ok("explain", "apiservice.spec")


async def test_kubectl_uses_aggregated_resource(kubectl: Kubectl) -> None:
    assert "wagons" in await kubectl.ok("api-resources", "--api-group=trains.example")
    assert "wagon.trains.example/a created" in await kubectl.ok("create", "-f", "-", input=json.dumps(wagon("a")))
    assert "a" in (await kubectl.ok("get", "wg", "-o", "name"))
    assert await kubectl.ok("get", "wagons", "a", "-o", "jsonpath={.spec.seats}") == "4"
    missing = await kubectl.run("get", "wagons", "b")
    assert missing.code == 1 and 'wagons "b" not found' in missing.err
    forbidden = await kubectl.run("get", "wagons", config="jane")
    assert forbidden.code == 1 and 'cannot list resource "wagons"' in forbidden.err
    watching = await kubectl.spawn("get", "wagons", "--watch-only", "-o", "name")
    assert watching.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = asyncio.create_task(watching.stdout.readline())
            for number in range(100):
                # Until the watch has begun: it is told only of what comes then.
                await kubectl.ok("create", "-f", "-", input=json.dumps(wagon(f"w{number}")))
                if (await asyncio.wait([line], timeout=0.2))[0]:
                    break
            assert (await line).startswith(b"wagon.trains.example/w")
    finally:
        watching.kill()
        await watching.communicate()
    assert "deleted" in await kubectl.ok("delete", "wagons", "a")


async def test_web_sockets_are_proxied(kubectl: Kubectl, trains: ExtensionServer) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{request.headers['X-Remote-User']}: {message.data}")
        return socket

    trains.odd[f"{WAGONS}/a/talk"] = echo
    trust = ssl.create_default_context(cafile=str(kubectl.directory / "ca.crt"))
    headers = {"Authorization": f"Bearer {ADMIN}", "X-Remote-User": "somebody"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(f"{kubectl.server.url}{WAGONS}/a/talk", ssl=trust) as socket,
    ):
        await socket.send_str("hello")
        async with asyncio.timeout(60):
            assert await socket.receive_str() == "admin: hello"
    assert "authorization" not in trains.asked[-1][2]
