"""Find devices that two claims hold as soon as the watch shows it, and tell it to both sides.

Each claim event costs the devices of the claim. What is mended within half a second is not told.
Source: our own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from haru.client.events import EventRecorder
from haru.engine.dra import DeviceId, DoubleAllocation, allocated_devices, double_allocations
from haru.kube.meta import Obj
from haru.scheduler.binding.claim_updates import users_of
from haru.scheduler.coexistence.allocation_ledger import AllocationLedger
from haru.scheduler.shared import SchedulerState

_log = logging.getLogger(__name__)
REASON = "DeviceAllocatedTwice"
_TOLD_AFTER_SECONDS = 0.5


class DeviceConflicts:
    """The devices that several claims hold now, by device."""

    def __init__(self, state: SchedulerState, ledger: AllocationLedger, recorder: EventRecorder) -> None:
        self._cluster = state.cluster
        self._ledger = ledger
        self._metrics = state.metrics.coexistence
        self._recorder = recorder
        self._tasks = state.tasks
        self.found: dict[DeviceId, DoubleAllocation] = {}
        self._metrics.devices_allocated_twice = lambda: len(self.found)

    def changed(self, allocations: Iterable[Obj | None]) -> None:
        """Look at the devices of allocations that are new or gone, once the cache has them."""
        devices = dict.fromkeys(device for one in allocations for device in allocated_devices(one))
        if not devices:
            return
        if self.found:
            pools = {device[:2] for device in devices}
            devices |= dict.fromkeys(device for device in self.found if device[:2] in pools)
        now = {conflict.device: conflict for conflict in self.of(devices)}
        for device in devices:
            conflict, before = now.get(device), self.found.get(device)
            if conflict is None:
                if before is not None:
                    del self.found[device]
                continue
            self.found[device] = conflict
            if before is None or before.claims != conflict.claims:
                self._tasks.spawn(self._tell(conflict))

    def of(self, devices: Iterable[DeviceId]) -> Iterable[DoubleAllocation]:
        """Yield those of some devices that several claims hold; writes under way do not count."""
        return double_allocations(
            self._cluster.devices, self._cluster.allocated, devices, lambda claim: self._ledger.get(claim) is not None
        )

    async def _tell(self, conflict: DoubleAllocation) -> None:
        await asyncio.sleep(_TOLD_AFTER_SECONDS)
        if self.found.get(conflict.device) != conflict:
            return
        self._metrics.reported()
        text = f"{conflict}: delete the pod of one of them"
        _log.error("%s", text)
        snapshot = self._cluster.snapshot()
        for path in conflict.claims:
            claim = snapshot.claims.get(path)
            if claim is None:
                continue
            self._recorder.event(claim, "Warning", REASON, text)
            for user in users_of(claim):
                pod = snapshot.pods.get(user)
                if pod is not None:
                    self._recorder.event(pod.obj, "Warning", REASON, text)
