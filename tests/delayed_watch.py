"""An API whose watches tell what happens a while later: whoever writes has decided on something older."""

from __future__ import annotations

import asyncio
import random
from typing import Any


class DelayedWatches:
    """Wraps an ASGI application. Each piece of a watch comes up to `longest` seconds late, in order.

    While `open` is cleared none comes.
    """

    def __init__(self, app: Any, rng: random.Random, longest: float) -> None:
        self._app = app
        self._rng = rng
        self._longest = longest
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if b"watch=" not in scope.get("query_string", b""):
            await self._app(scope, receive, send)
            return
        # Objects that are handed over beside the messages could not be delayed.
        scope = {**scope, "extensions": {}}
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, Any]] = asyncio.Queue()

        async def later(message: Any) -> None:
            pieces.put_nowait((loop.time() + self._rng.random() * self._longest, message))

        async def forward() -> None:
            while True:
                due, message = await pieces.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self.open.wait()
                await send(message)

        forwarding = asyncio.create_task(forward())
        try:
            await self._app(scope, receive, later)
        finally:
            forwarding.cancel()
            await asyncio.gather(forwarding, return_exceptions=True)
