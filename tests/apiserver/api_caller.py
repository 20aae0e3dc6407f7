"""A server over a store in memory, and a caller that speaks ASGI to it as an HTTP server would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from begun_store import begun
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.kube.gates import FeatureGates
from haru.storage import SqliteStore

Obj = dict[str, Any]
ADMIN = "admin-token"
USER = "user-token"


@dataclass
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Clock:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **parts: float) -> None:
        self.now += timedelta(**parts)


@dataclass
class Stream:
    """A response that is still coming; iterate over its lines."""

    status: int
    headers: dict[str, str]
    queue: asyncio.Queue[bytes | None]
    gone: asyncio.Event
    task: asyncio.Task[None]
    rest: bytes = b""
    ended: bool = False
    seen: list[Any] = field(default_factory=list)

    async def next(self, timeout: float = 60.0) -> Any:
        """The next line as JSON; None at the end of the stream."""
        while b"\n" not in self.rest:
            if self.ended:
                return None
            chunk = await asyncio.wait_for(self.queue.get(), timeout)
            if chunk is None:
                self.ended = True
            else:
                self.rest += chunk
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    async def take(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next lines."""
        events = [await self.next() for _ in range(count)]
        return [(e["type"], e["object"]["metadata"].get("name", "")) for e in events]

    async def silent(self, seconds: float = 0.02) -> bool:
        """Whether nothing comes for a while."""
        try:
            await self.next(seconds)
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        self.gone.set()
        await asyncio.wait_for(self.task, 60)


class Caller:
    """Requests to one server as one user."""

    def __init__(self, app: ApiServer, clock: Clock, token: str = ADMIN) -> None:
        self.app = app
        self.clock = clock
        self.token = token

    def as_(self, token: str) -> Caller:
        return Caller(self.app, self.clock, token)

    def _scope(self, method: str, url: str, headers: dict[str, str]) -> Obj:
        parts = urlsplit(url)
        named = {"user-agent": "tests/1.0", **headers}
        if self.token:
            named["authorization"] = f"Bearer {self.token}"
        return {
            "type": "http",
            "method": method,
            "path": parts.path,
            "query_string": parts.query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in named.items()],
        }

    async def __call__(
        self, method: str, url: str, body: Any = None, *, type: str = "application/json", **headers: str
    ) -> Answer:
        """One request; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        if body is not None:
            named["content-type"] = type
        sent: list[Any] = []
        given = iter([{"type": "http.request", "body": data, "more_body": False}])

        async def receive() -> Obj:
            for message in given:
                return message
            await asyncio.Event().wait()  # the client stays until it is answered
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(self._scope(method, url, named), receive, send)
        got = {k.decode(): v.decode("latin-1") for k, v in sent[0]["headers"]}
        return Answer(sent[0]["status"], got, b"".join(m.get("body", b"") for m in sent[1:]))

    async def stream(self, url: str, **headers: str) -> Stream:
        """A GET whose answer is read line by line."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        gone = asyncio.Event()
        started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        first = True

        async def receive() -> Obj:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.set_result(message)
                return
            if message.get("body"):
                queue.put_nowait(message["body"])
            if not message.get("more_body"):
                queue.put_nowait(None)

        named = {k.replace("_", "-"): v for k, v in headers.items()}
        task = asyncio.create_task(self.app(self._scope("GET", url, named), receive, send))
        head = await asyncio.wait_for(started, 60)
        got = {k.decode(): v.decode() for k, v in head["headers"]}
        return Stream(head["status"], got, queue, gone, task)

    async def create(self, path: str, obj: Obj) -> Obj:
        """Create an object that must be accepted."""
        answer = await self("POST", path, obj)
        assert answer.status == 201, answer.body
        result: Obj = answer.json
        return result

    async def get(self, path: str) -> Obj:
        """Read an object that must exist."""
        answer = await self("GET", path)
        assert answer.status == 200, answer.body
        result: Obj = answer.json
        return result


def service_account_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


KEY = service_account_key()


def pod(name: str, **spec: Any) -> Obj:
    """A small pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}], **spec},
    }


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Obj:
    """A config map."""
    metadata: Obj = {"name": name}
    if labels is not None:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


def make_config(store: SqliteStore, clock: Clock, **overrides: Any) -> ServerConfig:
    """A configuration; `overrides` are fields of ServerConfig or AuthenticationOptions."""
    users = {ADMIN: UserInfo("admin", ("system:masters",), "1"), USER: UserInfo("jane", ("devs",), "2")}
    names = [field.name for field in fields(AuthenticationOptions)]
    authentication = {"tokens": users, "service_account_key_pem": KEY}
    authentication |= {name: overrides.pop(name) for name in names if name in overrides}
    settings: Obj = {
        "gates": FeatureGates.accelerator_defaults(),
        "runtime_config": {"api/beta": True, "api/alpha": True},
        "clock": clock,
        **overrides,
    }
    return ServerConfig(store, authentication=AuthenticationOptions(**authentication), **settings)


@pytest.fixture
async def api() -> AsyncIterator[Caller]:
    store = SqliteStore(":memory:")
    await store.start()
    clock = Clock()
    app = await begun(make_config(store, clock), store)
    yield Caller(app, clock)
    await app.stop()
    await store.stop()
