"""Evicting pods that exceed their limits of local storage: measured every 10 s, decided by `limits`.

Only pods with such a limit are measured. A node with millions of files in them measures less often, so that this takes
no more than a tenth of the time of one core.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from haru.client.events import EventRecorder
from haru.kube.meta import Obj
from haru.kube.resources import pod_limits
from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.eviction.disk_usage import disk_usage
from haru.node.eviction.evict import Eviction, evict
from haru.node.eviction.limits import STORAGE, ContainerStorage, PodStorage, excess, has_limits
from haru.node.eviction.signals import is_on_disk, same_device
from haru.node.podworker.config import log_directory
from haru.node.podworker.worker import PodWorker
from haru.node.volumes.pod_volumes import PodVolumes

_log = logging.getLogger(__name__)
_SECONDS: Final = 10.0
_SHARE: Final = 0.1
"""Of the time of a core that measuring takes at most."""


@dataclass(frozen=True, slots=True)
class StoragePaths:
    """Where pods write on this machine."""

    root: Path
    logs: Path
    volumes: PodVolumes


@dataclass(slots=True)
class StorageEviction:
    """Evicts pods of one node. `workers` are those of all its pods."""

    runtime: RuntimeClient
    recorder: EventRecorder
    paths: StoragePaths
    workers: Callable[[], Iterable[PodWorker]]
    evictions: Counter[str] = field(default_factory=Counter)
    """How many there were, by the exceeded limit."""

    async def run(self) -> None:
        """Look at pods until cancelled."""
        while True:
            began = time.monotonic()
            try:
                await self.look()
            except (CriError, OSError) as error:
                _log.warning("the storage of pods was not measured: %s", error)
            except Exception:
                _log.exception("the storage of pods was not measured")
            await asyncio.sleep(max(_SECONDS, (time.monotonic() - began) / _SHARE))

    async def look(self) -> None:
        """Measure each pod that has a limit, and evict what exceeds one. Raises `CriError`."""
        limited = [(worker, pod) for worker in self.workers() if (pod := worker.evictable) and has_limits(pod)]
        layers: Mapping[str, ContainerStorage] = {}
        if any(STORAGE in pod_limits(pod) for _, pod in limited):
            layers = await self._layers()
        for worker, pod in limited:
            names = {one.id: one.name for one in worker.seen.containers if one.id in layers}
            used = {name: layers[id_] for id_, name in names.items()}
            found = excess(pod, await asyncio.to_thread(self._measured, pod, used))
            if found is not None:
                evict(worker, Eviction(found.signal, found.message), self.recorder, self.evictions)

    async def _layers(self) -> dict[str, ContainerStorage]:
        """What containers have written, by id; nothing where the runtime does not count it."""
        try:
            stats = await self.runtime.container_stats()
        except CriError as error:
            if error.code != "UNIMPLEMENTED":
                raise
            return {}
        return {
            one.attributes.id: ContainerStorage(
                one.writable_layer.used_bytes.value,
                is_layer_beside_logs=same_device(one.writable_layer.fs_id.mountpoint, self.paths.root),
            )
            for one in stats
            if one.HasField("writable_layer")
        }

    def _measured(self, pod: Obj, layers: Mapping[str, ContainerStorage]) -> PodStorage:
        """All that a pod uses."""
        uid, volumes = pod["metadata"]["uid"], self.paths.volumes
        kept = [one for one in pod["spec"].get("volumes") or () if is_on_disk(one)]
        logs = Path(log_directory(str(self.paths.logs), pod))
        return PodStorage(
            volumes={one["name"]: disk_usage(volumes.volume(uid, one)) for one in kept},
            containers={
                name: ContainerStorage(one.layer, disk_usage(logs / name), one.is_layer_beside_logs)
                for name, one in layers.items()
            },
            other=disk_usage(volumes.pod(uid) / "etc-hosts"),
        )
