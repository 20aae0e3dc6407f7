"""What has to be looked after once in a while.

Events are news: an hour after the last time one was written it is removed. The Service `kubernetes` is made again when
somebody has deleted it. Lists that nobody asks for any more are not kept ready.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

from haru.apiserver.bootstrap.kubernetes_service import publish
from haru.apiserver.core import Core
from haru.apiserver.encoding.objects import note_of, shared
from haru.kube.errors import StatusError
from haru.kube.names import parse_time
from haru.storage import CompareFailed, Delete, StoreError

Obj = dict[str, Any]

EVENT_LIFE = timedelta(hours=1)
PAUSE_SECONDS = 30.0
_LOG = logging.getLogger("haru.apiserver")


async def run_background(core: Core) -> None:
    """Look twice a minute, for as long as the server runs."""
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        core.lists.drop_idle()
        try:
            await expire_once(core)
            await publish(core)
        except (StoreError, StatusError) as error:
            _LOG.warning("the regular look after events and the kubernetes service failed: %s", error)


async def expire_once(core: Core) -> int:
    """Remove what is too old; how many events that were."""
    oldest = core.clock() - EVENT_LIFE
    removed = 0
    page = await core.store.range("events/")
    for record in page.records:
        last = last_seen(shared(record))
        note_of(record).obj = None  # events are many and looked at once: their trees are not kept
        if last is None or last >= oldest:
            continue
        try:
            await core.store.transact(Delete(record.key, record.revision))
            removed += 1
        except CompareFailed:
            continue
    return removed


def last_seen(event: Obj) -> datetime | None:
    """The latest of the times that an event carries."""
    times = [
        event["metadata"].get("creationTimestamp"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("series") or {}).get("lastObservedTime"),
    ]
    return max((parse_time(time) for time in times if time), default=None)
