"""Run the collection of device usage in this process, and serve its metrics over HTTP.

It starts a moment after the cluster is ready, so that no start waits for it; its failure ends no other component.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.client.api import ApiClient
from haru.clock import utc_now
from haru.engine import Features
from haru.event_loop import cancelled

if TYPE_CHECKING:
    from haru.accounting.collector import UsageCollector

_log = logging.getLogger(__name__)

_DELAY_SECONDS = 1.0


class AccountingServer:
    """Collects the usage into a file (None: none), and serves metrics on a loopback address if there is one."""

    def __init__(
        self,
        client: ApiClient,
        file: Path | None,
        metrics: tuple[str, int] | None,
        features: Features | None = None,
        now: Callable[[], datetime] = utc_now,
        port_before: int = 0,
    ) -> None:
        """`port_before`: of a server that this one follows, at whose address it is found if nobody has taken it."""
        self._client = client
        self._features = features
        self._now = now
        self._file = file
        self._address = metrics
        self._collector: UsageCollector | None = None
        self._task: asyncio.Task[None] | None = None
        self._runner: Any = None
        self.port = port_before
        self.url = ""
        """The address of the metrics, once started."""

    async def start(self) -> None:
        """Serve, and collect from a moment later; OSError if the address is taken."""
        if self._address is not None:
            host, port = self._address
            try:
                await self._serve(host, self.port or port)
            except OSError:
                if not self.port:
                    raise
                await self._serve(host, port)
        self._task = asyncio.create_task(self._collect(), name="accounting")

    async def stop(self) -> None:
        """Write what is known and end."""
        if self._task is not None:
            await cancelled(self._task)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _collect(self) -> None:
        await asyncio.sleep(_DELAY_SECONDS)
        try:
            self._collector = await asyncio.to_thread(self._make)
            await self._collector.run()
        except Exception as error:
            _log.warning("device usage is not collected: %s", error)

    def _make(self) -> UsageCollector:
        """Make the collector; imported here, in a thread, for a short start of `haru up`."""
        from haru.accounting.collector import UsageCollector
        from haru.accounting.history import History

        history = History(self._file) if self._file is not None else None
        now = self._now
        return UsageCollector(self._client, history, features=self._features, clock=lambda: now().timestamp())

    async def _serve(self, host: str, port: int) -> None:
        from aiohttp import web

        async def metrics(_: web.Request) -> web.Response:
            body = self._collector.text() if self._collector is not None else b""
            return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})

        app = web.Application()
        app.add_routes([web.get("/metrics", metrics)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        address = runner.addresses[0]
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        self.port = address[1]
        self.url = f"http://{shown}:{self.port}/metrics"
