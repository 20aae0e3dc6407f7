"""A cluster as those see it who are on its event loop: brought up, asked for objects and for time, taken down."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.identity import ADMIN
from haru.embedded.options import UpOptions
from haru.event_loop import cancelled
from haru.testing.objects import Objects
from haru.testing.virtual_time import Limits, VirtualTimeLoop

_LEASES = "leases.coordination.k8s.io/"


class Inside(Objects):
    """An embedded cluster on the running loop, and its objects as the administrator sees them."""

    def __init__(self, loop: VirtualTimeLoop, embedded: EmbeddedCluster) -> None:
        super().__init__(embedded.client(ADMIN))
        self._loop = loop
        self._embedded = embedded
        self._beats = embedded.store.tally([_LEASES])

    @classmethod
    async def begin(cls, loop: VirtualTimeLoop, options: UpOptions, directory: Path) -> Inside:
        """Bring one up; what cannot be brought up whole is taken down."""
        embedded = EmbeddedCluster(options, directory, loop.clock)
        try:
            await embedded.start()
        except BaseException:
            await _end(embedded)
            raise
        return cls(loop, embedded)

    async def end(self) -> None:
        """Take it down."""
        await _end(self._embedded)

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._embedded.address

    async def now(self) -> datetime:
        """The time of day in the cluster."""
        return self._loop.clock.now()

    async def advance(self, seconds: float, settle: float, timeout: float) -> datetime:
        """Make time pass (`VirtualTimeLoop.advance`); the heartbeats of leases are nothing to respond to."""
        server, listener, store = self._embedded.server, self._embedded.listener, self._embedded.store
        assert server is not None and listener is not None

        def stir() -> int | None:
            return store.revision - self._beats.count + listener.requests if listener.connections else None

        return await self._loop.advance(seconds, Limits(settle, timeout), lambda: server.in_flight > 0, stir)


async def _end(embedded: EmbeddedCluster) -> None:
    await embedded.stop()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    await cancelled(*rest)
