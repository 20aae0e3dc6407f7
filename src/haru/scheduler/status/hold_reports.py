"""Pods that have been held for a while say so in their condition (KEP-5501): short holds are not worth a write."""

from __future__ import annotations

import asyncio

from haru.engine import SchedulerCache
from haru.engine.podgroup import GANGS_OFF
from haru.engine.preemption import keeps_nomination
from haru.event_loop import TimeSlice
from haru.scheduler.queue.pre_enqueue import PreEnqueue
from haru.scheduler.status.conditions import NominationChange
from haru.scheduler.status.status_writer import StatusWriter

_SECONDS = 5.0


class HoldReports:
    """Tells of holds. Unless `every` one is told, only those that no pod's author could know of: gates of ours."""

    def __init__(self, cluster: SchedulerCache, admission: PreEnqueue, status: StatusWriter, every: bool) -> None:
        self._cluster = cluster
        self._admission = admission
        self._status = status
        self._every = every

    async def run(self) -> None:
        """Look every five seconds, until cancelled."""
        seen: dict[str, str] = {}
        while True:
            await asyncio.sleep(_SECONDS)
            now, piece = dict(self._admission.blocked), TimeSlice()
            for path, message in now.items():
                if seen.get(path) == message and (self._every or message.startswith(GANGS_OFF)):
                    self._tell(path, message)
                    await piece.shared()
            seen = now

    def _tell(self, path: str, message: str) -> None:
        snapshot = self._cluster.snapshot()
        info = snapshot.pods.get(path)
        # Others had a turn since: it may be held no longer.
        if info is None or info.gated or self._admission.blocked.get(path) != message:
            return
        kept = keeps_nomination(snapshot, info)
        self._status.not_scheduled(info.obj, "NotReadyForScheduling", message, NominationChange(keep=kept))
