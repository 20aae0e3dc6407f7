"""Pauses between attempts, and the read-change-write loop that survives other writers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

_ATTEMPTS = 8


class Backoff:
    """Pauses that double from `base` to `cap` seconds, each lengthened at random so that clients spread out."""

    def __init__(
        self,
        base: float = 0.8,
        cap: float = 30.0,
        rng: Any = random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._base, self._cap = base, cap
        self._rng = rng
        self._sleep = sleep
        self._next = base

    def next(self) -> float:
        """The next pause in seconds."""
        pause = self._next
        self._next = min(self._cap, self._next * 2)
        return float(min(self._cap, pause * (1 + self._rng.random())))

    async def pause(self) -> None:
        """Sleep for the next pause."""
        await self._sleep(self.next())

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._next = self._base
