"""The Summary API's object of a snapshot. Pure.

What is not known is left out; without pressure there is neither `psi` nor `io`. Source: the kubelet's stats/v1alpha1,
KEP-4205.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.node.stats.kubelet.snapshot import ContainerFigures, FileSystem, Interface, PodFigures, Reading, Snapshot
from haru.node.stats.psi import PsiStats


def summary(snapshot: Snapshot, only_cpu_and_memory: bool = False) -> Obj:
    """`Summary`."""
    node: Obj = {"nodeName": snapshot.node}
    if snapshot.pods_group is not None:
        pods = {"name": "pods", **_started(snapshot.booted), **_used(snapshot.pods_group[1], snapshot.time)}
        node["systemContainers"] = [pods]
    node |= _started(snapshot.booted)
    node |= _used(snapshot.reading, snapshot.time, only_cpu_and_memory)
    if not only_cpu_and_memory:
        node |= _network(snapshot.network, snapshot.time)
        if snapshot.file_system is not None:
            node["fs"] = _file_system(snapshot.file_system, snapshot.time)
        if snapshot.most_processes is not None:
            limits = {"maxpid": snapshot.most_processes, "curproc": snapshot.processes}
            node["rlimit"] = _known({"time": format_time(snapshot.time), **limits})
    return {"node": node, "pods": [_pod(pod, snapshot.time, only_cpu_and_memory) for pod in snapshot.pods]}


def _pod(pod: PodFigures, time: datetime, only: bool) -> Obj:
    found: Obj = {"podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}}
    found |= _started(pod.started)
    found["containers"] = [_container(container, time, only) for container in pod.containers]
    found |= _used(pod.reading, time, only)
    if only:
        return found
    found |= _network(pod.network, time)
    parts = [part for one in pod.containers for part in (one.rootfs, one.logs) if part is not None]
    if parts:
        used = FileSystem(sum(part.used or 0 for part in parts), sum(part.inodes_used or 0 for part in parts))
        found["ephemeral-storage"] = _file_system(used, time)
    if pod.reading.processes is not None:
        found["process_stats"] = {"process_count": pod.reading.processes}
    return found


def _container(container: ContainerFigures, time: datetime, only: bool) -> Obj:
    found: Obj = {"name": container.name, **_started(container.started), **_used(container.reading, time, only)}
    if not only:
        if container.rootfs is not None:
            found["rootfs"] = _file_system(container.rootfs, time)
        if container.logs is not None:
            found["logs"] = _file_system(container.logs, time)
    return found


def _used(reading: Reading, time: datetime, only: bool = False) -> Obj:
    r, stamp = reading, {"time": format_time(time)}
    found: Obj = {}
    cpu = _known({"usageNanoCores": r.nano_cores, "usageCoreNanoSeconds": r.cpu, **_pressure(r.psi, "cpu")})
    memory = {
        "availableBytes": r.available,
        "usageBytes": r.memory,
        "workingSetBytes": r.working_set,
        "rssBytes": r.rss,
        "pageFaults": r.faults,
        "majorPageFaults": r.major_faults,
        **_pressure(r.psi, "memory"),
    }
    if cpu:
        found["cpu"] = {**stamp, **cpu}
    if known := _known(memory):
        found["memory"] = {**stamp, **known}
    if not only and (io := _pressure(r.psi, "io")):
        found["io"] = {**stamp, **io}
    if not only and r.swap is not None:
        left = None if r.swap_limit is None else max(0, r.swap_limit - r.swap)
        found["swap"] = {**stamp, **_known({"swapAvailableBytes": left, "swapUsageBytes": r.swap})}
    return found


def _pressure(psi: Mapping[str, PsiStats], resource: str) -> Obj:
    found = psi.get(resource)
    return {} if found is None else {"psi": found.json()}


def _network(interfaces: Sequence[Interface], time: datetime) -> Obj:
    if not interfaces:
        return {}
    listed = [
        {
            "name": one.name,
            "rxBytes": one.received,
            "rxErrors": one.receive_errors,
            "txBytes": one.sent,
            "txErrors": one.send_errors,
        }
        for one in interfaces
    ]
    first = next((one for one in listed if one["name"] == "eth0"), listed[0])
    return {"network": {"time": format_time(time), **first, "interfaces": listed}}


def _file_system(found: FileSystem, time: datetime) -> Obj:
    f = found
    return _known(
        {
            "time": format_time(time),
            "availableBytes": f.available,
            "capacityBytes": f.capacity,
            "usedBytes": f.used,
            "inodesFree": f.inodes_free,
            "inodes": f.inodes,
            "inodesUsed": f.inodes_used,
        }
    )


def _started(time: datetime | None) -> Obj:
    return {} if time is None else {"startTime": format_time(time)}


def _known(fields: Obj) -> Obj:
    return {name: value for name, value in fields.items() if value is not None}
