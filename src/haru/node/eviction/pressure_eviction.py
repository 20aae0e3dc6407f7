"""Making room on a node under pressure: images and ended pods of a full disk first, then one pod after the other.

A look every 10 s; while pods go, as soon as the last one is gone. What pods use is measured only when one must go.
Source: the kubelet's eviction manager, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from haru.client.events import EventRecorder, EventType
from haru.kube.meta import Obj
from haru.kube.node_admission import is_critical
from haru.node.agent.options import EvictionOptions
from haru.node.cri.errors import CriError
from haru.node.eviction.evict import Eviction, evict
from haru.node.eviction.image_gc import ImageGcError
from haru.node.eviction.ranking import Usages, ranked, told
from haru.node.eviction.signals import Signals
from haru.node.eviction.thresholds import Pressure, Threshold, met, observed
from haru.node.podworker.worker import PodWorker

_log = logging.getLogger(__name__)
_SECONDS: Final = 10.0
_GONE_SECONDS: Final = 30.0
"""How long a pod that was evicted is waited for."""
_LOOK_SECONDS: Final = 1.0
_ON_DISK: Final = ("ephemeral-storage", "inodes")


@dataclass(frozen=True, slots=True)
class Machine:
    """What is asked of the machine, and done to it."""

    observe: Callable[[], Awaitable[Signals]]
    usages: Callable[[Sequence[Obj]], Awaitable[Usages]]
    reclaim: Callable[[], Awaitable[None]]
    """Remove what nobody uses on the disk of images and writable layers."""
    remove_evicted: Callable[[], Awaitable[None]]
    """Remove the containers of evicted pods."""


@dataclass(slots=True)
class PressureEviction:
    """Evicts pods of one node. `workers` are those of all its pods; `tell` takes events of the node."""

    options: EvictionOptions
    machine: Machine
    recorder: EventRecorder
    tell: Callable[[EventType, str, str], None]
    workers: Callable[[], Sequence[PodWorker]]
    changed: Callable[[], None] = lambda: None
    """Called when conditions of the node have changed."""
    evictions: Counter[str] = field(default_factory=Counter)
    """How many there were, by signal."""
    pressure: Pressure = field(default_factory=Pressure)
    now: Callable[[], float] = time.monotonic

    async def run(self) -> None:
        """Look at the node until cancelled."""
        while True:
            evicted: PodWorker | None = None
            try:
                evicted = await self.look()
            except (CriError, OSError) as error:
                _log.warning("the pressure on the node was not measured: %s", error)
            except Exception:
                _log.exception("the pressure on the node was not measured")
            if evicted is None:
                await asyncio.sleep(_SECONDS)
            else:
                await self.make_sure(evicted)

    async def look(self) -> PodWorker | None:
        """Measure, and make room if need be; the pod that was evicted. Raises `CriError`."""
        signals = await self.machine.observe()
        before = self.pressure.conditions
        options = self.options
        self.pressure = observed(
            options.thresholds, self.pressure, signals.seen, options.transition_seconds, self.now()
        )
        if self.pressure.conditions != before:
            self.changed()
        if not self.pressure.due:
            return None
        first = self.pressure.due[0]
        self.tell("Warning", "EvictionThresholdMet", f"Attempting to reclaim {first.resource}")
        if await self._is_enough_reclaimed(first, signals.image_disk):
            return None
        return await self._evict_one(first, signals)

    async def _is_enough_reclaimed(self, threshold: Threshold, image_disk: bool) -> bool:
        """Remove what nobody uses, if it is on the disk that is full; whether no pod has to go."""
        if threshold.resource not in _ON_DISK or (image_disk and threshold.signal.startswith("nodefs")):
            return False
        try:
            await self.machine.reclaim()
        except (CriError, OSError, ImageGcError) as error:
            _log.warning("what nobody uses was not removed: %s", error)
        signals = await self.machine.observe()
        return not met(self.options.thresholds, signals.seen, minimum=True)

    async def _evict_one(self, threshold: Threshold, signals: Signals) -> PodWorker | None:
        by_uid = {worker.uid: worker for worker in self.workers()}
        pods = [pod for worker in by_uid.values() if (pod := worker.evictable) is not None]
        usages = await self.machine.usages(pods)
        for pod in ranked(threshold, pods, usages, image_disk=signals.image_disk):
            uid = pod["metadata"]["uid"]
            if is_critical(pod):
                continue
            text, notes = told(threshold, pod, usages.get(uid), self.pressure.due, signals.seen)
            why = Eviction(threshold.signal, text, self._grace(threshold, pod), text, notes)
            if evict(by_uid[uid], why, self.recorder, self.evictions):
                return by_uid[uid]
        _log.warning("the node is short of %s, and there is no pod to evict", threshold.resource)
        return None

    def _grace(self, threshold: Threshold, pod: Obj) -> float:
        """How long the pod has to end: no time, unless its node has warned it."""
        if not threshold.grace:
            return 1.0
        own, most = float(pod["spec"].get("terminationGracePeriodSeconds") or 30), self.options.max_pod_grace_seconds
        return max(1.0, own if most < 0 else min(own, most))

    async def make_sure(self, worker: PodWorker) -> None:
        """Wait until what an evicted pod held is free, as far as it can be seen: nobody else goes for it."""
        end = self.now() + _GONE_SECONDS
        while not worker.is_cleaned and self.now() < end:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        try:
            await self.machine.remove_evicted()
        except (CriError, OSError) as error:
            _log.warning("the containers of evicted pods were not removed: %s", error)
        if self.pressure.due and self.pressure.due[0].resource in _ON_DISK:
            # Runtimes free the disk some time after a container is removed.
            await asyncio.sleep(_SECONDS)
