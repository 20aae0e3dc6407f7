"""What makes room on a node: limits of storage, pressure, images that nobody uses."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from haru.client.events import EventType
from haru.exposition import head
from haru.kube.meta import Obj
from haru.kube.node_admission import EVICTED
from haru.kube.node_preemption import CONDITION, MESSAGE, PREEMPTING, seconds_to_wait
from haru.node.agent.context import Context
from haru.node.eviction.evict import Eviction, evict
from haru.node.eviction.image_gc import ImageCollector
from haru.node.eviction.pressure_eviction import Machine, PressureEviction
from haru.node.eviction.ranking import Usages
from haru.node.eviction.signals import observe, pod_usage
from haru.node.eviction.storage_eviction import StorageEviction, StoragePaths
from haru.node.podworker.observed import EXITED, POD_UID
from haru.node.podworker.worker import PodWorker
from haru.node.stats.kubelet.collector import Collector
from haru.node.stats.kubelet.runtime_stats import RuntimeStats
from haru.node.status.pod_status import TERMINAL
from haru.proto import cri_pb2 as cri

Tell = Callable[[EventType, str, str], None]


@dataclass(slots=True)
class Evictions:
    """The evictions of one node; `workers` are those of all its pods, `changed` is called for changed conditions."""

    context: Context
    workers: Callable[[], Sequence[PodWorker]]
    tell: Tell
    changed: Callable[[], None]
    counts: Counter[str] = field(default_factory=Counter)
    """Of evicted pods, by signal."""
    preemptions: Counter[str] = field(default_factory=Counter)
    """Of pods that went for critical ones, by the resource that was missing."""
    images: ImageCollector = field(init=False)
    pressure: PressureEviction = field(init=False)

    def __post_init__(self) -> None:
        """Make what looks at images, and at pressure."""
        context, options = self.context, self.context.options
        self.images = ImageCollector(context.runtime, options.image_gc, self._pods, self.tell)
        look = partial(observe, context.runtime)
        machine = Machine(lambda: look(context.host_paths()), self._usages, self._reclaim, self._remove_evicted)
        self.pressure = PressureEviction(
            context.eviction, machine, context.recorder, self.tell, self.workers, self.changed, self.counts
        )

    async def run(self) -> None:
        """Make room until cancelled."""
        context, options = self.context, self.context.options
        paths = StoragePaths(options.root, options.logs, context.volumes)
        limits = StorageEviction(context.runtime, context.recorder, paths, self.workers, self.counts)
        async with asyncio.TaskGroup() as group:
            group.create_task(limits.run(), name="limits of storage")
            group.create_task(self.pressure.run(), name="pressure")
            group.create_task(self.images.run(), name="unused images")

    def preempt(self, worker: PodWorker, gone: Sequence[PodWorker], resource: str) -> None:
        """End pods for a critical one, which waits for that."""
        why = Eviction(resource, MESSAGE, math.inf, CONDITION, reason=PREEMPTING)
        seconds = seconds_to_wait(one.pod for one in gone if one.pod is not None)
        for one in gone:
            evict(one, why, self.context.recorder, self.preemptions)
        worker.start_after(gone, seconds)

    def lines(self) -> Sequence[str]:
        """The lines of /metrics."""
        lines: list[str] = []
        for name, what, label, counts in (
            ("evictions", "Evicted pods by the exceeded limit.", "eviction_signal", self.counts),
            ("preemptions", "Pods that went for critical ones.", "preemption_signal", self.preemptions),
        ):
            lines += head(f"kubelet_{name}", "counter", what) if counts else []
            lines += [f'kubelet_{name}{{{label}="{key}"}} {n}' for key, n in sorted(counts.items())]
        return lines

    def _pods(self) -> list[Obj]:
        return [worker.pod for worker in self.workers() if worker.pod is not None]

    async def _usages(self, pods: Sequence[Obj]) -> Usages:
        """What pods use now, by uid."""
        context = self.context
        stats = RuntimeStats(context.runtime)
        collector = Collector(context.options.name, context.host_paths(), lambda: pods, stats.uses)
        figures = {one.uid: one for one in (await collector.measure()).pods}
        found = {}
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if uid in figures:
                found[uid] = await asyncio.to_thread(pod_usage, pod, figures[uid], context.volumes)
        return found

    async def _reclaim(self) -> None:
        """Remove the containers of pods that have ended, then images. Raises `CriError`, `ImageGcError`."""
        await self._remove_containers(lambda status: status.get("phase") in TERMINAL)
        await self.images.remove_unused()

    async def _remove_evicted(self) -> None:
        """Remove the containers of evicted pods. Raises `CriError`."""
        await self._remove_containers(
            lambda status: status.get("phase") in TERMINAL and status.get("reason") == EVICTED
        )

    async def _remove_containers(self, of: Callable[[Obj], bool]) -> None:
        """Remove what has ended of pods, by their status. Raises `CriError`."""
        runtime = self.context.runtime
        ended = {pod["metadata"]["uid"] for pod in self._pods() if of(pod.get("status") or {})}
        for container in await runtime.containers():
            if container.state == EXITED and container.labels.get(POD_UID, "") in ended:
                await runtime.remove_container(container.id)
        for sandbox in await runtime.sandboxes():
            if sandbox.state != cri.SANDBOX_READY and sandbox.labels.get(POD_UID, "") in ended:
                await runtime.remove_sandbox(sandbox.id)
