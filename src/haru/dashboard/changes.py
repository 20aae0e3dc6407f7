"""Server-sent events: the number of the newest version of the cluster, at most every 0.7 seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from haru.cluster_view import ClusterWatch
from haru.event_loop import cancelled

PAUSE_SECONDS = 0.7
HEARTBEAT_SECONDS = 15.0


async def events(watch: ClusterWatch, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Tell each new version; every 15 seconds something, so that a connection that is gone is noticed."""
    ending = asyncio.ensure_future(stopping.wait())
    try:
        async with watch.viewing():
            version = -1
            while not ending.done():
                newer = asyncio.ensure_future(watch.changes.newer_than(version))
                try:
                    await asyncio.wait({ending, newer}, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    if newer.done():
                        version = newer.result()
                finally:
                    newer.cancel()
                yield f"data: {version}\n\n".encode()
                await asyncio.wait({ending}, timeout=PAUSE_SECONDS)
    except OSError:
        pass  # the browser reconnects
    finally:
        await cancelled(ending)
