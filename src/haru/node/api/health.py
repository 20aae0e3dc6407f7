"""Whether the agent is well, without TLS and for everybody who reaches it: loopback, by default."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from haru.node.api.attributes import cleaned
from haru.node.api.http import Answer, HttpError, Receive, Request, Send, send_answer, text_answer


class HealthApp:
    """`/healthz` and nothing else."""

    def __init__(self, healthz: Callable[[Request], Awaitable[Answer]]) -> None:
        self._healthz = healthz

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        request = Request(scope, receive)
        try:
            if request.method not in ("GET", "HEAD") or request.path != cleaned(request.path):
                raise HttpError(404, "404 page not found")
            if request.parts[0] != "healthz":
                raise HttpError(404, "404 page not found")
            answer = await self._healthz(request)
        except HttpError as error:
            answer = text_answer(f"{error}\n", error.status)
        await send_answer(answer, send, request.method)
