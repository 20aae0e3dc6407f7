"""A real HTTPS server that answers reviews, with a certificate of its own, and what is written about it."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from api_caller import Caller

from haru.apiserver.auth import certificates

Obj = dict[str, Any]
Answering = Callable[[Obj], Obj]
"""From the request of a review to its response; the uid is added."""

GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{GROUP}/mutatingwebhookconfigurations"
VALIDATING = f"{GROUP}/validatingwebhookconfigurations"
SERVICE = "hooks.tools.svc"


@cache
def authority() -> certificates.Pair:
    return certificates.new_authority(datetime.now(UTC))


@cache
def server_pair() -> certificates.Pair:
    return certificates.server_pair(authority(), (SERVICE,), datetime.now(UTC))


def bundle(pair: certificates.Pair | None = None) -> str:
    """A certificate as `caBundle` carries it."""
    return base64.b64encode((pair or authority()).certificate).decode()


class WebhookServer:
    """Serves one answer for each path; `asked` are the requests that came, by path."""

    def __init__(self, directory: Path, pair: certificates.Pair | None = None) -> None:
        self._directory = directory
        self._pair = pair or server_pair()
        self.answers: dict[str, Answering] = {}
        self.raw: dict[str, tuple[int, bytes]] = {}
        self.silent: set[str] = set()
        self.asked: dict[str, list[Obj]] = {}
        self.hosts: list[str] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        pair = self._pair
        certificate, key = self._directory / "hook.crt", self._directory / "hook.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        await self._server.wait_closed()

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    def client(self, path: str) -> Obj:
        """A `clientConfig` for a path."""
        return {"url": self.url(path), "caBundle": bundle()}

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except asyncio.IncompleteReadError:
            return False
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length") or 0))
        path = head[0].split(" ")[1].partition("?")[0]
        self.hosts.append(headers["host"])
        review = json.loads(body)
        self.asked.setdefault(path, []).append(review)
        if path in self.silent:
            await asyncio.sleep(60)
        status, data = self.raw.get(path) or (200, json.dumps(self._review(path, review)).encode())
        writer.write(
            f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        )
        writer.write(data)
        await writer.drain()
        return True

    def _review(self, path: str, review: Obj) -> Obj:
        request = review["request"]
        response = {"uid": request["uid"], **self.answers[path](request)}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def allow(request: Obj) -> Obj:
    return {"allowed": True}


def deny(**status: Any) -> Answering:
    return lambda request: {"allowed": False, "status": status}


def patch(*operations: Obj, **more: Any) -> Answering:
    """Allow, with a JSON patch."""
    data = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": data, **more}


def label(name: str, value: str) -> Obj:
    """The operation that sets a label of an object that has some."""
    return {"op": "add", "path": f"/metadata/labels/{name}", "value": value}


def rule(resources: str = "configmaps", *operations: str, **changes: Any) -> Obj:
    made: Obj = {
        "operations": list(operations) or ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": resources.split(","),
    }
    return {**made, **changes}


def hook(client: Obj, *rules: Obj, name: str = "hook.example.com", **changes: Any) -> Obj:
    made: Obj = {
        "name": name,
        "clientConfig": client,
        "rules": list(rules) or [rule()],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30,
    }
    return {**made, **changes}


def configuration(kind: str, name: str, *hooks: Obj) -> Obj:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    server = WebhookServer(tmp_path)
    await server.start()
    yield server
    await server.stop()


async def validating(api: Caller, *made: Obj, name: str = "v") -> None:
    await api.create(VALIDATING, configuration("Validating", name, *made))


async def mutating(api: Caller, *made: Obj, name: str = "m") -> None:
    await api.create(MUTATING, configuration("Mutating", name, *made))
