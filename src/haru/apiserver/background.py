"""The work of an API server that no request asks for.

An event is removed an hour after it was written last. The Service and the ServiceCIDR `kubernetes` are created again
when somebody has deleted them, and so are the default FlowSchemas and priority levels. Services without an IPAddress
get one. Lists that no client has asked for lately leave the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

from haru.apiserver.bootstrap.flow_control_ensurer import ensure_flow_control
from haru.apiserver.bootstrap.kubernetes_service import publish
from haru.apiserver.bootstrap.objects import ensure_service_network
from haru.apiserver.encoding.list_cache import ListCache
from haru.apiserver.encoding.objects import note_of, shared
from haru.apiserver.encryption.reload import Reloader
from haru.apiserver.ip_address_repair import IPAddressRepair
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.serving_address import ServingAddress
from haru.event_loop import TimeSlice, cancelled
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.storage import CompareFailed, Delete, Record, StoreError

EVENT_LIFE = timedelta(hours=1)
PAUSE_SECONDS = 30.0
FLOW_CONTROL_ROUNDS = 2
"""In every so many rounds the defaults of flow control are looked after: once a minute, as in 1.36."""
_LOG = logging.getLogger("haru.apiserver")


class Background:
    """Do the work that no request asks for, twice a minute; also reload the encryption configuration."""

    def __init__(
        self, loopback: Loopback, address: ServingAddress, lists: ListCache, reloader: Reloader | None
    ) -> None:
        self._loopback, self._address, self._lists, self._reloader = loopback, address, lists, reloader
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work."""
        if self._reloader is not None:
            self._reloader.start()
        self._task = asyncio.create_task(self.run(), name="haru apiserver: background")

    async def stop(self) -> None:
        """End the work."""
        if self._reloader is not None:
            await self._reloader.stop()
        if self._task is not None:
            await cancelled(self._task)

    async def run(self) -> None:
        """Look after events, the Service `kubernetes`, flow control and cached lists, as long as the server runs."""
        expiry = EventExpiry(self._loopback.objects, asyncio.get_running_loop().time)
        repair = IPAddressRepair(self._loopback)
        for round_ in count():
            try:
                await repair.run()
                if round_:
                    await self._look_after(expiry, with_flow_control=round_ % FLOW_CONTROL_ROUNDS == 0)
            except (StoreError, StatusError) as error:
                _LOG.warning("the server's regular work failed: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look_after(self, expiry: EventExpiry, *, with_flow_control: bool) -> None:
        self._lists.drop_idle()
        await expiry.remove_old()
        await ensure_service_network(self._loopback)
        await publish(self._loopback, self._address)
        if with_flow_control:
            await ensure_flow_control(self._loopback)


class EventExpiry:
    """Remove events that are too old. How old one is is read once; then it ages by a clock that does not jump."""

    def __init__(self, objects: ObjectStore, monotonic: Callable[[], float]) -> None:
        self._objects, self._monotonic = objects, monotonic
        self._ends: dict[str, tuple[int, float]] = {}
        """Until when events may stay, by their keys, with the revisions for which that holds."""

    async def remove_old(self) -> int:
        """Remove what is too old; how many events that were."""
        ends, removed = dict[str, tuple[int, float]](), 0
        page, work = await self._objects.store.range("events/"), TimeSlice()
        for record in page.records:
            await work.shared()
            known = self._ends.get(record.key)
            if known is None or known[0] != record.revision:
                known = record.revision, self._end(record)
            if known[1] >= self._monotonic():
                ends[record.key] = known
                continue
            with contextlib.suppress(CompareFailed):
                await self._objects.store.transact(Delete(record.key, record.revision))
                removed += 1
        self._ends = ends
        return removed

    def _end(self, record: Record) -> float:
        last = last_seen(shared(record))
        note_of(record).obj = None  # events are many and looked at once: their trees are not kept
        if last is None:
            return math.inf
        return self._monotonic() + min(last + EVENT_LIFE - self._objects.clock(), EVENT_LIFE).total_seconds()


def last_seen(event: Obj) -> datetime | None:
    """The latest of the times that an event carries."""
    times = [
        event["metadata"].get("creationTimestamp"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("series") or {}).get("lastObservedTime"),
    ]
    return max((parse_time(time) for time in times if time), default=None)
