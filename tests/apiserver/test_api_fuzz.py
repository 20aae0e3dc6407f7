"""Whatever is sent, the server answers: in time, never with a failure of its own, every refusal a Status."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from api_caller import ADMIN, Caller, Clock, make_config
from hypothesis import given, settings
from hypothesis import strategies as st
from request_fuzzer import FuzzedRequest, RequestFuzzer
from sample_objects import SAMPLES, path_of

from haru.apiserver import listing
from haru.apiserver.server import ApiServer
from haru.kube.kinds import by_kind
from haru.storage import SqliteStore

REQUESTS_A_SERVER = 100
PATIENCE_SECONDS = 5


class Target:
    """A server with one object of most kinds, replaced after a number of requests."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.app: ApiServer
        self.left = 0

    async def _fresh(self) -> None:
        store, clock = SqliteStore(":memory:"), Clock()
        await store.start()
        self.app = ApiServer(make_config(store, clock))
        await self.app.start()
        for obj in SAMPLES:
            kind = by_kind(obj["apiVersion"], obj["kind"])
            assert kind is not None
            if not kind.virtual:
                await Caller(self.app, clock).create(path_of(obj), obj)
        self.left = REQUESTS_A_SERVER

    def send(self, request: FuzzedRequest) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        if not self.left:
            self.runner.run(self._fresh())
        self.left -= 1
        return self.runner.run(asyncio.wait_for(self._send(request), PATIENCE_SECONDS))

    async def _send(self, request: FuzzedRequest) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
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


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    running = Target()
    yield running
    running.runner.close()


@settings(max_examples=600, deadline=None)
@given(seed=st.integers(0, 1 << 48))
def test_every_request_is_answered(target: Target, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(listing, "WAIT_FOR_REVISION", 0.0)
        request = RequestFuzzer(random.Random(seed), SAMPLES).request()
        status, headers, body = target.send(request)
    assert status < 500 or status == 504, (request, body)
    assert not any(b"\n" in value or b"\r" in value for _, value in headers), request
    if status >= 400 and request.method != "HEAD":
        answer = json.loads(body)
        assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", status), request
        assert answer["message"] and answer["reason"], request
