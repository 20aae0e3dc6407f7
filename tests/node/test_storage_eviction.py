"""Pods that use more local storage than they may are evicted, with the kubelet's words."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from haru.node.cri.errors import CriError
from haru.node.eviction.disk_usage import disk_usage
from haru.node.eviction.limits import ContainerStorage, PodStorage, excess, has_limits
from haru.node.eviction.storage_eviction import StorageEviction, StoragePaths
from haru.node.podworker.worker import PodWorker
from haru.node.volumes.pod_volumes import PodVolumes
from haru.proto import cri_pb2 as cri

Obj = dict[str, Any]
MIB = 1 << 20


def container(name: str = "main", limit: str | None = None) -> Obj:
    return {"name": name, "resources": {"limits": {"ephemeral-storage": limit}} if limit else {}}


def pod_with(*containers: Obj, volumes: tuple[Obj, ...] = (), **spec: Any) -> Obj:
    meta = {"name": "p", "namespace": "n", "uid": "u"}
    return {"metadata": meta, "spec": {"containers": list(containers or (container(),)), "volumes": volumes, **spec}}


def empty_dir(limit: str | None, medium: str = "") -> Obj:
    return {"name": "v", "emptyDir": {"sizeLimit": limit, "medium": medium} if limit else {}}


# -- what is decided --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "storage", "signal", "message"),
    [
        (
            pod_with(volumes=(empty_dir("1Mi"),)),
            PodStorage({"v": MIB + 1}),
            "emptydirfs.limit",
            'Usage of EmptyDir volume "v" exceeds the limit "1Mi". ',
        ),
        (pod_with(volumes=(empty_dir("1Mi"),)), PodStorage({"v": MIB}), "", ""),
        (pod_with(volumes=(empty_dir("0"),)), PodStorage({"v": MIB}), "", ""),
        (
            pod_with(container("a", "1Mi"), container("b", "2Mi")),
            PodStorage({"c": MIB}, {"a": ContainerStorage(MIB, 0), "b": ContainerStorage(0, MIB)}, 1),
            "ephemeralpodfs.limit",
            "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ",
        ),
        (
            pod_with(container("a", "1Mi"), container("b", "20Mi")),
            PodStorage({}, {"a": ContainerStorage(MIB - 1, 2), "b": ContainerStorage(0, MIB)}),
            "ephemeralcontainerfs.limit",
            'Container a exceeded its local ephemeral storage limit "1Mi". ',
        ),
        (
            pod_with(container("a", "1Mi"), container("b", "20Mi")),
            PodStorage({}, {"a": ContainerStorage(5 * MIB, 2, is_layer_beside_logs=False)}),
            "",
            "",
        ),
        (pod_with(container("a", "9Mi"), container("b")), PodStorage({}, {"b": ContainerStorage(8 * MIB)}), "", ""),
        (pod_with(volumes=(empty_dir("1Mi"),), priority=2_000_001_000), PodStorage({"v": 2 * MIB}), "", ""),
    ],
)
def test_first_exceeded_limit_is_the_reason(pod: Obj, storage: PodStorage, signal: str, message: str) -> None:
    assert (excess(pod, storage) or ("", "")) == (signal, message)


@pytest.mark.parametrize(
    ("pod", "limited"),
    [
        (pod_with(), False),
        (pod_with(volumes=(empty_dir(None),)), False),
        (pod_with(volumes=(empty_dir("1Mi", "Memory"),)), False),  # its file system holds no more
        (pod_with(volumes=(empty_dir("1Mi"),)), True),
        (pod_with(volumes=(empty_dir("1Mi"),), priority=2_000_000_000), False),
        (pod_with(container("a", "1Mi")), True),
        (pod_with(container(), initContainers=[container("i", "1Mi")]), True),
    ],
)
def test_only_pods_with_limits_are_measured(pod: Obj, limited: bool) -> None:
    assert has_limits(pod) == limited


# -- what is measured -------------------------------------------------------------------------------------------------


def test_disk_usage_counts_blocks_of_each_file_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    file = tmp_path / "deep/file"
    file.write_bytes(b"x" * 100_000)
    (tmp_path / "again").hardlink_to(file)
    (tmp_path / "link").symlink_to("/usr")
    counted = (tmp_path, tmp_path / "deep", file, tmp_path / "link")
    assert disk_usage(tmp_path) == 512 * sum(path.lstat().st_blocks for path in counted)
    assert disk_usage(file) == 512 * file.stat().st_blocks >= 100_000
    assert disk_usage(tmp_path / "gone") == 0


def test_disk_usage_stays_on_its_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    top = tmp_path.lstat()
    monkeypatch.setattr(Path, "lstat", lambda _: SimpleNamespace(st_dev=top.st_dev + 1, st_blocks=8))
    assert disk_usage(tmp_path) == 4096


class Worker:
    """The worker of a pod whose containers run under ids `NAME-id`."""

    uid = "u"

    def __init__(self, pod: Obj | None) -> None:
        self.evictable = pod
        names = [one["name"] for one in pod["spec"]["containers"]] if pod is not None else []
        self.seen = SimpleNamespace(containers=[SimpleNamespace(name=name, id=f"{name}-id") for name in names])
        self.evicted: list[tuple[str, str]] = []

    def evict(self, reason: str, message: str, grace: float, disruption: str) -> bool:
        assert grace == 1.0 and not disruption
        self.evicted.append((reason, message))
        self.evictable = None
        return True


class Runtime:
    """Containers that have written so many bytes, by id; asked for it, or that it does not count it."""

    def __init__(self, layers: dict[str, int], error: CriError | None = None) -> None:
        self.layers, self.error, self.asked = layers, error, 0

    async def container_stats(self) -> list[cri.ContainerStats]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return [
            cri.ContainerStats(
                attributes=cri.ContainerAttributes(id=id_),
                writable_layer=cri.FilesystemUsage(used_bytes=cri.UInt64Value(value=used)),
            )
            for id_, used in self.layers.items()
        ]


def eviction(tmp_path: Path, runtime: Runtime, *workers: Worker) -> tuple[StorageEviction, list[tuple[Any, ...]]]:
    told: list[tuple[Any, ...]] = []
    recorder: Any = SimpleNamespace(event=lambda *event, **_: told.append(event[1:]))
    paths = StoragePaths(tmp_path, tmp_path / "logs", PodVolumes(tmp_path))
    made: Any = StorageEviction(runtime, recorder, paths, lambda: workers)  # type: ignore[arg-type, return-value]
    return made, told


async def test_pod_whose_volume_grew_is_evicted_with_an_event(tmp_path: Path) -> None:
    pod = pod_with(volumes=(empty_dir("1Mi"),))
    worker, unlimited, ends = Worker(pod), Worker(pod_with()), Worker(None)
    runtime = Runtime({})
    made, told = eviction(tmp_path, runtime, worker, unlimited, ends)
    PodVolumes(tmp_path).make(pod, empty_dir("1Mi"), None)
    await made.look()
    assert worker.evicted == told == []
    (PodVolumes(tmp_path).volume("u", empty_dir("1Mi")) / "file").write_bytes(b"x" * 2 * MIB)
    await made.look()
    text = 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    assert worker.evicted == [("Evicted", text)]
    assert told == [("Warning", "Evicted", text)]
    assert runtime.asked == 0  # no pod has a limit for its containers
    assert made.evictions == {"emptydirfs.limit": 1}


async def test_layers_and_logs_of_containers_are_counted(tmp_path: Path) -> None:
    pod = pod_with(container("a", "3Mi"), container("b", "3Mi"))
    logs = tmp_path / "logs/n_p_u/a"
    logs.mkdir(parents=True)
    (logs / "0.log").write_bytes(b"x" * 2 * MIB)
    runtime, worker = Runtime({"a-id": MIB, "other": 90 * MIB}), Worker(pod)
    made, _ = eviction(tmp_path, runtime, worker)
    await made.look()
    text = 'Container a exceeded its local ephemeral storage limit "3Mi". '
    assert worker.evicted == [("Evicted", text)]


async def test_runtime_that_counts_nothing_evicts_nobody(tmp_path: Path) -> None:
    worker = Worker(pod_with(container("a", "1Mi")))
    made, _ = eviction(tmp_path, Runtime({}, CriError("stats", "UNIMPLEMENTED", "")), worker)
    await made.look()
    assert worker.evicted == []
    made, _ = eviction(tmp_path, Runtime({}, CriError("stats", "UNAVAILABLE", "")), worker)
    with pytest.raises(CriError):
        await made.look()


# -- what the pod's worker makes of it --------------------------------------------------------------------------------


def worker_of(pod: Obj, tmp_path: Path) -> PodWorker:
    intervals = SimpleNamespace(crash_first_seconds=1.0, crash_longest_seconds=1.0, resync_seconds=1.0)
    parts = ("client", "runtime", "recorder", "volumes", "handler_runner", "devices", "allocations", "cgroups")
    context: Any = SimpleNamespace(options=SimpleNamespace(intervals=intervals), **dict.fromkeys(parts))
    made = PodWorker(context, SimpleNamespace(), "u", lambda pod: None)  # type: ignore[arg-type]
    made.update(pod)
    return made


@pytest.mark.parametrize(
    ("change", "evicted"),
    [
        ({}, True),
        ({"status": {"phase": "Running"}}, True),
        ({"status": {"phase": "Failed"}}, False),
        ({"metadata": {"uid": "u", "deletionTimestamp": "2026-11-27T22:00:00Z"}}, False),
    ],
)
async def test_pod_that_ends_anyway_is_not_evicted(tmp_path: Path, change: Obj, evicted: bool) -> None:
    worker = worker_of({**pod_with(), **change}, tmp_path)
    assert worker.evict("Evicted", "too much") == evicted
    assert not worker.evict("Evicted", "too much")  # once is enough
    assert worker.evictable is None


def test_disk_usage_of_a_directory_that_goes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    whole = disk_usage(tmp_path)
    scan = os.scandir

    def gone(path: str) -> Any:
        if path.endswith("/a"):
            raise FileNotFoundError(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert disk_usage(tmp_path) == whole
