"""Wait for a condition instead of sleeping: as fast as it becomes true, and robust on a loaded machine."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def until(
    holds: Callable[[], Any], what: str = "the condition holds", seconds: float = 60.0, pause: float = 0.01
) -> Any:
    """Return the first true result of `holds`, a function or coroutine function; fail after `seconds`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        found = holds()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert loop.time() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(pause)
