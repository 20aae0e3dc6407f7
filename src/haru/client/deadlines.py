"""When exchanges with a server must have ended."""

from __future__ import annotations

import asyncio

from haru.client.exchange import Exchange


class Deadlines:
    """End exchanges that take too long. Most have the same timeout, so one timer, for the first, serves them all."""

    def __init__(self) -> None:
        self._due: dict[Exchange, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def add(self, exchange: Exchange, due: float) -> None:
        """Have an exchange fail at this time of the loop."""
        self._due[exchange] = due
        if self._timer is None or due < self._at:
            self._set(due)

    def drop(self, exchange: Exchange) -> None:
        """Let an exchange be: it has ended."""
        self._due.pop(exchange, None)

    def _set(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = due
        self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        for exchange in [exchange for exchange, due in self._due.items() if due <= self._at]:
            del self._due[exchange]
            exchange.finish(TimeoutError())
        if self._due:
            self._set(min(self._due.values()))
