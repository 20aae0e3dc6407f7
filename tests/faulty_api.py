"""An API that fails now and then: before it acts, after it acted, without an answer, or long after the answer."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

_STATUS = {409: "Conflict", 500: "InternalError", 503: "ServiceUnavailable"}
KINDS = ("refuse 409", "refuse 500", "refuse 503", "lose", "act and fail", "act and drop", "slow", "late")


class FaultyApi:
    """Wraps an ASGI application. Watches are left alone; of single reads few fail, of writes `rate` of them."""

    def __init__(self, app: Any, rng: random.Random, rate: float) -> None:
        self._app = app
        self._rng = rng
        self.rate = rate
        self.only: Callable[[str, str], bool] | None = None
        self.kinds = KINDS
        self.counts: Counter[str] = Counter()
        self.late: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kind = self._fault(scope)
        if kind is None:
            await self._app(scope, receive, send)
            return
        self.counts[kind] += 1
        if kind.startswith("refuse"):
            await _answer(send, int(kind.split()[1]))
        elif kind == "lose":
            raise ConnectionResetError("the request was lost")
        elif kind == "act and fail":
            await self._app(scope, receive, _nowhere)
            await _answer(send, 500)
        elif kind == "act and drop":
            await self._app(scope, receive, _nowhere)
            raise ConnectionResetError("the answer was lost")
        elif kind == "slow":
            await asyncio.sleep(self._rng.random() * 0.2)
            await self._app(scope, receive, send)
        else:
            task = asyncio.create_task(self._late(scope, await _body(receive)))
            self.late.add(task)
            task.add_done_callback(self.late.discard)
            raise TimeoutError("no answer within a second")

    def _fault(self, scope: Any) -> str | None:
        if b"watch=" in scope.get("query_string", b"") or self.rate == 0:
            return None
        method = scope["method"]
        if self.only is not None and not self.only(method, scope["path"]):
            return None
        if method == "GET":
            return "refuse 500" if self._rng.random() < self.rate / 4 else None
        return self._rng.choice(self.kinds) if self._rng.random() < self.rate else None

    async def _late(self, scope: Any, body: bytes) -> None:
        """The request was on its way all the time, and arrives when its sender has given it up."""
        await asyncio.sleep(self._rng.random() * 0.3)

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, receive, _nowhere)


async def _nowhere(_: Any) -> None:
    return None


async def _body(receive: Any) -> bytes:
    return bytes((await receive()).get("body") or b"")


async def _answer(send: Any, code: int) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": _STATUS[code], "code": code}
    body = json.dumps({**status, "message": "an injected fault"}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
