"""An API whose watches and lists break at any moment: cut, torn in the middle of a line, expired, refused, slow."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

from haru.event_loop import cancelled

OF_WATCHES = ("cut", "torn", "expired", "refused 410", "refused 429", "refused 500")
OF_READS = ("torn", "refused 429", "refused 500", "slow", "lost")
_REASON = {410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


class TornApi:
    """Wraps an ASGI application. Of watches and reads `rate` fail; writes are left alone."""

    def __init__(self, app: Any, rng: random.Random, rate: float = 0.0) -> None:
        self._app, self._rng, self.rate = app, rng, rate
        self.counts: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_watch = b"watch=" in scope.get("query_string", b"")
        if scope["method"] != "GET" or self._rng.random() >= self.rate:
            await self._app(scope, receive, send)
            return
        fault = self._rng.choice(OF_WATCHES if is_watch else OF_READS)
        self.counts[f"{'watch' if is_watch else 'read'} {fault}"] += 1
        if fault.startswith("refused"):
            await _refuse(send, int(fault.split()[1]))
        elif is_watch:
            await self._break_watch(fault, scope, receive, send)
        else:
            await self._break_read(fault, scope, receive, send)

    async def _break_watch(self, fault: str, scope: Any, receive: Any, send: Any) -> None:
        begun = asyncio.Event()

        async def forward(message: Any) -> None:
            begun.set()
            await send(message)

        # Objects that are handed over beside the messages could not be torn.
        watching = asyncio.create_task(self._app({**scope, "extensions": {}}, receive, forward))
        try:
            await asyncio.wait({watching}, timeout=self._rng.choice((0.0, 0.1, 2.0, 10.0)) * self._rng.random())
        finally:
            await cancelled(watching)
        if not begun.is_set():
            raise ConnectionResetError("the watch was cut before it began")
        if fault == "torn":
            await send(_body(b'{"type":"MODIFIED","object":{"kind":"P', more=self._rng.random() < 0.5))
        if fault == "expired":
            await send(_body(json.dumps({"type": "ERROR", "object": _status(410)}).encode() + b"\n", more=False))
        elif self._rng.random() < 0.5:
            raise ConnectionResetError("the watch was cut")

    async def _break_read(self, fault: str, scope: Any, receive: Any, send: Any) -> None:
        if fault == "slow":
            await asyncio.sleep(20 * self._rng.random())
            await self._app(scope, receive, send)
            return
        sent: list[Any] = []

        async def keep(message: Any) -> None:
            sent.append(message)

        await self._app({**scope, "extensions": {}}, receive, keep)
        if fault == "lost":
            raise ConnectionResetError("the answer was lost")
        headers = [header for header in sent[0]["headers"] if header[0] != b"content-length"]
        body = b"".join(message.get("body", b"") for message in sent[1:])
        await send({**sent[0], "headers": headers})
        await send(_body(body[: self._rng.randrange(len(body) + 1)], more=self._rng.random() < 0.5))
        raise ConnectionResetError("the answer was cut")


def _status(code: int) -> dict[str, Any]:
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": _REASON[code]}
    return {**told, "message": "an injected fault"}


def _body(data: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _refuse(send: Any, code: int) -> None:
    headers = [(b"content-type", b"application/json")] + [(b"retry-after", b"1")] * (code == 429)
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send(_body(json.dumps(_status(code)).encode(), more=False))
