"""Measuring at an interval: requests are answered with what was measured last, however many there are.

Source: cAdvisor's housekeeping (10 s, with jitter), the kubelet's summary provider, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from haru.clock import utc_now
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.pod_containers import statuses_of
from haru.kube.strategy import qos_class
from haru.node.cgroups.host import Hierarchies
from haru.node.cgroups.paths import Driver, QosClass, kubepods, pod_cgroup, qos_cgroup
from haru.node.stats import psi
from haru.node.stats.kubelet import exposition
from haru.node.stats.kubelet import readings as r
from haru.node.stats.kubelet.runtime_stats import ContainerUse
from haru.node.stats.kubelet.snapshot import ContainerFigures, FileSystem, PodFigures, Reading, Snapshot
from haru.node.stats.kubelet.summary import summary

HOUSEKEEPING_SECONDS = 10.0
_log = logging.getLogger("haru.node")


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Where things are on the machine that is measured."""

    hierarchies: Hierarchies
    root: Path
    """Whose file system is the node's."""
    logs: Path
    proc: Path = Path("/proc")
    cgroup_root: str = "/"
    driver: Driver = "cgroupfs"


@dataclass(frozen=True, slots=True)
class _Measurement:
    """One measurement: its time, the runtime's statistics by container, and the cpu time of each group."""

    time: datetime
    uses: Mapping[str, ContainerUse]
    seen: dict[str, tuple[datetime, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Collector:
    """`Statistics` of one node. `now` is the wall clock."""

    node: str
    paths: HostPaths
    pods: Callable[[], Sequence[Obj]]
    uses: Callable[[], Any] | None = None
    """What the runtime tells of containers, awaited; None where it tells nothing."""
    now: Callable[[], datetime] = utc_now
    seconds: float = HOUSEKEEPING_SECONDS
    _last: Snapshot | None = None
    _before: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    _pressure: bool | None = None

    # -- what is shown ------------------------------------------------------------------------------------------------

    def summary(self, only_cpu_and_memory: bool = False) -> Obj:
        """The Summary API's object."""
        return summary(self._snapshot(), only_cpu_and_memory)

    def cadvisor(self) -> str:
        """The exposition of /metrics/cadvisor."""
        return exposition.cadvisor(self._snapshot())

    def resource(self) -> str:
        """The exposition of /metrics/resource."""
        return exposition.resource(self._snapshot())

    def _snapshot(self) -> Snapshot:
        return self._last or Snapshot(self.now(), self.node, None, Reading())

    # -- measuring ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            try:
                await self.measure()
            except Exception:
                _log.exception("the node was not measured")
            await asyncio.sleep(self.seconds * Random().uniform(0.9, 1.1))

    async def measure(self) -> Snapshot:
        """Measure once."""
        uses: Mapping[str, ContainerUse] = {}
        if self.uses is not None:
            try:
                uses = await self.uses()
            except OSError as error:
                _log.info("the runtime told nothing of what containers use: %s", error)
        pods = list(self.pods())
        self._last = await asyncio.to_thread(self._measured, pods, uses)
        return self._last

    def _measured(self, pods: Sequence[Obj], uses: Mapping[str, ContainerUse]) -> Snapshot:
        p, measurement = self.paths, _Measurement(self.now(), uses)
        if self._pressure is None:
            # Once: a kernel that does not account pressure is not asked for each group, and told of once.
            self._pressure = psi.is_available(p.hierarchies.unified)
            if not self._pressure:
                _log.info("pressure is not accounted here: it is left out of all figures")
        root = kubepods(p.cgroup_root)
        memory = r.meminfo(p.proc)
        most, threads = r.processes(p.proc)
        pods_reading = self._group(root.path(p.driver), measurement)
        classes = [qos_cgroup(root, qos).path(p.driver) for qos in ("Burstable", "BestEffort")]
        read = [(path, self._group(path, measurement)) for path in classes]
        snapshot = Snapshot(
            time=measurement.time,
            node=self.node,
            booted=r.booted(p.proc),
            reading=self._rated("/", r.read_node(p.proc, p.hierarchies, pressure=self._pressure), measurement),
            cpus=os.cpu_count() or 1,
            memory_capacity=memory.get("MemTotal", 0),
            pods=[found for pod in pods if (found := self._pod(pod, measurement)) is not None],
            pods_group=None if pods_reading is None else (root.path(p.driver), pods_reading),
            groups=[(path, reading) for path, reading in read if reading is not None],
            network=r.interfaces(p.proc),
            file_system=r.file_system(p.root),
            most_processes=most,
            processes=threads,
        )
        self._before = measurement.seen  # groups that are gone are forgotten
        return snapshot

    def _group(self, path: str, measurement: _Measurement) -> Reading | None:
        try:
            reading = r.read_group(self.paths.hierarchies, path, pressure=bool(self._pressure))
        except (OSError, psi.PsiError) as error:
            _log.warning("%s was not read: %s", path, error)
            return None
        return None if reading is None else self._rated(path, reading, measurement)

    def _rated(self, path: str, reading: Reading, measurement: _Measurement) -> Reading:
        """Add the cpu usage since the last measurement."""
        if reading.cpu is None:
            return reading
        time = measurement.time
        measurement.seen[path] = time, reading.cpu
        before = self._before.get(path)
        if before is None or reading.cpu < before[1] or time <= before[0]:
            return reading
        return replace(reading, nano_cores=int((reading.cpu - before[1]) / (time - before[0]).total_seconds()))

    def _pod(self, pod: Obj, measurement: _Measurement) -> PodFigures | None:
        p, meta, status = self.paths, pod["metadata"], pod.get("status") or {}
        qos: QosClass = status.get("qosClass") or qos_class(pod.get("spec") or {})  # type: ignore[assignment]
        path = pod_cgroup(kubepods(p.cgroup_root), qos, meta["uid"]).path(p.driver)
        reading = self._group(path, measurement)
        groups = r.members(p.hierarchies, path) if reading is not None else []
        containers = [
            made
            for one in statuses_of(pod).values()
            if (made := self._container(pod, one, groups, measurement)) is not None
        ]
        if reading is None and not containers:
            return None
        network = []
        if not (pod.get("spec") or {}).get("hostNetwork"):
            inside = (r.first_process(p.hierarchies, group) for _, group in groups)
            process = next((one for one in inside if one), None)
            network = r.interfaces(p.proc, process) if process else []
        started = _time(status.get("startTime"))
        name, namespace = meta["name"], meta["namespace"]
        return PodFigures(name, namespace, meta["uid"], started, path, reading or Reading(), containers, network)

    def _container(
        self,
        pod: Obj,
        status: Obj,
        groups: Sequence[tuple[str, str]],
        measurement: _Measurement,
    ) -> ContainerFigures | None:
        """Figures of a running container: from its cgroup, else from the runtime."""
        running = (status.get("state") or {}).get("running")
        id_ = (status.get("containerID") or "").partition("://")[2]
        if running is None or not id_:
            return None
        path = next((path for name, path in groups if id_ in name), "")
        use = measurement.uses.get(id_)
        reading = self._group(path, measurement) if path else None
        if reading is None and use is not None:
            reading = self._rated(f"runtime://{id_}", use.reading, measurement)
        if reading is None:
            return None
        meta = pod["metadata"]
        folder = self.paths.logs / f"{meta['namespace']}_{meta['name']}_{meta['uid']}" / status["name"]
        logs = FileSystem(*r.size_of(folder))
        rootfs = use.rootfs if use is not None else None
        started = _time(running.get("startedAt"))
        return ContainerFigures(status["name"], id_, status.get("image", ""), started, path, reading, rootfs, logs)


def _time(text: str | None) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None
