"""Notice pods of other schedulers: those that wait with claims, and those that hold devices inside the partition.

Source: our own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from haru.client.events import EventRecorder
from haru.engine import SchedulerCache
from haru.engine.dra import allocated_devices
from haru.engine.state import PodInfo, namespaced_name
from haru.kube.meta import Obj, allocation_of
from haru.kube.names import counted
from haru.scheduler.binding.claim_updates import users_of
from haru.scheduler.coexistence.metrics import CoexistenceMetrics

_log = logging.getLogger(__name__)
REASON = "ForeignScheduler"


class ForeignPods:
    """Pods whose schedulerName is none of `served`."""

    def __init__(
        self, cluster: SchedulerCache, served: Collection[str], metrics: CoexistenceMetrics, recorder: EventRecorder
    ) -> None:
        self._cluster = cluster
        self._served = served
        self._metrics = metrics
        self._recorder = recorder
        self._waiting: set[str] = set()
        self._holding: dict[str, str] = {}
        self._logged: set[str] = set()

    @property
    def wait_for_devices(self) -> bool:
        """Whether another scheduler may be about to allocate devices."""
        return bool(self._waiting)

    def pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        """Hear of a pod; costs nothing for pods that are served here."""
        pod = new or old
        if pod is None:
            return
        spec = pod.get("spec") or {}
        if spec.get("schedulerName", "default-scheduler") in self._served or not spec.get("resourceClaims"):
            return
        path = namespaced_name(pod)
        ended = new is None or (new.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if not ended and not spec.get("nodeName"):
            self._waiting.add(path)
            return
        self._waiting.discard(path)
        if ended:
            self._forget(path)
            return
        self._look_at(path)

    def claim_changed(self, claim: Obj) -> None:
        """Hear of an allocation that another scheduler wrote: its pods may be bound already."""
        for path in users_of(claim):
            self._look_at(path)

    def _look_at(self, path: str) -> None:
        info = self._cluster.snapshot().pods.get(path)
        if info is None or not info.node or info.scheduler_name in self._served or path in self._holding:
            return
        node = self._cluster.snapshot().nodes.get(info.node)
        partition = self._cluster.partition
        if node is None or not partition.has_node(node.labels, node.taints):
            return
        held = [d for claim in self._claims_of(info) for d in allocated_devices(allocation_of(claim))]
        inside = sum(partition.has_pool(device.driver, device.pool) for device in held)
        if inside:
            self._tell(path, info, inside)

    def _claims_of(self, pod: PodInfo) -> Iterable[Obj]:
        snapshot = self._cluster.snapshot()
        for path in snapshot.claim_index.by_consumer.get(f"pods/{pod.key.path}") or ():
            claim = snapshot.claims.get(path)
            if claim is not None:
                yield claim

    def _tell(self, path: str, pod: PodInfo, devices: int) -> None:
        name = pod.scheduler_name
        self._holding[path] = name
        self._metrics.foreign_pods[name] += 1
        many = counted(devices, "device")
        where = "" if self._cluster.partition.is_whole else " in its partition"
        text = f"scheduler {name} placed this pod with {many} that {', '.join(sorted(self._served))} serves{where}"
        self._recorder.event(pod.obj, "Warning", REASON, f"{text}: two schedulers may give out the same device")
        if name not in self._logged:
            self._logged.add(name)
            _log.warning("pod %s: %s; further pods of it get an event only", path, text)

    def _forget(self, path: str) -> None:
        name = self._holding.pop(path, None)
        if name is not None:
            self._metrics.foreign_pods[name] -= 1
