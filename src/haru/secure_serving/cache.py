"""A cache that is bounded in number and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from cachetools import TLRUCache

Value = TypeVar("Value")
MOST_ENTRIES = 4096


class Cache(Generic[Value]):
    """Expiring answers by key; concurrent calls for one key share one request. `monotonic` is in seconds."""

    def __init__(self, monotonic: Callable[[], float], most: int = MOST_ENTRIES) -> None:
        self._kept: TLRUCache[Hashable, tuple[Value, float], float] = TLRUCache(most, _expires, monotonic)
        self._asked: dict[Hashable, asyncio.Future[Value]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[tuple[Value, float]]]) -> Value:
        """The kept answer, or that of `ask`, which also says for how many seconds it holds. What it raises goes to
        everybody who waits, and is not kept."""
        while True:
            found = self._kept.get(key)
            if found is not None:
                return found[0]
            running = self._asked.get(key)
            if running is None:
                return await self._ask(key, ask)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # Whoever asked has gone away: somebody else has to ask, unless it is us who are to end.
                if not running.cancelled():
                    raise

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[tuple[Value, float]]]) -> Value:
        asked = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            value, seconds = await ask()
        except asyncio.CancelledError:
            asked.cancel()
            raise
        except BaseException as error:
            asked.set_exception(error)
            asked.exception()  # nobody may be waiting
            del asked  # the error, which knows this frame, would be held by it
            raise
        finally:
            del self._asked[key]
        asked.set_result(value)
        self._kept[key] = (value, seconds)
        return value


def _expires(_: Hashable, kept: tuple[Value, float], now: float) -> float:
    return now + kept[1]
