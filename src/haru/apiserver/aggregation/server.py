"""The aggregation layer of one server, from its start until it stops."""

from __future__ import annotations

import asyncio
import logging

from haru.apiserver.aggregation.changes import Changes
from haru.apiserver.aggregation.local import register_built_in, register_custom
from haru.apiserver.core import Core
from haru.kube.api_services import GROUP, PLURAL
from haru.kube.custom import definitions
from haru.kube.errors import StatusError
from haru.storage import StoreError

IDLE_SECONDS = 3600.0
RETRY_SECONDS = 1.0
_LOG = logging.getLogger("haru.apiserver")


class Aggregator:
    """Keeps the APIServices of one server."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._changes = Changes(core, (GROUP, PLURAL), (definitions.GROUP, definitions.PLURAL))
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Write what is served here, and follow what changes of it."""
        if self._core.served.find(GROUP, PLURAL) is None:
            return
        await register_built_in(self._core)
        self._changes.start()
        self._task = asyncio.create_task(self._keep(), name="haru apiserver: aggregation")

    async def stop(self) -> None:
        """End the work."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._changes.stop()

    async def _keep(self) -> None:
        while True:
            try:
                await self._core.store.progress()
                await register_custom(self._core)
            except (StoreError, StatusError) as error:
                _LOG.warning("the APIServices could not be brought up to date: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._changes.wait(IDLE_SECONDS)
