"""Try again what a server writes while it starts: a store that is slow for a moment does not end it.

Source: the post-start hooks of 1.36, which try for 30 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from haru.storage import StoreError

PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 1.0
_LOG = logging.getLogger("haru.apiserver")


async def until_store_answers(what: str, write: Callable[[], Awaitable[None]]) -> None:
    """Write until the store takes it, for 30 s at most; `write` may be half done already. Raises StoreError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_SECONDS
    while True:
        try:
            return await write()
        except StoreError as error:
            if not error.passing or loop.time() >= deadline:
                raise
            _LOG.warning("%s could not be written, which is tried again: %s", what, error)
        await asyncio.sleep(PAUSE_SECONDS)
